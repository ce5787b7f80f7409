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
import json
import math
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.errors import InputError

PACKAGES = ("cantons", "jax", "jaxlib", "numpy", "optax", "equinox", "orbax-checkpoint", "scikit-learn")
# What may differ between the run that wrote a checkpoint and the one that goes on from it.
FREE = ("rounds", "evaluate_every", "checkpoint_every", "keep", "engine", "name")


class Folder:
    def __init__(self, path: Path):
        self.path = path
        self.study_file = path / "study.json"
        self.metrics_file = path / "metrics.jsonl"

    def open(self, study: Mapping[str, Any], resume: bool) -> None:
        """Create the folder, or check that it holds this very study."""
        if self.study_file.exists():
            if not resume:
                raise InputError(f"{self.path} already holds a run; resume it (--resume), or choose another folder.")
            self._same_study(study)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(f"{self.path} exists and is not a run folder; choose another one.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.study_file, study)
            write_json(self.path / "environment.json", environment())
        except OSError as error:
            raise InputError(f"cannot write the run folder {self.path}: {error.strerror}.") from error

    def _same_study(self, study: Mapping[str, Any]) -> None:
        old = flat(read_json(self.study_file))
        new = flat(json.loads(json.dumps(plain(study))))
        for key in sorted(old.keys() | new.keys()):
            if key.partition(".")[0] not in FREE and old.get(key) != new.get(key):
                raise InputError(f"{self.path} holds another study: its {key} is {json.dumps(old.get(key))}, here it "
                                 f"is {json.dumps(new.get(key))}; go on with the study it began with, or choose "
                                 "another folder.")

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
        write_json(self.path / "summary.json", summary)


def environment() -> dict[str, Any]:
    """Versions and hardware, for the reader who wonders why his numbers differ."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    devices = jax.local_devices()
    return {"python": platform.python_version(), "system": platform.platform(terse=True),
            "machine": platform.machine(), "cores": os.cpu_count(), "versions": versions,
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


def plain(value: Any) -> Any:
    """As strict JSON has it: no arrays, no tuples, no NaN; what has no JSON form is named."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | jax.Array):
        return plain(np.asarray(value).tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__name__)}"


def flat(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys.

    >>> flat({"seed": 0, "clock": {"cohort": 10}})
    {'seed': 0, 'clock.cohort': 10}
    """
    rows: dict[str, Any] = {}
    for key, value in tree.items():
        rows |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
    return rows
