"""Checkpoints that survive a kill at any moment, and damage: orbax writes, a digest vouches.

Orbax writes a checkpoint beside its final name and renames it when it is whole; the digest of all bytes,
kept with it, catches what goes wrong afterwards. A sound checkpoint whose leaves are not those that are wanted is
of another run, and refused: to pass it over as damaged would throw that run away.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError
from cantons.files import CannotWrite, explain, make_folder, set_aside
from cantons.protocol import PyTree

NAMED = 3  # leaves that a refusal names
UNFINISHED = ".orbax-checkpoint-tmp"  # in the name of a checkpoint while orbax writes it


class Checkpoints:
    """The checkpoints of one run; the `keep` newest stay."""

    def __init__(self, folder: Path, keep: int = 3):
        # Orbax reports every step it takes, and prints the tracebacks of its threads: what matters is raised anyway.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        logging.getLogger("asyncio").addFilter(_is_not_of_orbax)
        import orbax.checkpoint as orbax

        self._orbax, self._folder, self._keep = orbax, folder, keep
        self._damaged: list[int] = []

    @cached_property
    def _manager(self) -> Any:
        """Made when it is needed: a folder that is only read may lack it, or be read-only."""
        return self._orbax.CheckpointManager(self._folder.resolve(), options=self._orbax.CheckpointManagerOptions(
            max_to_keep=self._keep, enable_async_checkpointing=False, create=False))

    def save(self, round: int, state: PyTree, about: dict[str, Any]) -> None:
        """Write `state` after `round`; `about` is plain JSON kept beside it."""
        make_folder(self._folder, parents=False)  # a run folder that was moved away is not to be begun again here
        leaves = _leaves(state)
        args = self._orbax.args
        try:
            with _no_late_complaints():
                self._manager.save(round, force=True, args=args.Composite(
                    state=args.StandardSave(leaves), about=args.JsonSave({**about, "digest": _digest(leaves, about)})))
        except Exception as error:  # tensorstore has its own kinds for what a disk says
            self._remove_unfinished(suppress(OSError))
            raise CannotWrite(f"cannot write the checkpoint of round {round} to {self._folder}: {_reason(error)}; what "
                              "was saved before is kept, go on from there when that is cured.") from error

    def newest(self, template: PyTree) -> tuple[PyTree, dict[str, Any], list[str]] | None:
        """The newest sound checkpoint in the shape of `template`, what was said of it, and what was passed over."""
        complaints: list[str] = []
        wanted = _leaves(template)
        args = self._orbax.args
        self._damaged = []
        for round in self._steps():
            try:
                found = self._manager.restore(round, args=args.Composite(
                    state=args.StandardRestore(), about=args.JsonRestore()))
                leaves = {name: np.asarray(leaf) for name, leaf in found["state"].items()}
                about = dict(found["about"])
                if about.pop("digest") != _digest(leaves, about):
                    raise ValueError("its bytes are not the ones that were written")
            except Exception as error:  # whatever a damaged file makes a reader raise
                complaints.append(f"the checkpoint of round {round} is damaged ({_reason(error)}); "
                                  "using the one before it.")
                self._damaged.append(round)
                continue
            difference = _difference(_kinds(leaves), _kinds(wanted))
            if difference:
                raise InputError(f"the checkpoint of round {round} in {self._folder} was written by another version of "
                                 f"cantons or for another algorithm: {difference}; start anew in another folder.")
            return _fill(template, leaves), found["about"], complaints
        return (template, {}, complaints) if complaints else None

    def about(self) -> dict[str, Any] | None:
        """What is said of the newest checkpoint that says anything; whether its state is sound is not looked at."""
        for round in self._steps():
            with suppress(Exception):  # whatever a damaged file makes a reader raise
                return dict(self._manager.restore(round, args=self._orbax.args.Composite(
                    about=self._orbax.args.JsonRestore()))["about"])
        return None

    def drop_after(self, round: int) -> None:
        """Set aside what `newest` found damaged, and delete what will be run again or was never finished."""
        if not self._folder.exists():
            return
        for step in self._damaged:
            set_aside(self._folder / str(step))
        self._remove_unfinished(explain(self._folder))
        with explain(self._folder):
            for step in self._steps():
                if step > round:
                    shutil.rmtree(self._folder / str(step))
        self.__dict__.pop("_manager", None)  # it would remember them

    def _remove_unfinished(self, failing: AbstractContextManager[Any]) -> None:
        with failing:
            for path in self._folder.iterdir():
                if UNFINISHED in path.name:
                    _remove(path)

    def _steps(self) -> list[int]:
        """The rounds of the checkpoints, the newest first; read from the names, so that damage inside hides none."""
        if not self._folder.is_dir():
            return []
        return sorted((int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()), reverse=True)


def _remove(path: Path) -> None:
    """Remove a folder into which threads of a save that failed may still write for a moment."""
    for seconds in (0.05, 0.1, 0.2, 0.4, 0.8):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(seconds)
    shutil.rmtree(path)


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in record.getMessage()


@contextmanager
def _no_late_complaints() -> Iterator[None]:
    """Of a save that fails, tensorstore's threads go on and find nobody to tell: that is not the user's business."""
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if "Event loop is closed" not in str(unraisable.exc_value):
            before(unraisable)

    sys.unraisablehook = hook
    yield
    sys.unraisablehook = before  # not after an error: they may still come


def _reason(error: Exception) -> str:
    """What went wrong, on one short line; of tensorstore's long ones, what the system said."""
    code = re.search(r"os_error_code='(\d+)'", str(error))
    words = os.strerror(int(code[1])) if code else str(getattr(error, "strerror", None) or error)
    return words.splitlines()[0][:160] if words else type(error).__name__


