"""What the scripts in this folder have in common: a command line, colours, figures, numbers and tables.

A script has its sizes in a NamedTuple `Settings`, small ones in `QUICK` to see that it runs, and `main(arguments)`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.engine.devices import one_device_per_core

with contextlib.suppress(ImportError):  # a machine that only computes need not have it
    import matplotlib

    matplotlib.use("Agg")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"  # beside the repository; never in it
# Colours that the colour-blind tell apart: Okabe and Ito, "Color Universal Design", 2008.
BLUE, GREEN, ORANGE, RED, PINK = "#0072b2", "#009e73", "#e69f00", "#d55e00", "#cc79a7"
BLACK, DARK, GREY = "#000000", "#4d4d4d", "#999999"
COLOURS = (BLUE, GREEN, ORANGE, RED, PINK, DARK)


def read_arguments(about: str | None, out: str, arguments: Sequence[str] | None,
                   **more: Mapping[str, Any]) -> argparse.Namespace:
    """The command line of a script: --quick, --out, and `more`, each with what argparse wants to know about it."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path(out), help="the folder for figures, numbers and tables")
    for name, option in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **option)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    one_device_per_core()
    if jax.config.values["jax_compilation_cache_dir"] is None:  # other data, the same program: compile it once
        jax.config.update("jax_compilation_cache_dir", str((given.out / "programs").resolve()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return given


def play_parts(about: str | None, out: str, arguments: Sequence[str] | None, full: Any, quick: Any,
               parts: Mapping[str, Callable[[Any, Path, Watch], str]]) -> None:
    """The `main` of a script in several parts, each a function of settings, folder and watch that gives a page."""
    given = read_arguments(about, out, arguments, parts={"nargs": "*", "choices": list(parts), "default": list(parts)})
    watch = Watch()
    for part in given.parts:
        page = given.out / f"{part}.md"
        page.write_text(parts[part](quick if given.quick else full, given.out, watch) + "\n")
        watch(f"{part} done: {page}")


FILES: Mapping[str, Any] = {"type": Path, "default": DATA, "help": "the folder with the files of real data"}


class Watch:
    """Tells what is done, and after how many seconds."""

    def __init__(self) -> None:
        self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def __call__(self, sentence: str) -> None:
        print(f"{self.seconds:6.0f} s  {sentence}", flush=True)


class Cells:
    """Results by name, each computed once and kept in a file; one of other settings is computed again.

    A study that was interrupted goes on where it was. After so many `minutes` none is begun: TimeoutError.
    """

    def __init__(self, folder: Path, settings: Any, watch: Watch, minutes: float | None = None) -> None:
        self.folder, self.watch, self.minutes = folder, watch, minutes
        self.settings = json.loads(json.dumps(settings._asdict()))
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, name: str, compute: Callable[[], Any], **more: Any) -> Any:
        """What is in the file, or what `compute` gives; `more` are settings of this cell alone."""
        path, settings = self.folder / f"{name}.json", self.settings | more
        if not path.exists() or json.loads(path.read_text())["settings"] != settings:
            if self.minutes is not None and self.watch.seconds > 60 * self.minutes:
                raise TimeoutError
            save_numbers(path, {"settings": settings, "found": compute()})
        return json.loads(path.read_text())["found"]


def save_numbers(path: Path, numbers: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(numbers, indent=1, default=_plain))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value._asdict()


def save_figure(figure: Any, path: Path, shades: int | None = None, **options: Any) -> None:
    """Write a picture; with so many `shades` in place of all it takes a third of the bytes."""
    from matplotlib import pyplot

    figure.savefig(path, **{"dpi": 90, **options})
    pyplot.close(figure)
    if shades:
        from PIL import Image

        Image.open(path).convert("RGB").quantize(shades).save(path, optimize=True)


def table(head: Iterable[str], rows: Iterable[Iterable[str]], numbers: bool = False) -> str:
    """A table in Markdown; columns of `numbers` after the first are aligned to the right."""
    head, rule = list(head), "---:" if numbers else "---"
    lines = [head, ["---", *[rule] * (len(head) - 1)], *map(list, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def standard_error(values: np.ndarray | Sequence[float]) -> float:
    """Of the mean; 0 where there is a single value."""
    values = np.asarray(values)
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def spread(values: np.ndarray | Sequence[float]) -> str:
    return f"{np.median(values):.1f} ({np.min(values):.1f} to {np.max(values):.1f})"


def plot_band(axes: Any, places: Sequence[float], curves: np.ndarray, middle: np.ndarray, colour: str,
              **options: Any) -> None:
    """A line, and a band from the smallest to the largest of the `curves` [seeds, places]."""
    axes.plot(places, middle, color=colour, **options)
    axes.fill_between(places, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.15, linewidth=0)
