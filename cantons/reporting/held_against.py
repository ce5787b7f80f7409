"""The section of a report in which methods are held against a reference, pair by pair."""

from __future__ import annotations

from cantons.reporting.findings import Findings
from cantons.reporting.markup import element, table
from cantons.reporting.paired import difference_cells


def differences(found: Findings) -> str:
    """What follows from the numbers, the differences, and what differs that nobody asked for."""
    tuning = "".join(element("p", sentence, "note") for sentence in found.tuning)
    if not found.paired:
        return tuning
    unasked = [f"Differs where a default stands, and may explain a part of this: {line}." for line in found.unasked]
    return (tuning + element("h2", f"Differences to {found.against.label}") + element("p", found.conclusion)
            + table(difference_cells(found.paired), "Differences")
            + element("p", found.explanation, "note")
            + "".join(element("p", sentence, "notice") for sentence in unasked))
