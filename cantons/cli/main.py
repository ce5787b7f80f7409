"""`cantons`: the commands. Each imports what it needs when it is called, so that --help is quick."""

from __future__ import annotations

import errno
import sys
import warnings
from pathlib import Path
from typing import TextIO

import click

from cantons.errors import InputError, Notice


class Sentences(click.Group):
    """Users' mistakes end in one line and exit code 1, never in a traceback."""

    def invoke(self, context: click.Context) -> object:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", Notice)
                warnings.showwarning = _show_warning
                result = super().invoke(context)
            sys.stdout.flush()  # here, where a full disk still gets its sentence
            return result
        except click.UsageError as error:
            # The user's words may have lines of their own.
            raise click.UsageError(error.format_message().replace("\n", "\\n"), error.ctx) from error
        except InputError as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # click ends quietly when nobody reads on
            place = "read or write" if error.filename is None else f"use {error.filename}"
            raise click.ClickException(f"cannot {place}: {error.strerror or error}.") from error
        except KeyboardInterrupt:
            sys.exit(130)


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                  file: TextIO | None = None, line: str | None = None) -> None:
    """A notice is one line on stderr; a warning of somebody else's looks as it always does."""
    said = f"{message}\n" if issubclass(category, Notice) else warnings.formatwarning(
        message, category, filename, lineno, line)
    click.echo(said, err=True, nl=False)


