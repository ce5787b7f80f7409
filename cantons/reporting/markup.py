"""The few HTML elements a report is made of; every word is escaped here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from cantons.reporting.sheet import themed
from cantons.reporting.style import COLOURS, dashes
from cantons.reporting.svg import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def element(tag: str, words: str, kind: str = "") -> str:
    """One element with text inside.

    >>> element("p", "a < b", "note")
    '<p class="note">a &lt; b</p>'
    """
    return f"<{tag}{_class(kind)}>{escape(words)}</{tag}>"


def figure(title: str, draw: Callable[[], Figure], caption: str = "") -> str:
    """A drawing under its title."""
    below = element("figcaption", caption) if caption else ""
    return f"<figure>{element('h3', title)}{themed(svg(draw, title))}{below}</figure>\n"


def gallery(figures: Sequence[str], kind: str = "") -> str:
    """Figures side by side, as many as there is room for."""
    return f'<div class="gallery {kind}">\n{"".join(figures)}</div>\n' if figures else ""


def table(rows: Sequence[Sequence[str]], name: str = "table", swatches: bool = False, kind: str = "") -> str:
    """A table whose first row has the titles; with `swatches`, the others begin with the colour of their method.

    It can be scrolled sideways, by keys too, and says so where it is wider than the page. Screen readers say `name`.
    """
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in rows[0])
    body = []
    for place, (first, *values) in enumerate(rows[1:]):
        line = f"border-top: 3px {dashes(place)} var(--line-{place % len(COLOURS)})"
        swatch = f'<span class="swatch" style="{line}"></span>' if swatches else ""
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        body.append(f'<tr><th scope="row">{swatch}{escape(first)}</th>{cells}</tr>\n')
    width = f"--letters: {_letters(rows)}; --columns: {len(rows[0])}"
    return (f'<div class="table"><p class="hint" style="{width}">↔ {len(rows[0])} columns: scroll sideways</p>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}"><table{_class(kind)}>\n'
            f'<thead><tr>{titles}</tr></thead>\n<tbody>\n{"".join(body)}</tbody>\n</table></div></div>\n')


def _letters(rows: Sequence[Sequence[str]]) -> int:
    """How many letters a line of the table has at least: titles and names may be broken between words, numbers not."""
    first, *columns = zip(*rows, strict=True)
    longest = [max(map(len, " ".join(first).split()), default=0)]
    longest += [max(max(map(len, column[0].split()), default=0), *map(len, column[1:]), 0) for column in columns]
    return sum(longest)


def folded(title: str, content: str) -> str:
    """Markup that opens on a click."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>\n"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
