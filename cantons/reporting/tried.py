"""Sweep a study: every combination of some values, and which of them is best, as a table, a data frame and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cantons.display import titled_table
from cantons.errors import InputError, shown
from cantons.files import folder_name, without_separators
from cantons.optional import optional_import
from cantons.ranges import Count, check
from cantons.reporting.axes import new_figure
from cantons.reporting.text import as_text, print_sweep, sweep_cells, sweep_title
from cantons.study.callbacks import Callbacks, Several
from cantons.study.dotted_keys import short_keys
from cantons.study.progress import watching
from cantons.study.study import AnyStudy
from cantons.study.sweep import Outcome, at_edge
from cantons.study.sweep import sweep as play

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Sweep:
    """The points of a grid, best first; it prints as a table."""

    outcomes: Sequence[Outcome]
    by: str  # where the scores that points are chosen by come from
    metric: str
    seeds: int
    folder: Path  # run folders are <folder>/<point>-<seed>

    @property
    def best(self) -> dict[str, Any]:
        """The best point, as `set` and `AnyStudy.changed` take it."""
        if self.outcomes[0].failure:
            raise InputError(f"no point of the grid has a number: {self.outcomes[0].failure}")
        return dict(self.outcomes[0].point)

    @property
    def failures(self) -> list[tuple[Mapping[str, Any], str]]:
        """The points without a number, and why each has none."""
        return [(outcome.point, outcome.failure) for outcome in self.outcomes if outcome.failure]

    @property
    def edges(self) -> list[str]:
        """What is best at the edge of the grid, in sentences."""
        return [] if self.outcomes[0].failure else [
            f"The best {key}, {self.best[key]}, is at the edge of what was tried: values beyond might be better."
            for key in at_edge(self.outcomes)]

    @property
    def sentences(self) -> list[str]:
        """What is said below the table: points without a number, and what is best at the edge of the grid."""
        return [*(f"{dict(point)}: {failure}" for point, failure in self.failures), *self.edges]

    def frame(self) -> Any:
        """A pandas data frame with a row per point: its values, its score, the spread over seeds, the test score."""
        rows = [{**outcome.point, self.by: outcome.score, "spread": outcome.spread, "test": outcome.test,
                 "failure": outcome.failure} for outcome in self.outcomes]
        return optional_import("pandas", "pandas", "frame()").DataFrame(rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """The score of each point on matplotlib axes: against the value if one number was varied, else by name."""
        axes = new_figure()[1] if axes is None else axes
        drawn = [outcome for outcome in self.outcomes if not outcome.failure]
        keys = list(self.outcomes[0].point)
        label = self.by if "." in self.by else f"{self.by} {self.metric}"
        values = [next(iter(outcome.point.values())) for outcome in drawn]
        if len(keys) == 1 and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            order = np.argsort(values)
            drawn = [drawn[place] for place in order]
            axes.errorbar(np.array(values)[order], [one.score for one in drawn],
                          [np.nan_to_num(one.spread) for one in drawn], marker="o", capsize=3)
            if values and min(values) > 0 and max(values) >= 10 * min(values):
                axes.set_xscale("log")
            axes.set(xlabel=keys[0], ylabel=label)
        else:
            short = short_keys(keys)
            names = [", ".join(f"{short[key]}={value}" for key, value in one.point.items()) for one in drawn]
            axes.errorbar([one.score for one in drawn], range(len(drawn)), xerr=[
                np.nan_to_num(one.spread) for one in drawn], fmt="o", capsize=3)
            axes.set(xlabel=label, yticks=range(len(drawn)), yticklabels=names)
            axes.invert_yaxis()
        return axes

    def __str__(self) -> str:
        return "\n".join([as_text(print_sweep, self.by, self.metric, self.outcomes, self.seeds), *self.sentences])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return titled_table(sweep_title(self.by, self.metric, self.seeds), sweep_cells(self.by, self.outcomes),
                            *self.sentences)


def sweep(study: AnyStudy | str | Path, grid: Mapping[str, Sequence[Any]], *, seeds: int = 3,
          out: str | Path | None = None, rounds: int | None = None, set: Mapping[str, Any] | None = None,
          choose: str | None = None, overwrite: bool = False, accept_changes: bool = False,
          callbacks: Callbacks = (), progress: bool | None = True) -> Sweep:
    """Try all combinations of the grid and choose by validation rows, held back from training.

    `grid` has a list of values for each key, such as {"algorithm.step_size": [0.03, 0.1, 0.3]}. A study is the path of
    a file, or `Study(problem, data, algorithm, rounds=...)`; `set` changes other keys of it. Every point runs with the
    seeds 0, 1, ...; points that differ in real numbers, and all seeds, run as one program. A stream is chosen by what
    it is charged on its way; `choose` names another number of the last evaluation, and then no rows are held back. Run
    folders are in `out`, results/sweep-NAME by default; called again, it goes on where it was. Folders that hold other
    runs are refused, or with `overwrite` begun anew. `callbacks` and `progress` are those of `run`.
    """
    points = plain_grid("grid", grid)
    check("seeds", Count, seeds)
    stem = study.stem if isinstance(study, AnyStudy) else Path(study).stem
    folder = Path(out or Path("results") / folder_name(f"sweep-{without_separators(stem)}"))
    changes = {**(set or {}), **({} if rounds is None else {"rounds": rounds})}
    with watching(progress) as watchers:
        by, metric, outcomes = play(study, points, seeds, folder, changes, Several([*callbacks, *watchers]),
                                    accept_changes, choose, overwrite)
    return Sweep(outcomes, by, metric, seeds, folder)


def plain_grid(name: str, grid: Any) -> dict[str, list[Any]]:
    """A grid as a study takes its values: a list of plain values for each key; `name` is what it is given as."""
    if not isinstance(grid, Mapping) or not grid:
        raise InputError(f"{name} is {shown(grid)}; give a list of values for each key, as in "
                         "{\"algorithm.step_size\": [0.1, 0.3]}.")
    for key, values in grid.items():
        if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
            raise InputError(f"{name} has {key} = {shown(values)}; give a list of values to try.")
    return {key: [value.item() if isinstance(value, np.generic) else value for value in values]
            for key, values in grid.items()}