@click.group(cls=Sentences, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cantons")
def cantons() -> None:
    """Personalised, online and mixed federated learning."""


TRUST = click.option(
    "--trust", is_flag=True, help="Import modules outside cantons that the run folder names, which runs their code.")
ACCEPT_CHANGES = click.option(
    "--accept-changes", is_flag=True,
    help="Go on with a run though versions or the engine have changed; its summary says after which round.")

SAVE = click.option(
    "--save", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Write every table as LaTeX, CSV and Markdown and every figure as SVG and PNG to this folder.")


@cantons.command()
@click.argument("study", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path),
              help="The run folder.  [default: results/NAME-SEED, with what --set changed in the name]")
@click.option("--rounds", type=click.IntRange(min=1), help="Train for this many rounds instead.")
@click.option("--seed", type=click.IntRange(min=0), help="Use this seed instead.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE",
              help="Change any key of the study, as in --set algorithm.step_size=0.05; may be repeated.")
@click.option("--engine", metavar="NAME", help="Run it on this engine with its defaults, such as ray.")
@click.option("--address", metavar="HOST:PORT", help="The cluster, for an engine that has one.  [default: its own]")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder.")
@click.option("--overwrite", is_flag=True, help="Remove the run in the folder and begin anew.")
@ACCEPT_CHANGES
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON and nothing else.")
def run(study: Path, out: Path | None, rounds: int | None, seed: int | None, changes: tuple[str, ...],
        engine: str | None, address: str | None, resume: bool, overwrite: bool, accept_changes: bool,
        as_json: bool) -> None:
    """Run the study described in the TOML file STUDY and write its run folder."""
    from cantons.cli import show
    from cantons.cli.changes import parsed
    from cantons.files import folder_name
    from cantons.reporting import read_comparison
    from cantons.study.folder import Folder
    from cantons.study.read import read_study
    from cantons.study.sweep import label

    asked = {key: value for key, value in (("rounds", rounds), ("seed", seed), ("engine.address", address))
             if value is not None}
    changed = parsed(changes)
    # First, because --set may have options for it.
    checked = read_study(study, ({} if engine is None else {"engine": engine}) | changed | asked)
    apart = {key: value for key, value in changed.items() if key not in ("name", "seed", "rounds")}
    name = ",".join([checked.settings.name or study.stem, *([label(apart)] if apart else [])])
    folder = out or Path("results") / f"{folder_name(name)}-{checked.settings.seed}"
    if not resume and not overwrite and Folder(folder).has_begun():
        raise InputError(f"{folder} already holds a run; go on with it (--resume), begin anew (--overwrite), or choose "
                         "another folder (--out).")
    result = checked.run(out=folder, resume=resume, overwrite=overwrite, accept_changes=accept_changes,
                         progress=None if as_json else True)
    if as_json:
        show.as_json(result.summary)
    else:
        try:
            show.comparison(read_comparison([folder]))
        except InputError as error:  # the run itself is done: that there is nothing to tabulate is no mistake
            click.echo(f"no table: {error}", err=True)
        click.echo(f"run folder: {folder}")


@cantons.command()
@click.argument("studies", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Run each study this often.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/compare"), show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), help="Train for this many rounds instead.")
@click.option("--algorithm", "--method", "methods", multiple=True,
              metavar="ALGORITHM[,OPTION=VALUE...][; KEY=VALUE...]",
              help="Run the one study with this algorithm, as in --algorithm fedprox,mu=0.1, and with keys of its own, "
              "as in --method \"fedrep; problem.split=output; algorithm.head_epochs=5\"; may be repeated.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key in all of the studies.")
@click.option("--tune", "grids", multiple=True, metavar="KEY=A,B,C",
              help="Choose the best of these values for each method, by validation rows, and run fresh seeds with it; "
              "may be repeated.")
@click.option("--tune-seeds", type=click.IntRange(1, 1000), default=3, show_default=True,
              help="Try each value this often.")
@click.option("--resplit", is_flag=True, help="Split the data anew for every seed, not once for all.")
@click.option("--reference", help="The method the others are held against, by name.  [default: the first]")
@SAVE
@click.option("--overwrite", is_flag=True, help="Begin runs anew whose folders hold runs of other studies.")
@ACCEPT_CHANGES
def compare(studies: tuple[Path, ...], seeds: int, out: Path, rounds: int | None, methods: tuple[str, ...],
            changes: tuple[str, ...], grids: tuple[str, ...], tune_seeds: int, resplit: bool, reference: str | None,
            save: Path | None, overwrite: bool, accept_changes: bool) -> None:
    """Run the STUDIES, or one study with several methods, on the same data and seeds.

    Prints one table, with the spread over seeds, the differences to the reference, and what follows from them; writes
    one report. Called again after a crash, it goes on where it was.
    """
    from cantons.cli import show
    from cantons.cli.changes import parsed, parsed_grid
    from cantons.reporting import compare as play

    found = play(*studies, seeds=seeds, out=out, rounds=rounds, method=methods, set=parsed(changes),
                 tune=parsed_grid(grids, "--tune") if grids else None, tune_seeds=tune_seeds, resplit=resplit,
                 reference=reference, save=save, overwrite=overwrite, accept_changes=accept_changes)
    show.comparison(found)
    click.echo(f"report: {found.report}")


@cantons.command()
@click.argument("study", type=click.Path(path_type=Path))
@click.option("--grid", "grids", multiple=True, required=True, metavar="KEY=A,B,C",
              help="Values to try for a key, as in --grid algorithm.step_size=0.03,0.1,0.3; may be repeated.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Run each point this often.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the runs go.  [default: results/sweep-NAME]")
@click.option("--rounds", type=click.IntRange(min=1), help="Train for this many rounds instead.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key of the study.")
@click.option("--choose", metavar="NUMBER", help="Choose by this number of the last evaluation instead, such as "
              "inference.shared.accuracy; no rows are held back.")
@click.option("--overwrite", is_flag=True, help="Begin runs anew whose folders hold other runs.")
@ACCEPT_CHANGES
def sweep(study: Path, grids: tuple[str, ...], seeds: int, out: Path | None, rounds: int | None,
          changes: tuple[str, ...], choose: str | None, overwrite: bool, accept_changes: bool) -> None:
    """Try all combinations of the grid and choose by validation rows, held back from training.

    A stream is chosen by what it is charged on its way, each example before it is learned from.
    Points that differ in step sizes and other real numbers, and all seeds, run together as one program. Called again
    after a crash, it goes on where it was.
    """
    from cantons.cli import show
    from cantons.cli.changes import parsed, parsed_grid
    from cantons.reporting import sweep as play

    found = play(study, parsed_grid(grids), seeds=seeds, out=out, rounds=rounds, set=parsed(changes), choose=choose,
                 overwrite=overwrite, accept_changes=accept_changes)
    show.sweep(found)
    click.echo(f"run folders: {found.folder}/<point>-<seed>")


@cantons.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The HTML file.  [default: FIRST FOLDER/report.html]")
@click.option("--reference", help="The method the others are held against, by name.  [default: the first]")
@SAVE
@click.option("--overwrite", is_flag=True, help="Replace a file in that place that this command did not write.")
def report(folders: tuple[Path, ...], out: Path | None, reference: str | None, save: Path | None,
           overwrite: bool) -> None:
    """Write one self-contained HTML page about the runs in FOLDERS; runs that differ by seed are put together."""
    from cantons.reporting import report as write

    click.echo(write(*folders, out=out, reference=reference, save=save, overwrite=overwrite).report)


@cantons.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/demo"), show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=200, show_default=True)
def demo(out: Path, rounds: int) -> None:
    """Compare methods on handwritten digits spread over 50 clients with tasks of their own."""
    from cantons.cli import show
    from cantons.cli.demo import play
    from cantons.reporting import report as write
    from cantons.reporting.page import check_report
    from cantons.study.progress import watching

    check_report(out / "report.html")
    click.echo(show.DEMO_TEXT)
    with watching() as (watcher,):
        folders = play(out, rounds, watcher)
    found = write(*folders, out=out / "report.html")
    show.comparison(found)
    click.echo(f"run folders: {out}/<method>-<seed>")
    click.echo(f"report: {found.report}")


@cantons.command("list")
@click.argument("kind", required=False)
def list_parts(kind: str | None) -> None:
    """List what a study can name: all, or one KIND (data, problem, model, algorithm, clock, aggregate, engine)."""
    from cantons.cli import show
    from cantons.errors import unknown
    from cantons.study.registry import REGISTRY

    if kind is not None and kind not in REGISTRY:
        raise unknown("kind", kind, REGISTRY)
    for name in [kind] if kind else REGISTRY:
        show.parts(name, REGISTRY[name])


@cantons.command()
@click.argument("name")
@click.option("--set", "changes", multiple=True, metavar="OPTION=VALUE",
              help="For data: make it with this option, as in --set clients=20; may be repeated.")
@click.option("--plot", type=click.Path(path_type=Path), help="For data: draw who has which labels to this file.")
@click.option("--overwrite", is_flag=True, help="Replace a file in that place that this command did not write.")
def describe(name: str, changes: tuple[str, ...], plot: Path | None, overwrite: bool) -> None:
    """Say what the part NAME does, where it comes from and what its options are.

    For an algorithm, also what leaves the client: every leaf that travels. For data, or for a study file, also the
    clients, their sizes and how much their labels differ.
    """
    from cantons.cli import show
    from cantons.cli.changes import parsed
    from cantons.study.describe import describe_part, federation_of

    found = [] if name.endswith(".toml") else describe_part(name)
    about_data = not found or any(each.kind == "data" for each in found)
    if (changes or plot) and not about_data:
        raise InputError(f"{name} is of kind {found[0].kind}; --set and --plot are for data.")
    made = about_data and bool(changes or plot or not any(each.required for each in found))
    data = federation_of(name, parsed(changes)) if made else None  # before anything is printed: it may be refused
    if data is not None and plot is not None:
        show.draw(data, plot, overwrite)
    for described in found:
        show.description(described)
    if data is not None:
        show.federation(data, plot)


@cantons.command()
@click.argument("name")
@click.option("--set", "changes", multiple=True, metavar="OPTION=VALUE",
              help="Check it with this option, as in --set step_size=0.05; may be repeated.")
def check(name: str, changes: tuple[str, ...]) -> None:
    """Check that the algorithm NAME does what every algorithm must; yours is module:function.

    It runs on a tiny example that it can work with. Prints one line for each property: ok; failed, and what to change;
    or skipped, and why. The exit code is 1 if any check failed.
    """
    from cantons.checks import examine
    from cantons.cli.changes import parsed
    from cantons.study.read import check_part
    from cantons.study.registry import make_algorithm

    recipe = make_algorithm(check_part(name, "algorithm", {"name": name}, parsed(changes)))
    found = examine(recipe, begin=click.echo, tell=click.echo)
    click.echo(found.verdict)
    if not found.passed:
        sys.exit(1)


@cantons.command()
@click.argument("rows", type=click.Path(path_type=Path))
@click.option("--run", "folder", type=click.Path(path_type=Path), required=True, help="The run folder.")
@click.option("--client", help="Predict as this client; else as a stranger.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Begin each line with what this column of ROWS has, such "
              "as an id; may be repeated.")
@click.option("--each", is_flag=True, help="Print the probability of every class.")
@click.option("--raw", is_flag=True, help="Print the model's outputs, such as logits, without a header.")
@click.option("--array", default="x", show_default=True, help="Which array of an .npz file holds the rows.")
@click.option("--out", type=click.Path(path_type=Path),
              help="Write to this file: what is printed if it ends in .csv, else the outputs as .npy.")
@click.option("--overwrite", is_flag=True, help="Replace a file in that place that this command did not write.")
@TRUST
def predict(rows: Path, folder: Path, client: str | None, keep: tuple[str, ...], each: bool, raw: bool, array: str,
            out: Path | None, overwrite: bool, trust: bool) -> None:
    """Predict with a trained model for the raw rows of ROWS (.npy, .npz or .csv).

    Prints the label of each row and its probability, or a number. The columns of a CSV file with a header are found by
    their names; without one, they are those of the training data in their order. What the run scaled is scaled.
    """
    from cantons.cli.predict import as_columns, as_raw_text, as_text, columns_to_keep, outputs_for, save, separator_of
    from cantons.files import check_replaceable
    from cantons.study.load import load

    if raw and (keep or each):
        raise click.UsageError("--raw prints the outputs and nothing else; leave out --keep and --each with it.")
    if out is not None:
        check_replaceable(out, overwrite)
    model, separator = load(folder, trust=trust).client(client), separator_of(folder)
    kept = columns_to_keep(rows, separator, keep)
    outputs = outputs_for(model, rows, array, separator)
    text = as_raw_text(outputs) if raw else as_text(kept, as_columns(model, outputs, each))
    if out is None:
        click.echo(text, nl=False)
    else:
        save(out, text, outputs)
        click.echo(out)


@cantons.command()
@click.option("--run", "folder", type=click.Path(path_type=Path), required=True, help="The run folder.")
@click.option("--client", help="Write this client's model, as one that runs without cantons.")
@click.option("--common", is_flag=True, help="Write the model that a stranger gets, as one that runs without cantons.")
@click.option("--onnx", is_flag=True, help="With --client or --common: write an ONNX file too.")
@click.option("--out", type=click.Path(path_type=Path),
              help="Where to write.  [default: RUN/export, or in it a folder with the client's name]")
@click.option("--overwrite", is_flag=True, help="Replace a file in that place that this command did not write.")
@TRUST
def export(folder: Path, client: str | None, common: bool, onnx: bool, out: Path | None, overwrite: bool,
           trust: bool) -> None:
    """Write the shared and the private parts of a trained model as safetensors, with a JSON that explains them.

    With --client or --common, one model that runs without cantons: with NumPy, with jax, or in ONNX runtimes.
    """
    from cantons.study.export import check_place, place_of
    from cantons.study.export import export as write
    from cantons.study.load import load

    place = out or place_of(folder, client, common)
    check_place(place, client is not None or common, overwrite)  # before the run is loaded, which may take long
    for path in write(load(folder, trust=trust), place, client=client, common=common, onnx=onnx, overwrite=overwrite):
        click.echo(path)


if __name__ == "__main__":
    cantons()
