"""Play a group of runs of the same shapes: as one program if the engine has one for several runs, else one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax

from cantons.errors import InputError, amount
from cantons.files import make_folder
from cantons.protocol import Engine
from cantons.study.callbacks import Callback
from cantons.study.checkpoint import Checkpoints
from cantons.study.folder import Folder
from cantons.study.loop import Loop, Saving
from cantons.study.reading import read_summary
from cantons.study.resolve import Resolved, check_engine


def play_together(engine: Engine, runs: Sequence[Resolved], watcher: Callback, *, out: Path | None = None,
                  names: Sequence[str] = (), stops: Sequence[int] | None = None,
                  accept_changes: bool = False) -> list[list[dict[str, Any]]]:
    """The histories of all runs. With `out`, each has a run folder there by its name, and what was begun goes on."""
    together = engine.together()
    groups = [range(len(runs))] if together is not None else [[place] for place in range(len(runs))]
    histories: list[list[dict[str, Any]]] = []
    for group in groups:
        chosen = [runs[place] for place in group]
        check_engine(together or engine, chosen[0].parts)
        with ExitStack() as opened:
            saving = None if out is None else _saving(chosen, out, [names[place] for place in group], accept_changes,
                                                      opened)
            with jax.enable_x64(chosen[0].study["precision"] == "float64"):
                session = (together or engine).start([run.parts for run in chosen], watcher.noticed)
            histories += [ended.history for ended in Loop(session, chosen, [watcher], saving, stops).play()]
    return histories


def group_store(out: Path, names: Sequence[str]) -> Path:
    """The checkpoints of runs that are one program; others in their company have other ones."""
    if len(names) == 1:
        return out / names[0] / "checkpoints"
    return out / "groups" / hashlib.sha256("\n".join(str(out / name) for name in names).encode()).hexdigest()[:12]


def _saving(runs: Sequence[Resolved], out: Path, names: Sequence[str], accept_changes: bool,
            opened: ExitStack) -> Saving:
    """Where these runs write; their folders are open, and locked, as long as `opened` is."""
    folders = []
    for name, run in zip(names, runs, strict=True):
        folder = opened.enter_context(Folder(out / name).open(run.study, resume=True, accept_changes=accept_changes))
        done = read_summary(folder.path)["rounds"] if folder.summary_file.exists() else 0
        if done > run.study["rounds"]:
            raise InputError(f"{folder.path} has already run {amount(done, 'round')}; ask for at least that many.")
        folders.append(folder)
    store = group_store(out, names)
    make_folder(store)  # now: who finds it knows that these runs were begun as one program
    return Saving(folders, Checkpoints(store, keep=2), "call it again to go on.", False, accept_changes)
