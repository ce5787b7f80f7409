"""What the terminal shows: progress while a run goes on, and a table at its end."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from cantons.data import Federation, label_counts, label_skew
from cantons.errors import InputError
from cantons.report.collect import SETS, collect, scored_set
from cantons.report.numbers import score
from cantons.report.skew import write_skew
from cantons.report.table import COLUMNS, cells, comparison_rows
from cantons.study.callbacks import Callback
from cantons.study.describe import Description
from cantons.study.plain import plain
from cantons.study.sweep import Outcome

DEMO_TEXT = """\
Handwritten digits over 50 clients. A third of the classes is merged into one, and every client must tell
that one from a digit of its own, with a handful of examples: alone, with all data in one place, or federated.
"""


NAME = 16  # letters of a method's name that stay on one line, before a column has to go for lack of room
DISPENSABLE = ("ms_per_round", "kib_per_client", "new_clients", "bound", "shared", "worst10")  # the first goes first


class Watcher(Callback):
    """A progress bar with the latest score, and sentences above it."""

    def __init__(self, progress: Progress, quiet: bool):
        self._progress, self._quiet = progress, quiet
        self._bar: Any = None

    def started(self, study: Mapping[str, Any]) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)  # one run after the other: the last one is over
        self._bar = self._progress.add_task(study["name"], total=study["rounds"], score="")

    def advanced(self, round: int, rounds: int) -> None:
        self._progress.update(self._bar, completed=round)

    def evaluated(self, record: Mapping[str, Any]) -> None:
        self._progress.update(self._bar, completed=record["round"], score=_score(record))

    def noticed(self, sentence: str) -> None:
        if not self._quiet:
            click.echo(sentence, err=True)


@contextmanager
def watching(quiet: bool = False) -> Iterator[Watcher]:
    """A live progress bar on a terminal, nothing elsewhere; sentences go to standard error."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(),
               MofNCompleteColumn(table_column=Column(no_wrap=True)),
               TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
               TextColumn("{task.fields[score]}"))
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        yield Watcher(progress, quiet)


def comparison(folders: Sequence[Path]) -> None:
    """One row per method on the named test set, with the spread over seeds and what travelled."""
    groups = collect(folders)
    rows = comparison_rows(groups)
    console = _console()
    seeds = {row["seeds"] for row in rows}
    gone = ["seeds"] if len(seeds) == 1 else []
    own = [key for key in reversed(rows[0]) if key not in COLUMNS]  # diagnostics go before anything else
    for column in (*own, *DISPENSABLE):
        if _width(cells(rows, gone)) <= console.width:
            break
        gone.append(column)
    spread = f"; mean ± deviation of {max(seeds)} seeds" if len(seeds) == 1 and max(seeds) > 1 else ""
    if any(row["error"] is not None for row in rows):
        spread = "; mean ± standard error of a sample of the clients"
    place = scored_set(groups)
    rows_scored = ("of each example before it was learned from" if place == "online" else
                   f"on the test set: {groups[0].study['data']['test_set']}" if place in SETS else
                   f"of the shared model on the test set: {place}")
    console.print(Text(f"{rows[0]['metric']} {rows_scored}{spread}"))
    console.print(_table(cells(rows, gone)))


def sweep(by: str, metric: str, outcomes: Sequence[Outcome], seeds: int) -> None:
    """One row per point, the best first; below it why some have no number."""
    keys = list(outcomes[0].point)
    short = [key.rpartition(".")[2] for key in keys]
    rows = [[*(short if len(set(short)) == len(keys) else keys), by, "test"]]
    for outcome in outcomes:
        spread = "" if math.isnan(outcome.spread) else f" ± {score(outcome.spread, beside=outcome.score)}"
        tested = "–" if math.isnan(outcome.test) else score(outcome.test)
        numbers = ("–", "–") if outcome.failure else (score(outcome.score) + spread, tested)
        rows.append([*map(str, outcome.point.values()), *numbers])
    console = _console()
    best = {"validation": "best by validation first", "online": "best by what the stream cost first"}
    score_of = f"personal {metric}" if by in best else by
    console.print(Text(f"{score_of}, mean of {seeds} seed{'s' if seeds > 1 else ''}; {best.get(by, 'best first')}"))
    console.print(_table(rows))
    for outcome in outcomes:
        if outcome.failure:
            click.echo(f"{_as_changes(outcome.point)}: {outcome.failure}")
    if not outcomes[0].failure:
        click.echo(f"best: {_as_changes(outcomes[0].point)}")


