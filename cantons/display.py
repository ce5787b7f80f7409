"""How values look where they are printed or shown in a notebook: a title and a small table, never arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from itertools import zip_longest

Table = Sequence[Sequence[str]]
LONGEST = 120  # letters of a cell


def score(value: float, beside: float | None = None) -> str:
    """A number with about as many digits whatever its size; with the decimals of `beside`, if it stands next to that.

    >>> score(0.9716), score(31.42), score(4349.6), score(2.5e9)
    ('0.972', '31.42', '4,350', '2.5e+09')
    >>> score(147.7, beside=4349.6), score(-1e-9)
    ('148', '0.000')
    """
    size = abs(value if beside is None else beside)
    if size >= 1e6:
        return f"{value:z.3g}"
    return f"{value:z,.{3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0}f}"


def text_table(rows: Table) -> str:
    """Rows of cells in columns, of which the first is flush left; a row of two cells may go on to the end of the line.

    >>> print(text_table([["", "personal", "shared"], ["test accuracy", "0.961", "0.93"], ["folder", "results/first"]]))
                   personal  shared
    test accuracy     0.961    0.93
    folder         results/first
    """
    wide = [row for row in rows if len(row) > 2] or rows
    first = max(len(row[0]) for row in rows)
    others = [max(map(len, column)) for column in zip_longest(*(row[1:] for row in wide), fillvalue="")]
    lines = []
    for name, *cells in rows:
        shown = cells if len(cells) < 2 else [
            cell.rjust(width) for cell, width in zip(cells, others, strict=False)]
        lines.append("  ".join([name.ljust(first), *shown]).rstrip())
    return "\n".join(lines)


def html_table(rows: Table) -> str:
    """The same rows as an HTML table; every word is escaped."""
    width = max(map(len, rows))
    body = []
    for name, *cells in rows:
        span = f' colspan="{width - 1}"' if len(cells) == 1 < width - 1 else ""
        align = "left" if len(cells) == 1 else "right"
        body.append(f'<tr><th style="text-align: left">{escape(name)}</th>' + "".join(
            f'<td{span} style="text-align: {align}">{escape(cell)}</td>' for cell in cells) + "</tr>")
    return f"<table><tbody>\n{chr(10).join(body)}\n</tbody></table>"


def titled_table(title: str, rows: Table, *below: str) -> str:
    """A title, an HTML table, and sentences below it."""
    return f"<p>{escape(title)}</p>{html_table(rows) if rows else ''}" + "".join(
        f"<p>{escape(sentence)}</p>" for sentence in below)


class Displayed(ABC):
    """A value that prints as a title and a table: `_display` says what is in them."""

    @abstractmethod
    def _display(self) -> tuple[str, Table]: ...

    def __repr__(self) -> str:
        title, rows = self._short()
        return f"{title}\n{text_table(rows)}" if rows else title

    def _repr_html_(self) -> str:
        return titled_table(*self._short())

    def _short(self) -> tuple[str, Table]:
        """Names of clients and of data are the user's, and may be of any length."""
        title, rows = self._display()
        return shorten(title), [[shorten(cell) for cell in row] for row in rows]


def shorten(words: str) -> str:
    """One line of at most LONGEST letters."""
    line = " ".join(words.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST - 3]}..."
