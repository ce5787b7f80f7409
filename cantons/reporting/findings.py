"""What a comparison has found: a table, differences to a reference, what was tuned, and sentences about all this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cantons.errors import unknown
from cantons.reporting.collect import Group, several_seeds, shown
from cantons.reporting.paired import (
    Difference,
    conclude,
    difference_rows,
    explain_differences,
    find_differences,
    quoted_names,
)
from cantons.reporting.table import comparison_rows
from cantons.reporting.unasked import unasked_options
from cantons.study.tune import Tuned


@dataclass(frozen=True, eq=False)
class Findings:
    """Methods side by side, each with its seeds."""

    groups: Sequence[Group]  # one for each method, with its runs
    reference: str | None = None  # the method that the others are held against, by its label; None: the first
    tuned: Mapping[str, Tuned] = field(default_factory=dict)  # what was chosen for each method, by its study's name

    def __post_init__(self) -> None:
        labels = [group.label for group in self.groups]
        if self.reference is not None and self.reference not in labels:
            raise unknown("reference", self.reference, labels)

    @property
    def against(self) -> Group:
        """The method that the others are held against."""
        return next(group for group in self.groups if self.reference in (None, group.label))

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row per method: its name, how many seeds it has, its scores and what it cost; None: it has no such."""
        return comparison_rows(self.groups, {group.label: self.tuned[group.study["name"]].chosen
                                             for group in self.groups if group.study["name"] in self.tuned})

    @cached_property
    def paired(self) -> list[Difference]:
        """Every other method minus the reference, pair by pair."""
        return find_differences(self.groups, self.against)

    @cached_property
    def differences(self) -> list[dict[str, Any]]:
        """The same as rows of numbers: of means, of 95% intervals, and of p-values."""
        return difference_rows(self.paired)

    @cached_property
    def conclusion(self) -> str:
        """What the differences allow to say, in one sentence; empty for a method that stands alone."""
        return conclude(self.groups, self.paired) if self.paired else ""

    @cached_property
    def unasked(self) -> list[str]:
        """Options that differ between methods because of their defaults, one line for each."""
        return unasked_options(self.groups, {key for tuned in self.tuned.values() for key in tuned.chosen})

    @cached_property
    def tuning(self) -> list[str]:
        """How methods were tuned, in sentences; none if they were not."""
        swept = {name: tuned for name, tuned in self.tuned.items() if tuned.seeds}
        if not swept:
            return []
        seeds = next(iter(swept.values())).seeds
        budgets = sorted({tuned.points for tuned in self.tuned.values()})
        most = f"{budgets[-1]} point{'' if budgets[-1] == 1 else 's'}"
        who = f"Every method was tuned over the same {most}" if len(budgets) == 1 else (
            f"Methods were tuned over {budgets[0]} to {most}, as far as they have the options")
        rows = {tuned.by for tuned in swept.values()}
        by = ("validation rows, held back from training" if rows == {"validation"} else
              "what the stream cost, which is not apart from what is compared here")
        found = [f"{who}, with {seeds} seed{'' if seeds == 1 else 's'} each, by {by}; the seeds shown here are fresh."]
        left = [f"{option} of {quoted_names([name])} ({shown(value)})" for name, tuned in self.tuned.items()
                for option, value in tuned.default_steps.items()]
        found += [f"Left at their defaults: {', '.join(left)}."] if left else []
        for name, tuned in swept.items():
            found += [f"The best {key} of {name}, {tuned.chosen[key]}, is at the edge of what was tried: values beyond "
                      "might be better." for key in tuned.at_edge]
        return found

    @property
    def is_resplit(self) -> bool:
        """Whether seeds have splits of the data of their own."""
        return any(group.is_resplit for group in self.groups)

    @property
    def split(self) -> str:
        """Which rows were held out, in a sentence, where seeds could have splits of the data of their own."""
        if self.is_resplit:
            return "Every seed has a split of the data of its own."
        made_by = self.against.study["data"].get("made_by") or {}
        return "All seeds share one split of the data, and another might show other differences." if (
            "seed" in made_by and several_seeds(self.groups)) else ""

    @property
    def explanation(self) -> str:
        """What the columns of differences mean, and which rows were held out."""
        return " ".join(filter(None, (explain_differences(self.paired), self.split)))

    @property
    def sentences(self) -> list[str]:
        """All that is said below the table: how it was tuned, what differs unasked, what follows."""
        listed = [f"Differs where a default stands: {line}." for line in self.unasked] if len(self.groups) > 1 else []
        resplit = [self.split] if self.is_resplit else []
        return [*self.tuning, *listed, *resplit, *([self.conclusion] if self.conclusion else [])]
