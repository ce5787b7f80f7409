"""Axes to draw in that a notebook shows by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cantons.optional import optional_import

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def new_axes() -> Axes:
    """Axes in a new figure of pyplot's, with room for names beside lines."""
    pyplot = optional_import("matplotlib.pyplot", "", "plot()")
    return pyplot.subplots(layout="constrained")[1]
