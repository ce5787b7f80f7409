"""Names beside the ends of lines, where the eye looks for them, instead of a legend."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cantons.reporting.style import darker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

WIDTH = 24  # letters in a line
HEIGHT = 0.07  # of a line, as a share of the axes' height
MARGIN = 0.85  # lines that end to the right of this share of the axes have their names in the margin


class End(NamedTuple):
    """The last point of a line, as the data has it and as shares of the axes."""

    label: str
    colour: str
    point: tuple[float, float]
    across: float
    height: float


def wrapped(label: str) -> str:
    return fill(label, WIDTH)


def label_ends(axes: Axes, lines: Sequence[Line2D], labels: Sequence[str]) -> None:
    """Write each line's name beside its last point: in the margin, or inside if the line ends early."""
    ends = []
    for line, label in zip(lines, labels, strict=True):
        points = np.asarray(line.get_xydata())
        points = points[np.isfinite(points).all(axis=1)]
        if len(points):
            x, y = points[-1]
            axes.plot([x], [y], "o", markersize=3, color=line.get_color(), clip_on=False)
            place = (axes.transScale + axes.transLimits).transform((x, y))
            ends.append(End(wrapped(label), str(line.get_color()), (x, y), *place))
    _write(axes, [end._replace(across=1.0) for end in ends if end.across > MARGIN])
    _write(axes, [end for end in ends if end.across <= MARGIN])


def _write(axes: Axes, ends: Sequence[End]) -> None:
    if not ends:
        return
    gap = HEIGHT * max(end.label.count("\n") + 1 for end in ends)
    for end, height in zip(ends, apart([end.height for end in ends], gap), strict=True):
        ink = darker(end.colour)
        axes.annotate(end.label, end.point, (end.across + 0.035, height), textcoords=axes.transAxes, va="center",
                      color=ink, annotation_clip=False,
                      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
                      arrowprops={"arrowstyle": "-", "color": ink, "linewidth": 0.6, "shrinkA": 2, "relpos": (0, 0.5)})


def apart(wanted: Sequence[float], gap: float) -> np.ndarray:
    """Move places between 0 and 1 as little as it takes to leave `gap` between any two; of equals the first is highest.

    >>> apart([0.5, 0.9, 0.5], gap=0.25)
    array([0.625, 0.9  , 0.375])
    """
    from sklearn.isotonic import isotonic_regression

    places = np.array(wanted)
    order = np.lexsort((-np.arange(len(places)), places))
    steps = gap * np.arange(len(places))
    # Least squares under an order is isotonic regression.
    places[order] = isotonic_regression(places[order] - steps, y_min=0, y_max=max(0, 1 - steps[-1])) + steps
    return places
