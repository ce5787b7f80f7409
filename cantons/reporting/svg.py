"""From a drawing function to an SVG element that can stand in a page beside others, or to files."""

from __future__ import annotations

import io
import re
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cantons.files import writing
from cantons.reporting.style import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNSAID = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # the same figure has the same bytes
_LOCK = threading.Lock()  # matplotlib's settings belong to the whole process
_KEPT: ContextVar[list[Drawing] | None] = ContextVar("kept", default=None)


class Drawing(NamedTuple):
    """A figure that a page shows, to be drawn again."""

    title: str
    draw: Callable[[], Figure]


@contextmanager
def keep_drawings() -> Iterator[list[Drawing]]:
    """A list of the figures that are drawn for pages in this block."""
    found: list[Drawing] = []
    before = _KEPT.set(found)
    try:
        yield found
    finally:
        _KEPT.reset(before)


def write_figure(draw: Callable[[], Figure], path: Path) -> list[Path]:
    """Write a figure as path.svg and path.png, on white; the two paths."""
    places = {kind: path.with_name(f"{path.name}.{kind}") for kind in ("svg", "png")}
    with _drawing():
        figure = draw()
        for kind, place in places.items():
            with writing(place) as file:
                figure.savefig(file, format=kind, facecolor="white", metadata=UNSAID if kind == "svg" else None)
    return list(places.values())


def svg(draw: Callable[[], Figure], name: str) -> str:
    """Draw with the report's own settings, whatever the user's are; `name` is what a screen reader says."""
    kept = _KEPT.get()
    if kept is not None:
        kept.append(Drawing(name, draw))
    file = io.StringIO()
    with _drawing():
        draw().savefig(file, format="svg", metadata=UNSAID)
    text = file.getvalue()
    opening, _, content = text[text.index("<svg"):].partition(">")
    opening = re.sub(r'(width|height|version|xmlns)="[^"]*"\s*', "", opening)  # the style sheet says how large it is
    # Figures share a page, so every id must belong to one of them.
    content = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{zlib.crc32(text.encode()):08x}-", content)
    return f'{opening} role="img" aria-label="{escape(name)}">{content}'


@contextmanager
def _drawing() -> Iterator[None]:
    """The report's own settings, for this thread alone."""
    from matplotlib import style

    with _LOCK, style.context([FIGURES], after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # whoever looks will have a font for it
        yield
