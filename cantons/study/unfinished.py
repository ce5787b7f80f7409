"""A run in stages that has no result yet: which stage it is in, how it goes on, and where there are results already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cantons.errors import InputError, listed
from cantons.study.folder import STAGES, Folder


def check_last_stage(path: Path, study: Mapping[str, Any]) -> None:
    """Refuse a run in stages whose last one has not ended, and left nothing to read yet; any other run passes."""
    if not study.get("stages") or not (path / STAGES).is_dir() or Folder(path).summary_file.exists():
        return
    before = [Folder(path / STAGES / label) for label in study["stages"]]
    ended = sum(stage.summary_file.exists() for stage in before)
    name = "the last" if ended == len(before) else before[ended].path.name.partition("-")[2]
    there = [str(stage.path) for stage in before if any(stage.path.glob("checkpoints/*.npz"))]
    raise InputError(f"{path} is a run in stages that stopped in stage {ended + 1} of {len(before) + 1} ({name}), or "
                     "still runs; its results will be those of the last stage. Go on with the same command and "
                     "--resume (in Python: resume=True)"
                     + (f"; there are results already in {listed(there)}." if there else "."))