def _leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """Every leaf that holds anything, by path; empty arrays carry no information and some stores refuse them."""
    found = jax.tree_util.tree_leaves_with_path(jax.device_get(tree))
    return {jax.tree_util.keystr(path): _numbers(leaf) for path, leaf in found if np.size(leaf)}


def _fill(template: PyTree, leaves: dict[str, np.ndarray]) -> PyTree:
    """The template with these leaves; a key of the template takes them as a key of its own kind."""

    def filled(path: Any, leaf: Any) -> Any:
        saved = leaves.get(jax.tree_util.keystr(path))
        if saved is None:
            return leaf
        return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf)) if _is_key(leaf) else saved

    return jax.tree_util.tree_map_with_path(filled, jax.device_get(template))


def _numbers(leaf: Any) -> np.ndarray:
    """A leaf as a store can take it: of a typed key, the numbers in it."""
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _kinds(leaves: dict[str, np.ndarray]) -> dict[str, str]:
    """The type and shape of each leaf."""
    return {name: f"{leaf.dtype} {leaf.shape}" for name, leaf in leaves.items()}


def _difference(saved: dict[str, str], wanted: dict[str, str]) -> str:
    """What is wrong with the leaves of a checkpoint, in words; nothing if they are those that are wanted."""
    lacks, has = sorted(wanted.keys() - saved.keys()), sorted(saved.keys() - wanted.keys())
    if lacks or has:
        words = [f"{verb} {_listed(names)}" for verb, names in (("lacks", lacks), ("has", has)) if names]
        return f"it {' and '.join(words)}"
    other = [f"its {name} is {saved[name]}, and here it is {kind}" for name, kind in wanted.items()
             if saved[name] != kind]
    return _listed(other)


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _digest(leaves: dict[str, np.ndarray], about: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(leaves):
        digest.update(f"{name} {leaves[name].dtype} {leaves[name].shape}".encode())
        digest.update(np.ascontiguousarray(leaves[name]).tobytes())
    return digest.hexdigest()
