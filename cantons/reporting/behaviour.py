"""The sections of a report about how a run went: delays, what methods say of themselves, what was lost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cantons.reporting import figures
from cantons.reporting.collect import Group, diagnostics, has_number, headline, metrics, scored_set
from cantons.reporting.markup import element, figure, gallery
from cantons.reporting.words import listed

LOSSES = {"rejected_uploads": "Rejected uploads", "skipped_rounds": "Skipped rounds"}


def asynchronous(groups: Sequence[Group]) -> str:
    """Scores against virtual time, and delays, if clients worked asynchronously."""
    if not has_number(groups, "clock.time"):
        return ""
    label = f"{scored_set(groups)} {metrics(groups)[0]}"
    delays = {"clock.delay.mean": "Mean delay", "clock.delay.max": "Longest delay so far"}
    drawn = [figure(f"In time: {label}", partial(figures.against_time, groups, headline(groups), label)), *(figure(
        title, partial(figures.curves, groups, key, title.lower(), across="events")) for key, title in delays.items())]
    note = "A delay is the number of events between the beginning of a job and its own; means are since the last look."
    return element("h2", "Asynchronous clients") + element("p", note, "note") + gallery(drawn)


def diagnosed(groups: Sequence[Group]) -> str:
    """What algorithms and rules say of themselves, if anything."""
    drawn = [figure(name.capitalize(), partial(figures.curves, groups, key, name))
             for name, key in diagnostics(groups).items() if has_number(groups, key)]
    if not drawn:
        return ""
    note = ("Numbers that the methods give of themselves: of the server's state, of each client (means over clients), "
            "and of the aggregation rule (means over the rounds since the evaluation before).")
    return element("h2", "Diagnostics") + element("p", note, "note") + gallery(drawn)


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
