"""One case of the fuzzer: draw it by its number, play it in a folder of its own, and judge how it ended.

A case is accepted or refused in a sentence. Anything else is a failure: another exception, no end within the limit, a
file written outside the case's folder, or a user's file changed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import matplotlib
from click.testing import CliRunner
from fuzz import commands, files, folders, studies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cantons.checks
import cantons.reporting.markup
from cantons import memory
from cantons.cli.main import cantons as group
from cantons.errors import InputError
from cantons.study.load import load
from cantons.study.loop import Loop
from cantons.study.read import read_study

KINDS = ("study", "file", "study", "command", "study", "file", "study", "folder")  # of the cases 0, 1, 2, ...
FITS = 2**29  # bytes that a case may think there are
TRAINED = 50  # one case in so many is trained, for two rounds
LIMIT, TRAINING_LIMIT = 20.0, 120.0  # seconds
READS_ONLY = ("report", "predict", "export", "list", "describe", "check", "load")


class Verdict(NamedTuple):
    number: int
    kind: str
    outcome: str  # accepted, refused or failed
    why: str  # of a refusal its sentence, of a failure what happened
    case: str  # how it can be read
    seconds: float


class Enough(BaseException):
    """All is read, checked and built: the rounds would begin now."""


class Hang(BaseException):
    """The case has not ended within its limit."""


class Failure(Exception):
    """A promise was broken, without an exception."""


def prepare_shared(shared: Path) -> None:
    """Sound samples, finished run folders, and what fits what: made once for all processes."""
    files.make_samples(shared / "samples")
    folders.make_bases(shared)
    (shared / "fits.json").write_text(json.dumps(studies.find_fits(_data_tables(shared))))


def _data_tables(shared: Path) -> dict[str, dict[str, Any]]:
    """The [data] table of each reader's sound sample."""
    return {label: {"path": str(shared / "samples" / label / sample.path), **sample.options}
            for label, sample in files.read_samples(shared / "samples").items() if label == sample.reader}


class World:
    """A folder to play in: sound samples and run folders, somebody else's files, and the folder of the case."""

    def __init__(self, shared: Path, own: Path):
        self.shared, self.outside, self.folder = shared, own / "outside", own / "case"
        self.outside.mkdir(parents=True)
        self.temporary = own / "temporary"
        self.temporary.mkdir()
        (self.outside / "letter.txt").write_text("not yours")
        fits = studies.Fits(*json.loads((shared / "fits.json").read_text()))
        self.strategies: dict[str, st.SearchStrategy[Any]] = {
            "study": studies.studies(_data_tables(shared), fits), "command": commands.command_lines(),
            "file": files.damaged_files(files.read_samples(shared / "samples")),
            "folder": folders.damaged_folders(folders.read_bases(shared))}

    def draw(self, seed: int, number: int) -> Any:
        """The case of this number: the same for the same seed and the same code."""
        drawn: list[Any] = []

        @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(self.strategies[KINDS[number % len(KINDS)]])
        def take(case: Any) -> None:
            drawn.append(case)

        dice = random.Random(f"{seed} {number}")
        while not drawn:  # bytes that a strategy cannot use are no case
            take.hypothesis.fuzz_one_input(dice.randbytes(16384))
        return drawn[0]

    def play(self, seed: int, number: int, limit: float | None = None) -> Verdict:
        """Play one case and judge it."""
        kind, case = KINDS[number % len(KINDS)], self.draw(seed, number)
        train = number // len(KINDS) % TRAINED == 0 if kind != "file" else False
        began = time.perf_counter()
        outcome, why = self._judged(kind, case, train, limit or (TRAINING_LIMIT if train else LIMIT))
        return Verdict(number, kind, outcome, why, describe(kind, case), time.perf_counter() - began)

    def _judged(self, kind: str, case: Any, train: bool, limit: float) -> tuple[str, str]:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self._lay_out(kind, case)
        before, others = contents(self.folder), contents(self.outside)
        here = Path.cwd()
        os.chdir(self.folder)
        try:
            # What fits but is large takes its time, which is no hang: let little fit.
            with (within(limit), watched(self.folder, self.temporary) as written, stopped_before_training(not train),
                  mock.patch.object(memory, "available", lambda: FITS)):
                words = PLAYED[kind](self, case, train)
        except (Enough, InputError) as end:
            sentence = str(end)
            outcome = ("accepted", "") if isinstance(end, Enough) else ("refused", sentence)
            problem = "" if isinstance(end, Enough) else bad_sentence(kind, case, sentence)
            if problem:
                return "failed", problem
            words = [kind]
        except Hang:
            return "failed", f"no end within {limit:.0f} s"
        except Failure as failure:
            return "failed", str(failure)
        except BaseException as error:  # SystemExit too: a file's words must not end the process
            if isinstance(error, KeyboardInterrupt):
                raise
            return "failed", said(error)
        else:
            outcome = ("refused" if words[:1] == ["refused"] else "accepted", "")
        finally:
            os.chdir(here)
        if written:
            return "failed", f"wrote outside its folder: {', '.join(sorted(written)[:3])}"
        if contents(self.outside) != others:
            return "failed", "changed somebody else's files"
        changed = self._changed(kind, case, before)
        return ("failed", f"changed {changed}") if changed else outcome

    def _lay_out(self, kind: str, case: Any) -> None:
        if kind == "study":
            (self.folder / "study.toml").write_bytes(case.encode("utf-8", "surrogateescape"))
        if kind == "folder":
            folders.lay_out(case, self.shared, self.folder)
        if kind == "command":
            folders.lay_out(folders.FolderCase("rounds", {}, "", ()), self.shared, self.folder)
            for name in ("csv.toml", "online.toml"):
                shutil.copy(self.shared / name, self.folder / name)
            (self.folder / "thesis.tex").write_text("all of it")
            (self.folder / "notes").mkdir()
            (self.folder / "notes" / "today.txt").write_text("rain")

    def _changed(self, kind: str, case: Any, before: dict[str, bytes]) -> str:
        """A file that is not what it was, though nobody asked for that."""
        words = case if kind == "command" else folders.command(case) or ["load"] if kind == "folder" else ["load"]
        if "--overwrite" in words:
            return ""
        free = () if words[:1] and words[0] in READS_ONLY else ("run/", "sound/")
        after = contents(self.folder)
        return next((name for name, content in before.items()
                     if after.get(name) != content and not name.startswith(free)), "")


