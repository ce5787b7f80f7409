"""Comparisons and sweeps as tables of text, as wide as there is room."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from cantons.display import score
from cantons.reporting.collect import SETS, Group, scored_set
from cantons.reporting.findings import Findings
from cantons.reporting.paired import difference_cells
from cantons.reporting.table import COLUMNS, cells, comparison_rows
from cantons.study.dotted_keys import short_keys
from cantons.study.sweep import Outcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NAME = 16  # letters of a method's name that stay on one line, before a column has to go for lack of room
DISPENSABLE = ("ms_per_round", "kib_per_client", "new_clients", "bound", "shared", "worst10")  # the first goes first
WIDTH = 110  # where there is no terminal


def print_comparison(console: Console, found: Findings) -> None:
    """One row per method on the named test set, with the spread over seeds and what travelled; then how they differ."""
    from rich.text import Text

    rows = found.rows
    gone = ["seeds"] if len({row["seeds"] for row in rows}) == 1 else []
    titles = cells(rows, gone)[0]
    own = [key for key in reversed(rows[0]) if key not in COLUMNS]  # diagnostics go before anything else
    for column in (*own, *DISPENSABLE):
        if _width(cells(rows, gone)) <= console.width:
            break
        gone.append(column)
    shown = cells(rows, gone)
    missing = [title for title in titles if title not in shown[0]]
    console.print(Text(comparison_title(found.groups)))
    console.print(_table(shown))
    if found.paired:
        console.print()
        whole = difference_cells(found.paired)
        apart = _fitting(whole, console.width)
        console.print(_table(apart))
        missing += whole[0][len(apart[0]):]
    if missing:
        console.print(Text(f"too narrow here for: {'; '.join(dict.fromkeys(missing))}."))
    for sentence in found.sentences:
        console.print(Text(sentence))


def _fitting(rows: list[list[str]], width: int) -> list[list[str]]:
    """The rows without the last columns, as far as there is no room for them."""
    while _width(rows) > width and len(rows[0]) > 2:
        rows = [row[:-1] for row in rows]
    return rows


def comparison_title(groups: Sequence[Group]) -> str:
    """What the numbers of a comparison are."""
    rows = comparison_rows(groups)
    seeds = {row["seeds"] for row in rows}
    spread = f"; mean ± deviation of {max(seeds)} seeds" if len(seeds) == 1 and max(seeds) > 1 else ""
    if any(row["error"] is not None for row in rows):
        spread = "; mean ± standard error of a sample of the clients"
    place = scored_set(groups)
    rows_scored = ("of each example before it was learned from" if place == "online" else
                   f"on the test set: {groups[0].study['data']['test_set']}" if place in SETS else
                   f"of the shared model on the test set: {place}")
    return f"{rows[0]['metric']} {rows_scored}{spread}"


def print_sweep(console: Console, by: str, metric: str, outcomes: Sequence[Outcome], seeds: int) -> None:
    """One row per point, the best first."""
    from rich.text import Text

    console.print(Text(sweep_title(by, metric, seeds)))
    console.print(_table(sweep_cells(by, outcomes)))


def sweep_title(by: str, metric: str, seeds: int) -> str:
    """What the numbers of a sweep are."""
    best = {"validation": "best by validation first", "online": "best by what the stream cost first"}
    score_of = f"personal {metric}" if by in best else by
    return f"{score_of}, mean of {seeds} seed{'s' if seeds > 1 else ''}; {best.get(by, 'best first')}"


def sweep_cells(by: str, outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The points in words, the titles first."""
    rows = [[*short_keys(outcomes[0].point).values(), by, "test"]]
    for outcome in outcomes:
        spread = "" if math.isnan(outcome.spread) else f" ± {score(outcome.spread, beside=outcome.score)}"
        tested = "–" if math.isnan(outcome.test) else score(outcome.test)
        numbers = ("–", "–") if outcome.failure else (score(outcome.score) + spread, tested)
        rows.append([*map(str, outcome.point.values()), *numbers])
    return rows


def as_text(write: Callable[..., None], *about: Any) -> str:
    """What `write(console, ...)` writes, without colours."""
    from rich.console import Console

    width = Console().width if Console().is_terminal else WIDTH
    file = StringIO()
    write(Console(file=file, width=width, highlight=False, markup=False, color_system=None,
                  force_jupyter=False), *about)  # in a notebook it would show what it is told to write
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines())


def _table(rows: Sequence[Sequence[str]]) -> Table:
    """The titles, on two lines if they have two words, and a line for each row."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, title in enumerate(_titles(rows)):
        shown.add_column(Text(title), justify="right" if place else "left", overflow="fold", no_wrap=place > 0)
    for first, *others in rows[1:]:
        shown.add_row(Text(first), *map(Text, others))
    return shown


def _titles(rows: Sequence[Sequence[str]]) -> list[str]:
    return [title.replace(" ", "\n").replace("/", "/\n") for title in rows[0]]


def _width(rows: Sequence[Sequence[str]]) -> int:
    """How wide a table of these must be, if long names may be broken."""
    names, *columns = zip(_titles(rows), *rows[1:], strict=True)
    needed = [max(len(word) for cell in column for word in cell.split("\n")) + 2 for column in columns]
    return min(max(map(len, names)), NAME) + sum(needed)
