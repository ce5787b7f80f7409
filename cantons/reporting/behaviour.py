"""The sections of a report about how runs went: delays, liars, what methods say of themselves, what was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cantons.display import score
from cantons.reporting import figures
from cantons.reporting.collect import (
    Group,
    diagnostics,
    has_number,
    headline,
    metrics,
    scored_set,
    unit_of_time,
)
from cantons.reporting.markup import element, figure, gallery, table
from cantons.reporting.words import listed
from cantons.study.plain import flat

LOSSES = {"rejected_uploads": "Rejected uploads", "skipped_rounds": "Skipped rounds"}
DELAYS = {"clock.delay.mean": "mean delay", "clock.delay.max": "longest delay"}
LEFT_OUT = {"rule.rejected_uploads": "uploads left out", "rule.rejected_liars": "of liars",
            "rule.rejected_honest": "of honest clients"}


def asynchronous(groups: Sequence[Group]) -> str:
    """Scores against virtual time, and delays, if clients worked asynchronously."""
    if not has_number(groups, "clock.time"):
        return ""
    label = f"{scored_set(groups)} {metrics(groups)[0]}"
    drawn = [figure(f"In time: {label}", partial(figures.against_time, groups, headline(groups), label)), *(figure(
        title.capitalize(), partial(figures.curves, groups, key, title, across="events"))
        for key, title in DELAYS.items())]
    note = ("An event is an answer that arrives and moves the server. Virtual time passes while clients "
            "work, as long as the study says; nobody waits for it. A delay, or staleness, is the number of events "
            "between the beginning of a job and its own: the answer is to a message that many steps old. Mean delays "
            "are since the evaluation before, the longest is of the whole run.")
    ends = _last_numbers(groups, {"clock.time": "virtual time", **DELAYS})
    return (element("h2", "Asynchronous clients") + element("p", note, "note")
            + table(ends, "Virtual time and delays", swatches=True) + gallery(drawn))


def liars(groups: Sequence[Group]) -> str:
    """Who lies, how, and how well the rule tells liars from others, if there are any."""
    lying = [group for group in groups if group.study.get("byzantine")]
    if not lying:
        return ""
    told = {_who_lies(group): group.label for group in lying}  # most comparisons have the same liars for all
    words = [sentence if len(told) == 1 == len(set(group.study.get("byzantine") is None for group in groups))
             else f"{label}: {sentence}" for sentence, label in told.items()]
    note = "Scores, means and figures of this page are over the honest clients alone."
    found = {key: title for key, title in LEFT_OUT.items() if has_number(groups, key)}
    if found:
        note += (" A rule that leaves out whole uploads is held to whose they were, counted over all rounds; one that "
                 "works number by number leaves out none.")
    drawn = [figure(f"Uploads left out, {title}", partial(figures.curves, groups, key, f"uploads {title} so far"))
             for key, title in list(found.items())[1:] if _moves(groups, key)]
    counted = table(_last_numbers(groups, found), "Uploads left out", swatches=True) if found else ""
    return (element("h2", "Clients that lie") + "".join(element("p", sentence) for sentence in words)
            + element("p", note, "note") + counted + gallery(drawn))


def _who_lies(group: Group) -> str:
    study = group.study
    options = flat(study["byzantine"]["attack"])
    how = ", ".join(f"{key} {value}" for key, value in options.items() if key != "name" and value is not None)
    names = [str(name) for name in study["byzantine"]["clients"]]
    drawn = "; each seed draws its own" if study["byzantine"].get("count") and len(group.runs) > 1 else ""
    return (f"{len(names)} of {study['data']['population']} clients lie: {listed(names or ['nobody'], 12)}{drawn}. "
            f"Their attack is {options['name']}{f' with {how}' if how else ''}.")


def diagnosed(groups: Sequence[Group]) -> str:
    """What algorithms and rules say of themselves, if anything."""
    told = LEFT_OUT if any(group.study.get("byzantine") for group in groups) else {}
    found = {key: name for name, key in diagnostics(groups).items() if has_number(groups, key) and key not in told}
    if not found:
        return ""
    kinds = {"server.": "of the server's state", "clients.": "of each client (means over clients)",
             "rule.": "of the aggregation rule (means over the rounds since the evaluation before)",
             "rule.rejected": "of the uploads that the rule left out (all rounds together)"}
    there = [words for kind, words in kinds.items() if any(
        key.startswith(kind) and (kind != "rule." or not key.startswith("rule.rejected")) for key in found)]
    note = f"Numbers that the methods give of themselves: {listed(there)}. The table has the last ones."
    drawn = [figure(name.capitalize(), partial(figures.curves, groups, key, name, across=unit_of_time(groups)))
             for key, name in found.items() if _moves(groups, key)]
    return (element("h2", "Diagnostics") + element("p", note, "note")
            + table(_last_numbers(groups, found), "Diagnostics", swatches=True) + gallery(drawn))


def losses(groups: Sequence[Group]) -> str:
    """What did not arrive, if anything."""
    drawn = [figure(title, partial(figures.curves, groups, key, f"{title.lower()} so far"))
             for key, title in LOSSES.items() if any(group.final(key).any() for group in groups)]
    if not drawn:
        return ""
    note = "An upload that is NaN or infinite is rejected; a round in which nothing usable arrives is skipped."
    who = "".join(element("p", f"{group.label} rejected uploads of {listed(names, 12)}.") for group in groups
                  if (names := sorted({name for run in group.runs for name in run.rejected()})))
    return element("h2", "Lost on the way") + element("p", note, "note") + gallery(drawn) + who


def _last_numbers(groups: Sequence[Group], titles: Mapping[str, str]) -> list[list[str]]:
    """A table of the last of each number that each method has, as means over seeds."""
    def words(values: np.ndarray) -> str:
        found = values[np.isfinite(values)]
        if not len(found):
            return "–"
        return f"{found[0]:,.0f}" if len(found) == 1 and found[0] == int(found[0]) else score(found.mean())

    return [["method", *titles.values()],
            *([group.label, *(words(group.final(key)) for key in titles)] for group in groups)]


def _moves(groups: Sequence[Group], key: str) -> bool:
    """Is there more to see in a figure than a flat line at the same height for all?"""
    values: Any = np.concatenate([group.curve(key).ravel() for group in groups])
    return bool(np.ptp(values[np.isfinite(values)]) > 0)