def play_study(world: World, text: str, train: bool) -> list[str]:
    read_study(Path("study.toml"), {"rounds": 2} if train else None).run(out="out")
    return []


def play_file(world: World, case: files.ReaderCase, train: bool) -> list[str]:
    files.play(case, world.folder)
    return []


def play_folder(world: World, case: folders.FolderCase, train: bool) -> list[str]:
    words = folders.command(case)
    if words is None:
        load("run")
        return []
    return play_words(words)


def play_command(world: World, words: list[str], train: bool) -> list[str]:
    trains = words[:1] and words[0] in ("run", "sweep", "compare")
    if train and words[:1] == ["demo"]:
        raise Enough  # it trains nine methods
    return play_words([*words, "--rounds", "2"] if train and trains else words)


def play_words(words: list[str]) -> list[str]:
    """Call the command line; how it ended."""
    done = CliRunner().invoke(group, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    shown = done.stderr.strip()
    if done.exit_code not in (0, 1, 2):
        raise Failure(f"exit code {done.exit_code}: {shown[-300:]}")
    if done.exit_code and words[:1] != ["check"]:
        last = shown.splitlines()[-1] if shown else ""
        if not last.startswith("Error: "):
            raise Failure(f"exit code {done.exit_code} without a sentence of one line at the end: {shown[-300:]!r}")
    return ["refused"] if done.exit_code else []


PLAYED: dict[str, Callable[[World, Any, bool], list[str]]] = {
    "study": play_study, "file": play_file, "folder": play_folder, "command": play_command}


def bad_sentence(kind: str, case: Any, sentence: str) -> str:
    """What is wrong with a refusal: it has one line, and that of a reader names the file or the option."""
    if "\n" in sentence:
        return f"a refusal of several lines: {sentence!r}"
    if kind == "file" and sentence != "not TOML":
        named = [Path(case.path).name, *case.options]
        if not any(name in sentence for name in named):
            return f"a refusal that names neither file nor option: {sentence!r}"
    return ""


def describe(kind: str, case: Any) -> str:
    return case if kind == "study" else {"file": files, "folder": folders, "command": commands}[kind].describe(case)


def said(error: BaseException) -> str:
    """An exception in one line: its kind, the place in our package, its words."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/cantons/" in frame.filename]
    place = f"{frames[-1].filename.rpartition('/cantons/')[2]}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {place}: {str(error)[:300]}"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*")
            if file.is_file() and not file.is_symlink()}


@contextlib.contextmanager
def stopped_before_training(stop: bool) -> Iterator[None]:
    """Runs and checks end where the first round would begin, after a checkpoint was looked for. Figures stay rough."""
    restored = Loop._restored

    def enough(*_: Any, **__: Any) -> None:
        raise Enough

    def restored_and_enough(self: Loop, state: Any) -> None:
        restored(self, state)
        raise Enough

    with contextlib.ExitStack() as stack:
        if stop:
            stack.enter_context(mock.patch.object(Loop, "_restored", restored_and_enough))
            stack.enter_context(mock.patch.object(cantons.checks, "examine", enough))
            # What is drawn is built and not rendered, which would take most of a report's time.
            stack.enter_context(mock.patch.object(cantons.reporting.markup, "svg", lambda draw, name: str(draw())))
        yield


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise Hang after so long; if not even that gets through, end the process a little later."""

    def late(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + 10, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


# Python tells a hook of every file that is opened, made, moved or deleted. A hook cannot be taken away again.
WRITES = {"os.mkdir": 0, "os.rename": 1, "os.remove": 0, "os.rmdir": 0, "os.symlink": 1, "os.link": 1, "os.truncate": 0}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_watch: dict[str, Any] = {"allowed": (), "found": None, "installed": False}


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watch["found"] is None or (event != "open" and event not in WRITES):
        return
    if event == "open":
        path, _, flags = arguments
        if not isinstance(path, str | bytes) or not isinstance(flags, int) or not flags & WRITING:
            return
    else:
        path = arguments[WRITES[event]]
    try:
        place = os.path.realpath(os.fsdecode(path)) if not isinstance(path, int) else ""
    except (OSError, ValueError, TypeError):
        return
    if place and not place.startswith(_watch["allowed"]) and "__pycache__" not in place:
        _watch["found"].add(f"{event} {place}")


@contextlib.contextmanager
def watched(root: Path, temporary: Path) -> Iterator[set[str]]:
    """The files outside `root` that were opened for writing, made, moved or deleted in the block."""
    if not _watch["installed"]:
        sys.addaudithook(_hook)
    caches = [os.environ.get("JAX_COMPILATION_CACHE_DIR", "/dev/"), matplotlib.get_cachedir(),
              matplotlib.get_configdir()]
    found: set[str] = set()
    allowed = (str(root.resolve()), str(temporary.resolve()), "/dev/", "/proc/", *caches)
    _watch.update(installed=True, allowed=allowed, found=found)
    try:
        with mock.patch.object(tempfile, "tempdir", str(temporary)):
            yield found
    finally:
        _watch["found"] = None
