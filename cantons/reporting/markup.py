"""The few HTML elements a report is made of; every word is escaped here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from cantons.reporting.style import colour, dashes
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
    return f"<figure>{element('h3', title)}{svg(draw, title)}{below}</figure>\n"


def gallery(figures: Sequence[str], kind: str = "") -> str:
    """Figures side by side, as many as there is room for."""
    return f'<div class="gallery {kind}">\n{"".join(figures)}</div>\n' if figures else ""


def table(rows: Sequence[Sequence[str]], swatches: bool = False) -> str:
    """A table whose first row has the titles; with `swatches`, the others begin with the colour of their method."""
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in rows[0])
    body = []
    for place, (name, *values) in enumerate(rows[1:]):
        line = f"border-top: 3px {dashes(place)} {colour(place)}"
        swatch = f'<span class="swatch" style="{line}"></span>' if swatches else ""
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        body.append(f'<tr><th scope="row">{swatch}{escape(name)}</th>{cells}</tr>\n')
    return (f'<div class="scroll"><table>\n<thead><tr>{titles}</tr></thead>\n<tbody>\n{"".join(body)}</tbody>\n'
            "</table></div>\n")


def folded(title: str, text: str) -> str:
    """Preformatted text that opens on a click."""
    return f"<details><summary>{escape(title)}</summary>{element('pre', text)}</details>\n"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
