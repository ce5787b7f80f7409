"""The report: one HTML file that needs nothing else, for one run or for a comparison of many."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from cantons.errors import Notice
from cantons.files import begins_with, check_replaceable, make_folder, write_text
from cantons.reporting import behaviour, held_against, new_clients, sections, streams, studies
from cantons.reporting.collect import Run, collect
from cantons.reporting.findings import Findings
from cantons.reporting.sheet import SHEET
from cantons.study.fingerprint import DIGITS, differences, fingerprint

GENERATOR = b'<meta name="generator" content="cantons">'  # by which we know a report again
# The policy makes the browser itself refuse whatever does not stand in the file.
PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="cantons">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>$title</title>
<style>$sheet</style>
</head>
<body>
<h1>$title</h1>
$content
</body>
</html>
""")


def check_report(out: Path, overwrite: bool | None = None) -> None:
    """Refuse a place in which something else than a report stands, before much work is done for one.

    None: whoever asks cannot overwrite it.
    """
    if overwrite is None:
        check_replaceable(out, False, begins_with(GENERATOR), "move it away")
    else:
        check_replaceable(out, overwrite, begins_with(GENERATOR))


def write_page(found: Findings, path: Path) -> Path:
    """Write one HTML file about these findings, and return its path; what is there is replaced."""
    _say_what_differs([run for group in found.groups for run in group.runs])
    text = page(found)
    make_folder(path.parent)
    write_text(path, text)
    return path


def write_report(folders: Sequence[str | Path], out: str | Path, reference: str | None = None, *,
                 overwrite: bool = False) -> Path:
    """Write one HTML file about the runs in `folders` to `out`, and return its path.

    Runs that differ in nothing but their seed count as one method. `reference` names the method that the others
    are held against, client by client: the first one by default. An older report in the same place is replaced;
    any other file only with `overwrite`.
    """
    path = Path(out)
    check_report(path, overwrite)
    return write_page(Findings(collect(folders), reference), path)


def _say_what_differs(runs: Sequence[Run]) -> None:
    """A notice for each way in which runs were made elsewhere than the first: their last digits may differ by that."""
    first = fingerprint(runs[0].study, runs[0].environment)
    said: dict[str, Path] = {}
    for run in runs[1:]:
        changes = differences(fingerprint(run.study, run.environment), first, DIGITS, here="there")
        if changes:
            said.setdefault(", ".join(changes), run.folder)
    for sentence, folder in said.items():
        warnings.warn(f"{folder} was made elsewhere than {runs[0].folder}: {sentence}; the last digits may differ by "
                      "that.", Notice, stacklevel=4)


def page(found: Findings) -> str:
    """The whole page; a section with nothing to say is empty."""
    groups, reference = found.groups, found.against
    methods = groups[0].label if len(groups) == 1 else f"{len(groups)} methods"
    content = [sections.lead(groups), sections.results(groups, found.rows), held_against.differences(found),
               sections.learning(groups), sections.whole_sets(groups), sections.populations(groups),
               streams.online(groups), behaviour.asynchronous(groups), behaviour.liars(groups),
               sections.clients(groups, reference), new_clients.section(groups), sections.communication(groups),
               behaviour.diagnosed(groups), behaviour.losses(groups), studies.studies(groups),
               studies.environments(groups)]
    return PAGE.substitute(title=escape(f"{methods} on {groups[0].study['data']['name']}"), sheet=SHEET,
                           content="\n".join(content))
