"""Compare studies, or run folders that are there already: a table, a data frame, a plot and a report of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cantons.display import html_table, titled_table
from cantons.errors import InputError, unknown
from cantons.optional import optional_import
from cantons.protocol import Recipe
from cantons.ranges import Count, check
from cantons.reporting.axes import new_figure
from cantons.reporting.collect import collect, headline
from cantons.reporting.figures import draw_curves
from cantons.reporting.findings import Findings
from cantons.reporting.labels import make_room
from cantons.reporting.page import check_report, page, write_page
from cantons.reporting.paired import difference_cells
from cantons.reporting.save import check_saved
from cantons.reporting.save import save as write_files
from cantons.reporting.svg import keep_drawings
from cantons.reporting.table import cells
from cantons.reporting.text import as_text, comparison_title, print_comparison
from cantons.reporting.tried import plain_grid
from cantons.study.callbacks import Callbacks, Several
from cantons.study.compare import check_methods, play
from cantons.study.methods import of_one_study, of_studies
from cantons.study.progress import watching
from cantons.study.result import Result
from cantons.study.study import AnyStudy
from cantons.study.tune import Tuned
from cantons.study.tune import tune as tune_methods

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Comparison(Findings):
    """Methods side by side, each with its seeds; it prints as a table, with differences and what follows from them."""

    report: Path | None = None  # the HTML page

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
        figure, axes = new_figure() if axes is None else (None, axes)
        draw_curves(axes, self.groups, chosen, chosen)
        if figure is not None:
            make_room(figure)
        return axes

    def save(self, folder: str | Path, overwrite: bool = False) -> list[Path]:
        """Write every table as LaTeX, CSV and Markdown and every figure of the report as SVG and PNG; the files.

        Files of an earlier call are replaced; a folder that holds anything else is refused without `overwrite`.
        """
        check_saved(Path(folder), overwrite)
        with keep_drawings() as drawings:
            page(self)
        return write_files(self, drawings, Path(folder))

    def __str__(self) -> str:
        return "\n".join([as_text(print_comparison, self), *self._where()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        apart = html_table(difference_cells(self.paired)) if self.paired else ""
        return titled_table(comparison_title(self.groups), cells(self.rows)) + apart + "".join(
            f"<p>{escape(sentence)}</p>" for sentence in (*self.sentences, *self._where()))

    def _where(self) -> list[str]:
        return [] if self.report is None else [f"report: {self.report}"]


def compare(*studies: AnyStudy | str | Path, seeds: int = 3, out: str | Path = "results/compare",
            rounds: int | None = None, algorithm: str | Recipe | Mapping | Sequence[str | Recipe | Mapping] = (),
            method: str | Mapping | Sequence[str | Mapping] = (), set: Mapping[str, Any] | None = None,
            tune: Mapping[str, Sequence[Any]] | None = None, tune_seeds: int = 3, resplit: bool = False,
            reference: str | None = None, save: str | Path | None = None, overwrite: bool = False,
            accept_changes: bool = False, callbacks: Callbacks = (), progress: bool | None = True) -> Comparison:
    """Run the studies, or one study with several algorithms, on the same data and seeds; write one report.

    A study is the path of a file, or `Study(problem, data, algorithm, rounds=...)`; a file with [[method]] tables is
    several. `algorithm` has several to put into one study: recipes such as fedprox(mu=0.1), or words such as
    "fedprox,mu=0.1", for which the study's own options hold as far as they have such. A `method` may have more of its
    own: "fedrep; problem.split=output; algorithm.head_epochs=5", or a table such as {"algorithm": "fedrep",
    "problem.split": "output", "name": "FedRep"}. `set` changes keys in all studies, such as
    {"algorithm.step_size": 0.05}.

    Every method runs with the seeds 0, 1, ...; its run folders are in `out`, and called again, it goes on where it was.
    Folders that hold runs of other studies are refused, or with `overwrite` begun anew. With `tune`, a list of values
    for each key, every method is first swept over all combinations with `tune_seeds` seeds and takes the values that
    are best for it by validation rows; it then runs with seeds that come after those. `reference` names the method that
    the others are held against: the first one by default, and those of `algorithm` come before those of `method`. To
    the folder `save` go all tables and figures as files.
    With `resplit` every seed also splits the data anew (their `seed` is its), so that the differences do not hang on
    which rows and clients were held out.
    `callbacks` and `progress` are those of `run`.
    """
    if not studies:
        raise InputError("no study was given; give at least one.")
    algorithms = [algorithm] if isinstance(algorithm, str | Recipe | Mapping) else list(algorithm)
    methods_given = [method] if isinstance(method, str | Mapping) else list(method)
    chosen = bool(algorithms or methods_given)
    if chosen and len(studies) > 1:
        raise InputError("algorithm and method take the place of the algorithm in one study; give a single study with "
                         "them.")
    check("seeds", Count, seeds)
    check("tune_seeds", Count, tune_seeds)
    if resplit and tune is not None:
        raise InputError("tuning would learn from rows that other splits test on; leave out resplit or tune.")
    grid = None if tune is None else plain_grid("tune", tune)
    folder, page = Path(out), Path(out) / "report.html"
    changes = {**(set or {}), **({} if rounds is None else {"rounds": rounds})}
    with watching(progress) as watchers:
        watcher = Several([*callbacks, *watchers])
        methods = (of_one_study(studies[0], algorithms, methods_given, changes, watcher, grid or ()) if chosen
                   else of_studies(studies, changes, watcher, grid or ()))
        check_report(page)
        if save is not None:
            check_saved(Path(save), overwrite)
        check_methods(methods, reference)
        tuned: dict[str, Tuned] = {}
        first = 0
        if grid is not None:
            methods, tuned = tune_methods(methods, grid, tune_seeds, folder, watcher, accept_changes, overwrite)
            first = tune_seeds
        folders = play(methods, range(first, first + seeds), folder, watcher, accept_changes, overwrite, resplit)
    found = Findings(collect(folders), reference if len(methods) > 1 else None, tuned)
    return _written(found, page, save, overwrite)


def report(*runs: Result | str | Path, out: str | Path | None = None, reference: str | None = None,
           save: str | Path | None = None, overwrite: bool = False) -> Comparison:
    """Write one HTML page about finished runs, and give back what is in it; runs that differ by seed are put together.

    `runs` are run folders, or results that were written to one. The page goes to `out`, or to the first folder.
    `reference` names the method that the others are held against: the first one by default. To the folder `save` go all
    tables as LaTeX, CSV and Markdown and all figures as SVG and PNG. An older report in the same place is replaced; any
    other file only with `overwrite`.
    """
    if not runs:
        raise InputError("no run folder was given; give at least one.")
    folders = [_folder_of(run) for run in runs]
    page = Path(out or folders[0] / "report.html")
    check_report(page, overwrite)
    return _written(Findings(collect(folders), reference), page, save, overwrite)


def _written(found: Findings, page: Path, save_to: str | Path | None, overwrite: bool) -> Comparison:
    """The page, and tables and figures as files if they are asked for."""
    if save_to is not None:
        check_saved(Path(save_to), overwrite)
    with keep_drawings() as drawings:
        write_page(found, page)
    if save_to is not None:
        write_files(found, drawings, Path(save_to))
    return Comparison(found.groups, found.reference, found.tuned, page)


def read_comparison(folders: Sequence[Path]) -> Comparison:
    """What is in run folders, without a page about it."""
    return Comparison(collect(folders))


def _folder_of(run: Result | str | Path) -> Path:
    if not isinstance(run, Result):
        return Path(run)
    if run.folder is None:
        raise InputError("this result was not written to a folder, which a report is made from; run it with out=....")
    return run.folder
