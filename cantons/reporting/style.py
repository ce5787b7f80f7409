"""How reports look: the colours of the methods, the figures' settings, the page's style sheet."""

from __future__ import annotations

# Okabe and Ito's colours, which colour-blind readers can tell apart, without the pale yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
DASHES = ("solid", "dashed", "dotted")  # for the methods beyond the last colour

INK, FAINT, GRID = "#222222", "#5F6368", "#E4E6E8"

FIGURES = {
    "svg.fonttype": "none",  # text stays text: searchable, and set in the page's own font
    "text.parse_math": False,  # a dollar sign in a client's name is a dollar sign
    "font.size": 9, "text.color": INK, "axes.labelcolor": FAINT, "axes.edgecolor": "#B8BCC0",
    "axes.labelsize": 9, "xtick.labelsize": 9, "ytick.labelsize": 9, "xtick.color": "#B8BCC0", "ytick.color": "#B8BCC0",
    "xtick.labelcolor": FAINT, "ytick.labelcolor": FAINT, "axes.linewidth": 0.8, "xtick.major.width": 0.8,
    "ytick.major.width": 0.8, "xtick.minor.size": 0, "ytick.minor.size": 0, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": GRID, "grid.linewidth": 0.7,
    "axes.axisbelow": True, "lines.linewidth": 1.6, "lines.solid_capstyle": "round", "axes.ymargin": 0.06,
    "figure.facecolor": "none", "axes.facecolor": "none", "font.family": "DejaVu Sans", "savefig.dpi": 200,
    "svg.hashsalt": "cantons",    "figure.constrained_layout.use": True,
}

SHEET = """
:root { color-scheme: light; }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 66rem; background: #fff; color: #222;
       font: 1rem/1.55 "Helvetica Neue", Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; font-weight: 600; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; font-weight: 600; margin: 2.6rem 0 .5rem; padding-top: .9rem; border-top: 1px solid #d9dcdf; }
p { max-width: 46rem; margin: .4rem 0 .8rem; }
.lead { font-size: 1.06rem; }
.note, figcaption, caption { color: #5f6368; font-size: .9rem; }
.notice { border-left: 3px solid #c85200; padding: .1rem 0 .1rem .8rem; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); gap: 1.6rem 2rem;
           margin: 1rem 0 1.8rem; }
.squares { grid-template-columns: repeat(auto-fill, minmax(min(100%, 14.4rem), 1fr)); }
.squares figure { max-width: 17rem; }
.squares figcaption { font-size: .82rem; }
figure { margin: 0; max-width: 34rem; break-inside: avoid; }
figure h3 { font-size: .95rem; font-weight: 600; margin: 0 0 .2rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: inherit !important; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; margin: .6rem 0; }
caption { text-align: left; padding-bottom: .4rem; }
th, td { text-align: right; padding: .34rem 0 .34rem 1.5rem; white-space: nowrap; border-bottom: 1px solid #e4e6e8; }
thead th { font-weight: 600; border-bottom: 1px solid #222; border-top: 1.5px solid #222; vertical-align: bottom; }
tbody tr:last-child > * { border-bottom: 1.5px solid #222; }
th:first-child, td:first-child { text-align: left; padding-left: 0; font-weight: 400; }
thead th:first-child { font-weight: 600; }
.swatch { display: inline-block; width: 1.3em; vertical-align: .28em; margin-right: .5em; }
details { margin: .5rem 0; }
summary { cursor: pointer; }
pre { font: .8rem/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; background: #f6f7f8;
      padding: .8rem 1rem; overflow-x: auto; }
code { font: .88em ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
@media (max-width: 50rem) {
  table { font-size: .82rem; }
  th, td { padding-left: .75rem; }
}
@media print {
  html { font-size: 12px; }
  body { padding: 0; max-width: none; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
  .gallery { grid-template-columns: 1fr 1fr; }
  .squares { grid-template-columns: repeat(4, 1fr); }
  .swatch { print-color-adjust: exact; }
}
"""


def colour(place: int) -> str:
    """The colour of the method in this place; beyond the last they come again, with other dashes."""
    return COLOURS[place % len(COLOURS)]


def dashes(place: int) -> str:
    """The dashes of the method in this place, by a name that matplotlib and CSS share."""
    return DASHES[place // len(COLOURS) % len(DASHES)]
