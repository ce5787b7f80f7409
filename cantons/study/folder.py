"""The run folder: everything a run leaves behind, written so that a kill at any moment loses nothing.

    study.json       the study as it was run, every default filled in
    environment.json versions and hardware
    metrics.jsonl    one line per evaluation
    clients.csv      the latest evaluation, one row per client
    checkpoints/     the newest few states
    summary.json     written at the end: the last evaluation, times, traffic
"""

from __future__ import annotations

import csv
import functools
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from cantons.errors import InputError
from cantons.study.fingerprint import Fingerprint, check_same, fingerprint
from cantons.study.plain import flat as flat
from cantons.study.plain import plain as plain

PACKAGES = ("cantons", "jax", "jaxlib", "numpy", "optax", "equinox", "orbax-checkpoint", "scikit-learn", "flax",
            "torch", "vowpalwabbit")


class Folder:
    def __init__(self, path: Path):
        self.path = path
        self.study_file = path / "study.json"
        self.metrics_file = path / "metrics.jsonl"
        self.summary_file = path / "summary.json"

    def open(self, study: Mapping[str, Any], resume: bool, accept_changes: bool = False) -> None:
        """Create the folder, or check that it holds this very study; what it holds is left as it is."""
        if self.study_file.exists():
            if not resume:
                raise InputError(f"{self.path} already holds a run; resume it (--resume), or choose another folder.")
            self.compare(study, accept_changes)
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f"{self.path} exists and is not a run folder; choose another one.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.begin(study)
        except OSError as error:
            raise InputError(f"cannot write the run folder {self.path}: {error.strerror}.") from error

    def begin(self, study: Mapping[str, Any]) -> None:
        """Write down what is run, and where; the study comes last, because it is what makes this a run folder."""
        write_json(self.path / "environment.json", environment())
        write_json(self.study_file, study)

    def compare(self, study: Mapping[str, Any], accept_changes: bool = False) -> list[str]:
        """Refuse a folder of another study; what changes the last digits must be accepted, and is given back."""
        return check_same(str(self.path), self.fingerprint(), fingerprint(study, environment()), accept_changes)

    def fingerprint(self) -> Fingerprint:
        """Of the run that the folder holds."""
        place = self.path / "environment.json"
        return fingerprint(read_json(self.study_file), read_json(place) if place.exists() else {})

    def records(self) -> list[dict[str, Any]]:
        """The evaluations so far; a last line cut short by a kill is dropped."""
        if not self.metrics_file.exists():
            return []
        rows = []
        for line in self.metrics_file.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def rewind(self, round: int) -> list[dict[str, Any]]:
        """Keep the evaluations up to `round`; the later ones will be made again."""
        rows = [row for row in self.records() if row["round"] <= round]
        replace(self.metrics_file, "".join(json.dumps(row) + "\n" for row in rows))
        return rows

    def append(self, record: Mapping[str, Any]) -> None:
        with self.metrics_file.open("a") as file:
            file.write(json.dumps(plain(record)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def clients(self, columns: Mapping[str, Any]) -> None:
        temporary = self.path / "clients.csv.part"
        with temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        temporary.replace(self.path / "clients.csv")

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


def read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}.") from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    replace(path, json.dumps(plain(value), indent=2) + "\n")


def replace(path: Path, text: str) -> None:
    """Write all of `text` or nothing."""
    temporary = path.with_name(path.name + ".part")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
