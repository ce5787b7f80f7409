"""The style sheet of a report. Colours are variables, so that figures follow when the reader prefers dark pages."""

from __future__ import annotations

import re

from cantons.reporting.style import NAMES, PALETTE

RULES = """
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 66rem; background: var(--paper); color: var(--ink);
       font: 1rem/1.55 "Helvetica Neue", Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; font-weight: 600; margin: 0 0 .6rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; font-weight: 600; margin: 2.6rem 0 .5rem; padding-top: .9rem;
     border-top: 1px solid var(--grid); }
p { max-width: 46rem; margin: .4rem 0 .8rem; overflow-wrap: anywhere; }
.lead { font-size: 1.06rem; }
.note, figcaption { color: var(--faint); font-size: .9rem; }
.notice { border-left: 3px solid var(--notice); padding: .1rem 0 .1rem .8rem; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); gap: 0 2rem;
           margin: 1rem 0 .6rem; }
.squares { grid-template-columns: repeat(auto-fill, minmax(min(100%, 14.4rem), 1fr)); }
.squares figure { max-width: 17rem; }
.squares figcaption { font-size: .82rem; }
/* Titles, drawings and captions of neighbours stand on the same lines, however long their words are. */
figure { margin: 0 0 1.4rem; max-width: 34rem; break-inside: avoid; display: grid; grid-row: span 3;
         grid-template-rows: subgrid; align-items: start; }
figure h3 { font-size: .95rem; font-weight: 600; margin: 0 0 .2rem; align-self: end; overflow-wrap: anywhere; }
figure svg { display: block; width: 100%; height: auto; overflow: visible; }
figure svg text { font-family: inherit !important; }
.table { container-type: inline-size; margin: .6rem 0; font-size: .92rem; --gap: 1.6em; }
/* As high as a line where the table is wider than the page, else of no height: 999 makes a switch of a difference. */
.hint { --wide: calc(var(--letters) * .56em + var(--columns) * var(--gap)); margin: 0; max-width: none;
        overflow: hidden; white-space: nowrap; color: var(--notice);
        max-height: clamp(0px, (var(--wide) - 100cqw) * 999, 1.6em); }
/* A shadow at the right edge as long as there is more to see; the paper that hides it moves with the table. */
.scroll { overflow-x: auto; background: linear-gradient(to left, var(--paper) 40%, transparent) right / 3rem 100%
          no-repeat local, linear-gradient(to left, var(--shade), transparent) right / 1rem 100% no-repeat scroll; }
.scroll:focus-visible { outline: 2px solid var(--axis); }
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .34rem 0 .34rem var(--gap); white-space: nowrap;
         border-bottom: 1px solid var(--grid); }
th { white-space: normal; }
thead th { font-weight: 600; border-bottom: 1px solid var(--ink); border-top: 1.5px solid var(--ink);
           vertical-align: bottom; }
tbody tr:last-child > * { border-bottom: 1.5px solid var(--ink); }
th:first-child { text-align: left; padding-left: 0; font-weight: 400; position: sticky; left: 0;
                 background: var(--paper); min-width: 8em; }
thead th:first-child { font-weight: 600; }
.options td { white-space: normal; min-width: 4em; }
.options tbody > tr > * { vertical-align: top; }
.options tbody th { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .9em; }
.swatch { display: inline-block; width: 1.3em; vertical-align: .28em; margin-right: .5em; }
details { margin: .5rem 0; }
summary { cursor: pointer; }
@media (max-width: 50rem) {
  body { padding: 1.5rem 1rem 3rem; }
  .table { font-size: .84rem; --gap: 1em; }
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


def themed(svg: str) -> str:
    """The same drawing, with the names of its colours in place of the colours."""
    def rename(tag: re.Match[str]) -> str:
        return re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda found: f"var(--{NAMES[found[0]]})", tag[0])

    return re.sub(r"<[^>]*>", rename, svg)  # in tags only: words between them may look like colours


def _colours(which: int) -> str:
    return " ".join(f"--{name}: {pair[which]};" for name, pair in PALETTE.items())


# Paper is white, whatever the reader's screen is.
SHEET = (f":root {{ color-scheme: light; {_colours(0)} }}\n"
         f"@media screen and (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {_colours(1)} }} }}{RULES}")
