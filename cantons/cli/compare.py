"""Run several studies on the same data and seeds; a run that is there already is resumed, not repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cantons.errors import InputError
from cantons.study.callbacks import Callback
from cantons.study.read import Study, read_study


def play(paths: Sequence[Path], seeds: int, out: Path, changes: Mapping[str, Any], watcher: Callback) -> list[Path]:
    """The run folders, study by study and seed by seed."""
    studies = [[read_study(path, {**changes, "seed": seed}) for seed in range(seeds)] for path in paths]
    names = [_name(path, versions[0]) for path, versions in zip(paths, studies, strict=True)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two of the studies are called {name!r}; give each a name of its own.")
    for path, versions in zip(paths, studies, strict=True):
        if versions[0].tables["data"] != studies[0][0].tables["data"]:
            raise InputError(f"{path} has other data than {paths[0]}; compare studies with the same [data].")
    folders = []
    for name, versions in zip(names, studies, strict=True):
        for seed, study in enumerate(versions):
            folder = out / f"{name}-{seed}"
            study.run(out=folder, resume=(folder / "study.json").exists(), callbacks=[watcher])
            folders.append(folder)
    return folders


def _name(path: Path, study: Study) -> str:
    return study.settings.name or path.stem