def parts(kind: str, known: Mapping[str, Callable[..., Any]]) -> None:
    click.secho(kind, bold=True)
    shown = Table.grid(padding=(0, 1, 0, 0))
    for name, function in sorted(known.items()):
        shown.add_row(f"  {name:<16}", Text((function.__doc__ or "").strip().splitlines()[0]))
    _console(160).print(shown)


def description(described: Description) -> None:
    click.secho(f"{described.kind} {described.name}", bold=True)
    click.echo(f"{described.text}\n\nfrom its file: {described.source}\n")
    shown = Table(Column("option", no_wrap=True), "default", "type", box=None, pad_edge=False)
    if any(option.meaning for option in described.options):
        shown.add_column("meaning")
    for option in described.options:
        shown.add_row(option.name, option.default, option.type, *([option.meaning] if len(shown.columns) > 3 else []))
    _console().print(shown)
    if described.kind == "algorithm":
        click.secho(f"\nwhat travels, for {described.example}", bold=True)
        for way, leaves in (("down", described.down), ("up", described.up)):
            for path, shape, kind in leaves or [("nothing", (), "")]:
                click.echo(f"  {way:<5} {path:<28} {' x '.join(map(str, shape)) or ('1' if kind else ''):<10} {kind}")


def federation(data: Federation, plot: Path | None) -> None:
    click.secho("the data, made with these options", bold=True)
    click.echo(data.describe())
    rows = data.train.inputs
    if isinstance(rows, np.ndarray) and rows.size:
        click.echo(f"inputs: {' x '.join(map(str, rows.shape[1:])) or '1'}, from {rows.min():.4g} to {rows.max():.4g}")
    if data.classes is not None:
        click.echo(f"label skew: {label_skew(data):.2f} (mean total variation from everybody's labels; 0: all alike)")
    if plot is not None:
        click.echo(f"plot: {plot}")


def draw(data: Federation, plot: Path, overwrite: bool) -> None:
    if data.classes is None:
        raise InputError(f"{data.name} has numbers for targets, so there are no labels to plot.")
    write_skew(label_counts(data), plot, overwrite)


def as_json(summary: Mapping[str, Any]) -> None:
    click.echo(json.dumps(plain(summary), indent=2))


def _console(width: int = 110) -> Console:
    """As wide as the terminal, or `width` if there is none; words are neither markup nor coloured."""
    return Console(width=None if Console().is_terminal else width, highlight=False, markup=False)


def _table(rows: Sequence[Sequence[str]]) -> Table:
    """The titles, on two lines if they have two words, and a line for each row."""
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


def _as_changes(point: Mapping[str, Any]) -> str:
    """What to type to get this point again."""
    words = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in point.items())
    return " ".join(f"--set {shlex.quote(word)}" for word in words)


def _scored(record: Mapping[str, Any], metric: str) -> str:
    """The score on test rows; on a stream without any, that of the examples met so far."""
    tested, met = (f"{place}.personal.{metric}.mean" for place in ("test", "online"))
    there = record.get(tested)
    return met if met in record and (there is None or not math.isfinite(there)) else tested


def _score(record: Mapping[str, Any]) -> str:
    """The latest scores and the speed, as the progress bar shows them."""
    scores = [f"{metric} {score(record[key])}" for metric in ("loss", "accuracy")
              if (key := _scored(record, metric)) in record]
    speed = record.get("updates_per_second")
    return ", ".join([*scores, *([f"{speed:,.0f} clients/s" if speed < 1e4 else f"{speed / 1e3:,.0f}k clients/s"]
                                 if speed else [])])
