"""The run folder: everything a run leaves behind, written so that a kill at any moment loses nothing.

    study.json       the study as it was run, every default filled in
    environment.json versions and hardware
    encoding.json    how raw rows become inputs, the names of columns, labels and clients, and what was held out
    metrics.jsonl    one line per evaluation
    clients.csv      the latest evaluation, one row per client
    new_clients.csv  the same of clients who are held out of training, where there are any
    checkpoints/     the newest few states
    summary.json     written at the end: the last evaluation, times, traffic
    stages/          of a study with stages: the run folders of those before the last, which is here
    .lock            who is writing, while somebody is
    *.damaged        what was found damaged, set aside
"""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.data.read.files import reading
from cantons.errors import InputError
from cantons.files import (
    append_line,
    copy_aside,
    explain,
    is_part,
    make_folder,
    remove_parts,
    set_aside,
    write_text,
    writing,
)
from cantons.study.checkpoint import Checkpoints
from cantons.study.fingerprint import Fingerprint, check_same, fingerprint
from cantons.study.kept import NAME as KEPT
from cantons.study.lock import NAME as LOCK
from cantons.study.lock import Lock
from cantons.study.plain import plain
from cantons.study.reading import read_clients, read_environment, read_new_clients, read_summary, read_table

PACKAGES = ("cantons", "jax", "jaxlib", "numpy", "optax", "equinox", "scikit-learn", "flax", "torch", "vowpalwabbit")
STAGES = "stages"
FILES = ("study.json", "environment.json", KEPT, "metrics.jsonl", "clients.csv", "new_clients.csv", "summary.json")
# Every study that was ever run has these.
KEYS = ("name", "seed", "rounds", "algorithm", "data")


