"""From a drawing function to an SVG element that can stand in a page beside others."""

from __future__ import annotations

import io
import re
import threading
import warnings
import zlib
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from cantons.reporting.style import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOCK = threading.Lock()  # matplotlib's settings belong to the whole process


def svg(draw: Callable[[], Figure], name: str) -> str:
    """Draw with the report's own settings, whatever the user's are; `name` is what a screen reader says."""
    from matplotlib import style

    file = io.StringIO()
    with _LOCK, style.context([FIGURES], after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the browser will have a font for it
        draw().savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = file.getvalue()
    opening, _, content = text[text.index("<svg"):].partition(">")
    opening = re.sub(r'(width|height|version|xmlns)="[^"]*"\s*', "", opening)  # the style sheet says how large it is
    # Figures share a page, so every id must belong to one of them.
    content = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{zlib.crc32(text.encode()):08x}-", content)
    return f'{opening} role="img" aria-label="{escape(name)}">{content}'
