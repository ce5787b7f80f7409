"""The colours of reports, on light pages and on dark ones, and the settings of their figures."""

from __future__ import annotations

# Okabe and Ito's colours, which colour-blind readers can tell apart, without the pale yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
ON_DARK = ("#5B9FF0", "#FF8246", "#2FC79A", "#E79CC6", "#F2BC4B", "#9BDCFF", "#BDBDBD")  # the same hues, lighter
DASHES = ("solid", "dashed", "dotted")  # for the methods beyond the last colour

INK, FAINT, GRID, AXIS = "#222222", "#5F6368", "#E4E6E8", "#B8BCC0"


def darker(colour: str) -> str:
    """A colour for words, which need more contrast than lines.

    >>> darker("#E69F00")
    '#AC7700'
    """
    return "#" + "".join(f"{int(colour[place : place + 2], 16) * 3 // 4:02X}" for place in (1, 3, 5))


# Every colour of a page: its name in the style sheet, and what it is on a light page and on a dark one.
PALETTE = {
    "paper": ("#FFFFFF", "#16181B"), "ink": (INK, "#E4E6E8"), "faint": (FAINT, "#A7ADB3"), "grid": (GRID, "#2D3136"),
    "axis": (AXIS, "#686E74"), "block": ("#F6F7F8", "#202327"), "shade": ("#CACED2", "#4C5258"),
    "notice": ("#C85200", "#FF9A5A"), "faint-word": (darker(FAINT), "#C3C8CC"),
    **{f"line-{place}": pair for place, pair in enumerate(zip(COLOURS, ON_DARK, strict=True))},
    **{f"word-{place}": (darker(line), bright) for place, (line, bright) in enumerate(
        zip(COLOURS, ON_DARK, strict=True))},
}
NAMES = {light.lower(): name for name, (light, _) in PALETTE.items()}

FIGURES = {
    "svg.fonttype": "none",  # text stays text: searchable, and set in the page's own font
    "text.parse_math": False,  # a dollar sign in a client's name is a dollar sign
    "font.size": 9, "text.color": INK, "axes.labelcolor": FAINT, "axes.edgecolor": AXIS,
    "axes.labelsize": 9, "xtick.labelsize": 9, "ytick.labelsize": 9, "xtick.color": AXIS, "ytick.color": AXIS,
    "xtick.labelcolor": FAINT, "ytick.labelcolor": FAINT, "axes.linewidth": 0.8, "xtick.major.width": 0.8,
    "ytick.major.width": 0.8, "xtick.minor.size": 0, "ytick.minor.size": 0, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": GRID, "grid.linewidth": 0.7,
    "axes.axisbelow": True, "lines.linewidth": 1.6, "lines.solid_capstyle": "round", "axes.ymargin": 0.06,
    "figure.facecolor": "none", "axes.facecolor": "none", "font.family": "DejaVu Sans", "savefig.dpi": 200,
    "svg.hashsalt": "cantons", "figure.constrained_layout.use": True,
}


def colour(place: int) -> str:
    """The colour of the method in this place; beyond the last they come again, with other dashes."""
    return COLOURS[place % len(COLOURS)]


def dashes(place: int) -> str:
    """The dashes of the method in this place, by a name that matplotlib and CSS share."""
    return DASHES[place // len(COLOURS) % len(DASHES)]
