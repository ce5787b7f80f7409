"""What the terminal shows: progress while a run goes on, and a table at its end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from cantons.data import Federation, label_counts, label_skew
from cantons.errors import InputError
from cantons.reporting import Comparison, Sweep
from cantons.reporting.skew import write_skew
from cantons.reporting.text import WIDTH, print_comparison, print_sweep
from cantons.study.describe import Description
from cantons.study.plain import plain

DEMO_TEXT = """\
Handwritten digits over 50 clients. A third of the classes is merged into one, and every client must tell
that one from a digit of its own, with a handful of examples: alone, with all data in one place, or federated.
"""


def comparison(found: Comparison) -> None:
    """One row per method on the named test set, how they differ, and what follows."""
    print_comparison(_console(), found)


def sweep(found: Sweep) -> None:
    """One row per point, the best first; below it why some have no number, and what is best at an edge."""
    print_sweep(_console(), found.by, found.metric, found.outcomes, found.seeds)
    for point, failure in found.failures:
        click.echo(f"{_as_changes(point)}: {failure}")
    if not found.outcomes[0].failure:
        click.echo(f"best: {_as_changes(found.best)}")
    for sentence in found.edges:
        click.echo(sentence)


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


def _console(width: int = WIDTH) -> Console:
    """As wide as the terminal, or `width` if there is none; words are neither markup nor coloured."""
    return Console(width=None if Console().is_terminal else width, highlight=False, markup=False)


def _as_changes(point: Mapping[str, Any]) -> str:
    """What to type to get this point again."""
    words = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in point.items())
    return " ".join(f"--set {shlex.quote(word)}" for word in words)
