"""Tables as LaTeX, CSV and Markdown and figures as SVG and PNG, for papers and slides."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from cantons.errors import InputError
from cantons.files import begins_with, explain, make_folder, write_text
from cantons.reporting.findings import Findings
from cantons.reporting.paired import difference_cells
from cantons.reporting.svg import Drawing, write_figure
from cantons.reporting.table import cells
from cantons.reporting.text import comparison_title
from cantons.study.plain import plain

CONTENTS = "contents.json"  # by which we know such a folder again, and what in it is ours
GENERATOR = {"generator": "cantons"}
LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--",
         "\N{NO-BREAK SPACE}": "~", "“": "``", "”": "''", "<": r"$<$", ">": r"$>$",
         **{sign: f"\\{sign}" for sign in "&%$#_{}"}}


def check_saved(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds anything else, before much work is done for it."""
    with explain(folder):
        ours = (folder / CONTENTS).is_file() and begins_with(b'"generator": "cantons"')(folder / CONTENTS)
        if not overwrite and not ours and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and was not written by this command; choose another folder, or replace "
                             "files in it with --overwrite (in Python: overwrite=True).")


def save(found: Findings, drawings: Sequence[Drawing], folder: Path) -> list[Path]:
    """Write every table and every figure to a folder that was checked; the files.

    Those of an earlier call that are not written any more are removed.
    """
    make_folder(folder)
    before = _contents(folder)
    # First: a kill leaves a folder that we know again.
    write_text(folder / CONTENTS, json.dumps({**GENERATOR, "files": before}) + "\n")
    files = _write_table(folder / "comparison", found.rows, cells(found.rows), comparison_title(found.groups))
    if found.paired:
        files += _write_table(folder / "differences", found.differences, difference_cells(found.paired),
                              f"{found.explanation} {found.conclusion}")
    for number, drawing in enumerate(drawings, 1):
        files += write_figure(drawing.draw, folder / f"{number:02d}-{_slug(drawing.title)}")
    names = [file.name for file in files]
    for name in before:
        if name not in names and Path(name).name == name:
            with explain(folder / name):
                (folder / name).unlink(missing_ok=True)
    said = {**GENERATOR, "files": names, "sentences": found.sentences}
    write_text(folder / CONTENTS, json.dumps(said, indent=2, ensure_ascii=False) + "\n")
    return files


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Numbers with all their digits; nothing where there is none."""
    file = StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain(list(rows)))
    return file.getvalue()


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    r"""
    >>> print(as_markdown([["method", "personal"], ["a|b", "0.5 ± 0.1"]]))
    | method | personal |
    | :--- | ---: |
    | a\|b | 0.5 ± 0.1 |
    """
    lines = ["| " + " | ".join(cell.replace("\\", r"\\").replace("|", r"\|").replace("\n", " ") for cell in row) + " |"
             for row in rows]
    return "\n".join([lines[0], "| " + " | ".join([":---", *["---:"] * (len(rows[0]) - 1)]) + " |", *lines[1:]])


def as_latex(rows: Sequence[Sequence[str]]) -> str:
    r"""A tabular with the rules of the package booktabs.

    >>> print(as_latex([["method", "worst 10%"], ["my_method", "-0.5 ± 0.1"]]))
    \begin{tabular}{lr}
    \toprule
    method & worst 10\% \\
    \midrule
    my\_method & $-$0.5 $\pm$ 0.1 \\
    \bottomrule
    \end{tabular}
    """
    first, *others = (" & ".join(map(_in_latex, row)) + r" \\" for row in rows)
    columns = "l" + "r" * (len(rows[0]) - 1)
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule", *others, r"\bottomrule",
                      r"\end{tabular}"])


def _in_latex(cell: str) -> str:
    """Words as they are, and a minus sign before a number in place of a hyphen."""
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", "".join(LATEX.get(letter, letter) for letter in cell))


def _write_table(path: Path, numbers: Sequence[Mapping[str, Any]], words: Sequence[Sequence[str]],
                 about: str) -> list[Path]:
    """One table in three formats, with a sentence about it where it can stand."""
    line = " ".join(about.split())
    texts = {".csv": as_csv(numbers), ".md": f"{as_markdown(words)}\n\n{line}\n",
             ".tex": f"% {line}\n{as_latex(words)}\n"}
    for suffix, text in texts.items():
        write_text(path.with_suffix(suffix), text)
    return [path.with_suffix(suffix) for suffix in texts]


def _contents(folder: Path) -> list[str]:
    """What an earlier call has written here; nothing if that is not known."""
    try:
        files = json.loads((folder / CONTENTS).read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in files if isinstance(name, str)] if isinstance(files, list) else []


def _slug(title: str) -> str:
    """
    >>> _slug("Personalised models: accuracy of every client")
    'personalised-models-accuracy-of-every-client'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "figure"
