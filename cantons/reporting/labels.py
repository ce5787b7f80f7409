"""Names beside the ends of lines, where the eye looks for them; a legend, where there are too many for that."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cantons.reporting.style import darker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDTH = 24  # letters in a line
HEIGHT = 0.07  # of a line, as a share of the axes' height
MARGIN = 0.85  # lines that end to the right of this share of the axes have their names in the margin
MOST = 8  # names beside ends: of more, one cannot see any more which end is whose


class End(NamedTuple):
    """The last point of a line, as the data has it and as shares of the axes."""

    label: str
    line: Line2D
    point: tuple[float, float]
    across: float
    height: float


def wrapped(label: str) -> str:
    return fill(label, WIDTH)


def label_ends(axes: Axes, lines: Sequence[Line2D], labels: Sequence[str]) -> None:
    """Write each line's name beside its last point: in the margin, or inside if the line ends early.

    Where there is no room for all of them, they are a legend beside the axes, in the order of the ends.
    """
    ends = []
    for line, label in zip(lines, labels, strict=True):
        points = np.asarray(line.get_xydata())
        points = points[np.isfinite(points).all(axis=1)]
        if len(points):
            x, y = points[-1]
            axes.plot([x], [y], "o", markersize=3, color=line.get_color(), clip_on=False)
            place = (axes.transScale + axes.transLimits).transform((x, y))
            ends.append(End(wrapped(label), line, (x, y), *place))
    gap = HEIGHT * max((end.label.count("\n") + 1 for end in ends), default=1)
    if len(ends) <= MOST and gap * (len(ends) - 1) <= 1:
        _write(axes, ends, gap)
    else:
        _list(axes, ends)


def _write(axes: Axes, ends: Sequence[End], gap: float) -> None:
    """No two names are at the same height: one that begins inside may reach into the margin."""
    for end, height in zip(ends, apart([end.height for end in ends], gap), strict=True):
        ink, across = _ink(end), 1.0 if end.across > MARGIN else end.across
        axes.annotate(end.label, end.point, (across + 0.035, height), textcoords=axes.transAxes, va="center",
                      color=ink, annotation_clip=False,
                      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
                      arrowprops={"arrowstyle": "-", "color": ink, "linewidth": 0.6, "shrinkA": 2, "relpos": (0, 0.5)})


def _list(axes: Axes, ends: Sequence[End]) -> None:
    ordered = sorted(ends, key=lambda end: -end.height)
    axes.legend([end.line for end in ordered], [end.label for end in ordered], labelcolor=list(map(_ink, ordered)),
                loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0, frameon=False, handlelength=1.8,
                labelspacing=0.35)


def _ink(end: End) -> str:
    return darker(str(end.line.get_color()))


def make_room(figure: Figure) -> None:
    """Make a figure of one plot as high as its legend takes, if it has one."""
    (axes,) = figure.axes
    legend = axes.get_legend()
    if legend is None:
        return
    legend.set_in_layout(False)  # it would push the axes together
    figure.draw_without_rendering()
    missing = legend.get_window_extent().height - axes.get_window_extent().height
    figure.set_figheight(figure.get_figheight() + max(0, missing) / figure.dpi)
    legend.set_in_layout(True)


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
