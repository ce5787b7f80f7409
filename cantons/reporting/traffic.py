"""The table of a report about what travelled: the size of single messages, and of all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cantons.reporting.collect import Group
from cantons.reporting.figures import size

MESSAGES = {"down_bytes_per_message": "one download", "up_bytes_per_upload": "one upload"}
TOTALS = {"bytes_down": "all downloads", "bytes_up": "all uploads", "bytes_per_client": "average client"}


def traffic_cells(groups: Sequence[Group]) -> list[list[str]]:
    """A row per method, as means over seeds, the titles first; a column without any number is left out."""
    columns = [_column(title, [group.messages(key) for group in groups], size) for key, title in MESSAGES.items()]
    columns += [_column("uploads", [group.final("uploads") for group in groups], "{:,.0f}".format)]
    columns += [_column(title, [group.final(key) for group in groups], size) for key, title in TOTALS.items()]
    there = [column for column in columns if any(cell != "–" for cell in column[1:])]
    return [list(row) for row in zip(["method", *(group.label for group in groups)], *there, strict=True)]


def explain_traffic(groups: Sequence[Group]) -> str:
    """What the columns mean."""
    last = ", of the last stage," if any(run.stages for group in groups for run in group.runs) else ""
    return (f"One download and one upload are the sizes of a single message{last} to a client and back. The average "
            "client is all that travelled, both ways, divided by the number of clients; those who were never drawn "
            "count too.")


def _column(title: str, values: Sequence[np.ndarray], words: Callable[[float], str]) -> list[str]:
    return [title, *(words(float(each.mean())) if np.isfinite(each).all() else "–" for each in values)]
