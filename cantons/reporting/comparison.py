"""Compare studies, or run folders that are there already: a table, a data frame, a plot and a report of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cantons.display import titled_table
from cantons.errors import InputError, unknown
from cantons.optional import optional_import
from cantons.protocol import Recipe
from cantons.ranges import Count, check
from cantons.reporting.axes import new_axes
from cantons.reporting.collect import Group, collect, headline
from cantons.reporting.figures import draw_curves
from cantons.reporting.page import check_report, write_page, write_report
from cantons.reporting.table import cells, comparison_rows
from cantons.reporting.text import as_text, comparison_title, print_comparison
from cantons.study.callbacks import Callbacks, Several
from cantons.study.compare import of_algorithms, of_studies, play
from cantons.study.progress import watching
from cantons.study.result import Result
from cantons.study.study import AnyStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods side by side, each with its seeds; it prints as a table."""

    groups: Sequence[Group]  # one for each method, with its runs
    report: Path | None = None  # the HTML page

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row per method: its name, how many seeds it has, its scores and what it cost; None: it has no such."""
        return comparison_rows(self.groups)

    @property
    def folders(self) -> list[Path]:
        """The run folders, method by method and seed by seed."""
        return [run.folder for group in self.groups for run in group.runs]

    def frame(self) -> Any:
        """The rows as a pandas data frame, without the columns for which no method has a number."""
        there = [key for key in self.rows[0] if any(row[key] is not None for row in self.rows)]
        return optional_import("pandas", "pandas", "frame()").DataFrame(self.rows, columns=there)

    def plot(self, number: str | None = None, axes: Axes | None = None) -> Axes:
        """One number of the evaluations against rounds, on matplotlib axes: a line for each method, a band for seeds.

        `number` is such as "test.shared.accuracy.mean"; without it, it is the one that methods are compared by.
        """
        chosen = headline(self.groups) if number is None else number
        known = {key for group in self.groups for row in group.runs[0].history for key, value in row.items()
                 if isinstance(value, int | float)}
        if chosen not in known:
            raise unknown("number of the evaluations", chosen, known)
        axes = new_axes() if axes is None else axes
        draw_curves(axes, self.groups, chosen, chosen)
        return axes

    def __str__(self) -> str:
        return as_text(print_comparison, self.groups)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return titled_table(comparison_title(self.groups), cells(self.rows))


def compare(*studies: AnyStudy | str | Path, seeds: int = 3, out: str | Path = "results/compare",
            rounds: int | None = None, algorithm: str | Recipe | Mapping | Sequence[str | Recipe | Mapping] = (),
            set: Mapping[str, Any] | None = None, reference: str | None = None, overwrite: bool = False,
            accept_changes: bool = False, callbacks: Callbacks = (), progress: bool | None = True) -> Comparison:
    """Run the studies, or one study with several algorithms, on the same data and seeds; write one report.

    A study is the path of a file, or `Study(problem, data, algorithm, rounds=...)`. `algorithm` has several to put into
    one study: recipes such as fedprox(mu=0.1), or words such as "fedprox,mu=0.1", for which the study's own options
    hold as far as they have such. `set` changes keys in all studies, such as {"algorithm.step_size": 0.05}. Every
    method runs with the seeds 0, 1, ...; its run folders are in `out`, and called again, it goes on where it was.
    Folders that hold runs of other studies are refused, or with `overwrite` begun anew. `reference` names the method
    that the report holds the others against: the first one by default. `callbacks` and `progress` are those of `run`.
    """
    if not studies:
        raise InputError("no study was given; give at least one.")
    chosen = [algorithm] if isinstance(algorithm, str | Recipe | Mapping) else list(algorithm)
    if chosen and len(studies) > 1:
        raise InputError("algorithm takes the place of the algorithm in one study; give a single study with it.")
    check("seeds", Count, seeds)
    folder, page = Path(out), Path(out) / "report.html"
    changes = {**(set or {}), **({} if rounds is None else {"rounds": rounds})}
    with watching(progress) as watchers:
        watcher = Several([*callbacks, *watchers])
        methods = (of_algorithms(studies[0], chosen, seeds, changes, watcher) if chosen
                   else of_studies(studies, seeds, changes))
        check_report(page)
        folders = play(methods, folder, reference, watcher, accept_changes, overwrite)
    groups = collect(folders)
    return Comparison(groups, write_page(groups, page, reference if len(methods) > 1 else None))


def report(*runs: Result | str | Path, out: str | Path | None = None, reference: str | None = None,
           overwrite: bool = False) -> Comparison:
    """Write one HTML page about finished runs, and give back what is in it; runs that differ by seed are put together.

    `runs` are run folders, or results that were written to one. The page goes to `out`, or to the first folder.
    `reference` names the method that the others are held against: the first one by default. An older report in the same
    place is replaced; any other file only with `overwrite`.
    """
    if not runs:
        raise InputError("no run folder was given; give at least one.")
    folders = [_folder_of(run) for run in runs]
    page = write_report(folders, out or folders[0] / "report.html", reference, overwrite=overwrite)
    return Comparison(collect(folders), page)


def read_comparison(folders: Sequence[Path]) -> Comparison:
    """What is in run folders, without a page about it."""
    return Comparison(collect(folders))


def _folder_of(run: Result | str | Path) -> Path:
    if not isinstance(run, Result):
        return Path(run)
    if run.folder is None:
        raise InputError("this result was not written to a folder, which a report is made from; run it with out=....")
    return run.folder