class Folder:
    """One run folder. Who writes to it opens it, which locks it, and closes it: `with folder.open(...):`."""

    def __init__(self, path: Path):
        self.path = path
        self.study_file = path / "study.json"
        self.metrics_file = path / "metrics.jsonl"
        self.environment_file = path / "environment.json"
        self.summary_file = path / "summary.json"
        self.clients_file = path / "clients.csv"
        self.new_clients_file = path / "new_clients.csv"
        self.events_file = path / "events.npz"
        self.lock: Lock | None = None
        self.complaints: list[str] = []  # what was found damaged, in sentences

    def open(self, study: Mapping[str, Any], resume: bool, accept_changes: bool = False,
             overwrite: bool = False) -> Folder:
        """Create the folder, or check that it holds this very study, or empty it; from now on it is locked."""
        with explain(self.path):
            self._check_ours()
        make_folder(self.path)
        self.lock = Lock(self.path)
        try:
            with explain(self.path):
                self._check_ours()  # again: what was written until now is seen now
                if overwrite:
                    self._remove_run()
                begun = self.has_begun()
                if begun and not resume:
                    raise InputError(f"{self.path} already holds a run; go on with it by --resume (in Python: "
                                     "resume=True), begin anew by --overwrite (overwrite=True), or choose another "
                                     "folder.")
            if begun:
                self.compare(study, accept_changes)
            remove_parts(self.path, FILES)
            self.complaints = [self.lock.unable] if self.lock.unable else []
            self._set_damaged_aside()
            if not begun:
                self.begin(study)
        except BaseException:
            self.close()
            raise
        return self

    @contextmanager
    def opened(self, study: Mapping[str, Any], resume: bool, accept_changes: bool = False,
               overwrite: bool = False) -> Iterator[Folder]:
        """Open it unless it is, and leave it as it was."""
        if self.lock is not None:
            yield self
        else:
            with self.open(study, resume, accept_changes, overwrite):
                yield self

    def close(self) -> None:
        """Let others write."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def has_begun(self) -> bool:
        """Whether there is anything to lose, of this run or of the stages before it."""
        return self.holds_run() or any(Folder(stage).has_begun() for stage in self.stages())

    def holds_run(self) -> bool:
        """Whether there is an evaluation, a checkpoint or a summary."""
        checkpoints = self.path / "checkpoints"
        return (self.summary_file.exists()
                or (self.metrics_file.exists() and self.metrics_file.stat().st_size > 0)
                or (checkpoints.is_dir() and not all(map(is_part, checkpoints.iterdir()))))

    def stages(self) -> list[Path]:
        """The run folders of the stages before this one, in their order."""
        place = self.path / STAGES
        found = [path for path in place.iterdir() if path.is_dir()] if place.is_dir() else []
        return sorted(found, key=lambda path: (len(path.name.partition("-")[0]), path.name))

    def _check_ours(self) -> None:
        """Refuse a place that holds anything but a run, or the little that a run leaves that was killed at once."""
        if self.study_file.exists():
            study = self._study()
            if study is not None and not set(KEYS) <= study.keys():
                raise InputError(f"{self.path} is not a run folder: its {self.study_file.name} is not that of a run; "
                                 "choose another one.")
        elif self.path.exists() and (not self.path.is_dir() or any(
                each.name != LOCK and not is_part(each) for each in self.path.iterdir())):
            raise InputError(f"{self.path} exists and is not a run folder; choose another one.")

    def _study(self) -> dict[str, Any] | None:
        """What study.json holds; None if it is damaged, and a checkpoint says in its place what is run here."""
        try:
            return read_table(self.study_file)
        except InputError:
            if self._saved_fingerprint() is None:
                raise
            return None

    def _saved_fingerprint(self) -> Fingerprint | None:
        """Of the run that wrote the newest checkpoint."""
        try:
            (saved,) = (Checkpoints(self.path / "checkpoints").about() or {})["fingerprints"]
            return Fingerprint(**saved)
        except (KeyError, TypeError, ValueError):  # there is none, it is of several runs, or damaged
            return None

    def _set_damaged_aside(self) -> None:
        """What is not as it was written gets another name; the run makes it again."""
        if self.study_file.exists() and self._study() is None:  # it stays until then: without it, this is no run folder
            self.complaints.append(f"{self.study_file} is damaged: it is kept as {copy_aside(self.study_file).name}, "
                                   "and made again, because the newest checkpoint is of this study.")
        for path, read in ((self.environment_file, read_environment), (self.summary_file, read_summary),
                           (self.clients_file, read_clients), (self.new_clients_file, read_new_clients)):
            if path.exists() and not _is_sound(read, self.path):
                self.complaints.append(f"{path} is damaged: it is kept as {set_aside(path).name}, and made again.")

    def _remove_run(self) -> None:
        """Remove what a run has left here, and nothing else; the study, which makes this a run folder, goes last."""
        for folder in (self.path / "checkpoints", self.path / STAGES):
            if folder.is_dir():
                shutil.rmtree(folder)
        for path in (self.events_file, *(self.path / name for name in reversed(FILES))):
            path.unlink(missing_ok=True)

    def begin(self, study: Mapping[str, Any]) -> None:
        """Write down what is run, and where; the study comes first, because it is what makes this a run folder."""
        write_json(self.study_file, study)
        write_json(self.environment_file, environment())

    def compare(self, study: Mapping[str, Any], accept_changes: bool = False) -> list[str]:
        """Refuse a folder of another study; what changes the last digits must be accepted, and is given back."""
        return check_same(str(self.path), self.fingerprint(), fingerprint(study, environment()), accept_changes)

    def fingerprint(self) -> Fingerprint:
        """Of the run that the folder holds: from its study, or if that is damaged from its newest checkpoint."""
        study = self._study()
        if study is None:
            saved = self._saved_fingerprint()
            assert saved is not None
            return saved
        sound = _is_sound(read_environment, self.path)
        return fingerprint(study, read_environment(self.path) if sound else {})

    def rewind(self, round: int, notice: Callable[[str], None] = lambda sentence: None) -> list[dict[str, Any]]:
        """Keep the sound evaluations up to `round`; the later ones will be made again."""
        rows, damaged = self._lines(round)
        if len(rows) < len(self._lines(sys.maxsize)[0]):  # those of clients are of a later evaluation
            self.clients_file.unlink(missing_ok=True)
            self.new_clients_file.unlink(missing_ok=True)
        if damaged:
            aside = copy_aside(self.metrics_file)
            lines = f"line{'s' if len(damaged) > 1 else ''} {', '.join(map(str, damaged))}"
            kept = ", ".join(str(row["round"]) for row in rows) or "none"
            notice(f"{self.metrics_file} is damaged in {lines}: it is kept as {aside.name}; the sound evaluations up "
                   f"to the checkpoint are used (rounds: {kept}), the later ones made again.")
        write_text(self.metrics_file, "".join(json.dumps(row) + "\n" for row in rows))
        return rows

    def _lines(self, until: int) -> tuple[list[dict[str, Any]], list[int]]:
        """The sound lines up to a round, whose rounds grow, and the numbers of the damaged ones."""
        if not self.metrics_file.exists():
            return [], []
        with reading(self.metrics_file):
            *whole, rest = self.metrics_file.read_bytes().split(b"\n")
        rows: list[dict[str, Any]] = []
        damaged = []
        for number, line in enumerate(whole, 1):
            row = _row(line)
            if row is not None and row["round"] > until:
                continue
            if row is None or (rows and row["round"] <= rows[-1]["round"]):
                damaged.append(number)
            else:
                rows.append(row)
        return rows, [*damaged, len(whole) + 1] if rest else damaged

    def append(self, record: Mapping[str, Any]) -> None:
        append_line(self.metrics_file, json.dumps(plain(record)))

    def clients(self, columns: Mapping[str, Any]) -> None:
        write_columns(self.clients_file, columns)

    def new_clients(self, columns: Mapping[str, Any]) -> None:
        write_columns(self.new_clients_file, columns)

    def events(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Of an asynchronous run: which job ended when, for a replay."""
        with writing(self.events_file) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    def summary(self, summary: Mapping[str, Any]) -> None:
        write_json(self.summary_file, summary)


@functools.cache
def versions() -> dict[str, str | None]:
    """Of what is computed with; None for what is not installed."""
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def environment() -> dict[str, Any]:
    """Versions and hardware, for the reader who wonders why his numbers differ."""
    devices = jax.local_devices()
    return {"python": platform.python_version(), "system": platform.platform(terse=True),
            "machine": platform.machine(), "cores": os.cpu_count(), "versions": versions(),
            "devices": [str(device.device_kind) for device in devices], "platform": devices[0].platform}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(plain(value), indent=2) + "\n")


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """A CSV file with these columns."""
    with writing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(zip(*map(_without_signed_zeros, columns.values()), strict=True))
        text.detach()  # which flushes, and leaves the file open


def _without_signed_zeros(column: Any) -> Any:
    array = np.asarray(column)
    return array + 0.0 if array.dtype.kind == "f" else column


def _row(line: bytes) -> dict[str, Any] | None:
    """A line of metrics.jsonl, if it is sound."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    sound = isinstance(row, dict) and isinstance(row.get("round"), int) and row["round"] >= 0
    return row if sound else None


def _is_sound(read: Callable[[Path], Mapping[str, Any]], folder: Path) -> bool:
    try:
        return bool(read(folder))
    except InputError:
        return False
