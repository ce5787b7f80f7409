"""What the terminal shows: progress while a run goes on, and a table at its end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cantons.data import Federation, label_counts, label_skew
from cantons.errors import InputError
from cantons.report.collect import collect
from cantons.report.skew import write_skew
from cantons.report.table import cells, comparison_rows
from cantons.study.callbacks import Callback
from cantons.study.describe import Description
from cantons.study.folder import plain
from cantons.study.sweep import Outcome

DEMO_TEXT = """\
Handwritten digits over 50 clients. A third of the classes is merged into one, and every client must tell
that one from a digit of its own, with a handful of examples: alone, with all data in one place, or federated.
"""


class Watcher(Callback):
    """A progress bar with the latest score, and sentences above it."""

    def __init__(self, progress: Progress, quiet: bool):
        self._progress, self._quiet = progress, quiet
        self._bar: Any = None

    def started(self, study: Mapping[str, Any]) -> None:
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
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
               TextColumn("{task.fields[score]}"))
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        yield Watcher(progress, quiet)


def comparison(folders: Sequence[Path]) -> None:
    """One row per method on the named test set, with the spread over seeds and what travelled."""
    groups = collect(folders)
    rows = comparison_rows(groups)
    titles, *lines = cells(rows)
    test_set = groups[0].study["data"]["test_set"]
    shown = Table(title=f"{rows[0]['metric']} on the test set: {test_set}", title_justify="left")
    for place, title in enumerate(titles):
        shown.add_column(title, justify="right" if place else "left")
    for line in lines:
        shown.add_row(*line)
    Console(width=None if Console().is_terminal else 110).print(shown)


def sweep(metric: str, outcomes: Sequence[Outcome], seeds: int) -> None:
    """One row per point, the best by validation first; points without a number say why."""
    shown = Table(title=f"personal {metric}, mean of {seeds} seeds; best by validation first", title_justify="left")
    for key in outcomes[0].point:
        shown.add_column(key)
    for title in ("validation", "test"):
        shown.add_column(title, justify="right")
    shown.add_column("")
    for place, outcome in enumerate(outcomes):
        spread = "" if math.isnan(outcome.spread) else f" ± {outcome.spread:.3f}"
        numbers = ("-", "-") if outcome.failure else (f"{outcome.validation:.3f}{spread}", f"{outcome.test:.3f}")
        note = outcome.failure or ("best" if place == 0 else "")
        shown.add_row(*map(str, outcome.point.values()), *numbers, note)
    Console(width=None if Console().is_terminal else 110).print(shown)


def parts(kind: str, known: Mapping[str, Callable[..., Any]]) -> None:
    click.secho(kind, bold=True)
    for name, function in sorted(known.items()):
        click.echo(f"  {name:<16} {(function.__doc__ or '').strip().splitlines()[0]}")


def description(described: Description) -> None:
    click.secho(f"{described.kind} {described.name}", bold=True)
    click.echo(f"{described.text}\n\nfrom its file: {described.source}\n")
    shown = Table("option", "default", "type", box=None, pad_edge=False)
    for option in described.options:
        shown.add_row(option.name, option.default, option.type)
    console = Console(width=None if Console().is_terminal else 110, highlight=False)
    console.print(shown)
    if described.kind == "algorithm":
        click.secho("\nwhat travels, for a network 64-16-2 whose last layer (layer1) is private", bold=True)
        for way, leaves in (("down", described.down), ("up", described.up)):
            for path, shape, kind in leaves or [("nothing", (), "")]:
                click.echo(f"  {way:<5} {path:<28} {' x '.join(map(str, shape)) or ('1' if kind else ''):<10} {kind}")


def federation(data: Federation, plot: Path | None) -> None:
    click.secho("the data, made with these options", bold=True)
    click.echo(data.describe())
    if data.classes is not None:
        click.echo(f"label skew: {label_skew(data):.2f} (mean total variation from everybody's labels; 0: all alike)")
        if plot is not None:
            click.echo(f"plot: {write_skew(label_counts(data), plot)}")
    elif plot is not None:
        raise InputError(f"{data.name} has numbers for targets, so there are no labels to plot.")


def as_json(summary: Mapping[str, Any]) -> None:
    click.echo(json.dumps(plain(summary), indent=2))


def _score(record: Mapping[str, Any]) -> str:
    """The latest scores and the speed, as the progress bar shows them."""
    scores = [f"{metric} {record[key]:.3f}" for metric in ("loss", "accuracy")
              if (key := f"test.personal.{metric}.mean") in record]
    speed = record.get("updates_per_second")
    return ", ".join([*scores, *([f"{speed:,.0f} clients/s"] if speed else [])])
