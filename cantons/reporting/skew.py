"""Who has how much of what: a picture of a federation's labels."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cantons.errors import InputError
from cantons.files import check_replaceable, writing
from cantons.reporting.style import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 60  # clients that can be told apart in one picture


def skew_figure(counts: np.ndarray) -> Figure:
    """One bar per client, as high as its examples and coloured by label; many clients are thinned out by size."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    by_size = np.argsort(-counts.sum(axis=1), kind="stable")
    shown = counts[by_size[np.linspace(0, len(counts) - 1, min(MOST, len(counts))).round().astype(int)]]
    figure = Figure(figsize=(7, 3.2))
    axes = figure.subplots()
    below = np.zeros(len(shown))
    for label, heights in enumerate(shown.T):
        axes.bar(np.arange(len(shown)), heights, 0.9, bottom=below, label=str(label),
                 color=colormaps["viridis"](label / max(1, counts.shape[1] - 1)))
        below += heights
    thinned = f" ({len(shown)} of {len(counts)} shown)" if len(shown) < len(counts) else ""
    axes.set(xlabel=f"clients, largest first{thinned}", ylabel="training examples", xticks=[])
    if counts.shape[1] <= 26:
        axes.legend(title="label", ncols=1 + counts.shape[1] // 13, fontsize=7, frameon=False, loc="upper left",
                    bbox_to_anchor=(1, 1))
    return figure


def write_skew(counts: np.ndarray, out: Path, overwrite: bool = False) -> Path:
    """Draw it to a file; the ending (.png, .svg, .pdf) says which kind."""
    from matplotlib import style

    check_replaceable(out, overwrite)
    kind = out.suffix.removeprefix(".") or "png"
    drawn = io.BytesIO()
    try:
        with style.context([FIGURES, {"figure.facecolor": "white"}], after_reset=True):
            skew_figure(counts).savefig(drawn, format=kind)
    except ValueError as error:
        raise InputError(f"cannot draw to {out}: {error}.") from error
    with writing(out) as file:
        file.write(drawn.getvalue())
    return out
