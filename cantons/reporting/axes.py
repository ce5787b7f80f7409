"""Axes to draw in that a notebook shows by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cantons.optional import optional_import

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure() -> tuple[Figure, Axes]:
    """A new figure of pyplot's with room for names beside lines, and its axes."""
    pyplot = optional_import("matplotlib.pyplot", "", "plot()")
    return pyplot.subplots(layout="constrained")
