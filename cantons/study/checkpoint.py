"""Checkpoints that survive a kill at any moment, and damage: one .npz file each, whose digest vouches for it.

A file is written beside its place and moved there when it is whole (cantons/files.py); the digest of all bytes, kept in
it, catches what goes wrong afterwards. A sound checkpoint whose leaves are not those that are wanted is of another run,
and refused: to pass it over as damaged would throw that run away.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError, listed
from cantons.files import CannotWrite, explain, is_part, make_folder, set_aside, writing
from cantons.protocol import PyTree

NAMED = 3  # leaves that a refusal names
ABOUT = "about"  # the entry beside the leaves; their names are paths, which begin with a dot or a bracket


class Checkpoints:
    """The checkpoints of one run; the `keep` newest stay."""

    def __init__(self, folder: Path, keep: int = 3):
        self._folder, self._keep = folder, keep
        self._damaged: list[int] = []

    def save(self, round: int, state: PyTree, about: dict[str, Any]) -> None:
        """Write `state` after `round`; `about` is plain JSON kept beside it."""
        make_folder(self._folder, parents=False)  # a run folder that was moved away is not to be begun again here
        entries: dict[str, Any] = _leaves(state)
        said = {**about, "types": {name: str(leaf.dtype) for name, leaf in entries.items()}}
        said["digest"] = _digest(entries, said)
        entries[ABOUT] = np.frombuffer(json.dumps(said).encode(), np.uint8)
        try:
            with writing(self._place(round)) as file:
                np.savez(file, **entries)
        except CannotWrite as error:
            raise CannotWrite(f"{str(error).removesuffix('.')}; what was saved before is kept, go on from there when "
                              "that is cured.") from error
        with explain(self._folder):
            for old in self._rounds()[self._keep:]:
                self._place(old).unlink()

    def newest(self, template: PyTree) -> tuple[PyTree, dict[str, Any], list[str]] | None:
        """The newest sound checkpoint in the shape of `template`, what was said of it, and what was passed over."""
        complaints: list[str] = []
        self._damaged = []
        for round in self._rounds():
            try:
                leaves, about = _read(self._place(round))
            except Exception as error:  # whatever a damaged file makes a reader raise
                complaints.append(f"the checkpoint of round {round} is damaged ({_reason(error)}); "
                                  "using the one before it.")
                self._damaged.append(round)
                continue
            difference = _difference(_kinds(leaves), _kinds(_leaves(template)))
            if difference:
                raise InputError(f"the checkpoint of round {round} in {self._folder} was written by another version of "
                                 f"cantons or for another algorithm: {difference}; start anew in another folder.")
            return _fill(template, leaves), about, complaints
        return (template, {}, complaints) if complaints else None

    def about(self) -> dict[str, Any] | None:
        """What is said of the newest checkpoint that says anything; whether its state is sound is not looked at."""
        for round in self._rounds():
            with suppress(Exception), _entries(self._place(round)) as entries:
                return _said(entries)
        return None

    def drop_after(self, round: int) -> None:
        """Set aside what `newest` found damaged, and delete what will be run again or was never finished."""
        if not self._folder.exists():
            return
        for each in self._damaged:
            set_aside(self._place(each))
        with explain(self._folder):
            for path in self._folder.iterdir():
                if is_part(path):
                    path.unlink()
            for each in self._rounds():
                if each > round:
                    self._place(each).unlink()

    def _place(self, round: int) -> Path:
        return self._folder / f"{round}.npz"

    def _rounds(self) -> list[int]:
        """Those that have a checkpoint, the newest first; read from the names, so that damage inside hides none."""
        if not self._folder.is_dir():
            return []
        return sorted((int(path.stem) for path in self._folder.glob("*.npz") if path.stem.isdecimal()), reverse=True)


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The leaves of a checkpoint and what is said of them; nothing in it is unpickled, and nothing damaged passes."""
    with _entries(path) as entries:
        about = _said(entries)
        # NumPy writes types of other packages, such as bfloat16, as so many bytes.
        leaves = {name: entries[name].view(kind) for name, kind in about["types"].items()}
    if about.pop("digest") != _digest(leaves, about):
        raise ValueError("its bytes are not the ones that were written")
    del about["types"]
    return leaves, about


@contextmanager
def _entries(path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """What is in the file, each entry read when it is asked for."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as entries:  # it leaves a damaged file open
        yield entries


def _said(entries: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return dict(json.loads(entries[ABOUT].tobytes()))


def _reason(error: Exception) -> str:
    """What went wrong, on one short line."""
    words = str(getattr(error, "strerror", None) or error)
    return words.splitlines()[0][:160] if words else type(error).__name__


def _leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """Every leaf, by its path."""
    found = jax.tree_util.tree_leaves_with_path(jax.device_get(tree))
    return {jax.tree_util.keystr(path): _numbers(leaf) for path, leaf in found}


def _fill(template: PyTree, leaves: dict[str, np.ndarray]) -> PyTree:
    """The template with these leaves; a key of the template takes them as a key of its own kind."""

    def filled(path: Any, leaf: Any) -> Any:
        saved = leaves[jax.tree_util.keystr(path)]
        return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf)) if _is_key(leaf) else saved

    return jax.tree_util.tree_map_with_path(filled, template)


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
        words = [f"{verb} {listed(names, NAMED)}" for verb, names in (("lacks", lacks), ("has", has)) if names]
        return f"it {' and '.join(words)}"
    other = [f"its {name} is {saved[name]}, and here it is {kind}" for name, kind in wanted.items()
             if saved[name] != kind]
    return listed(other, NAMED)


def _digest(leaves: dict[str, np.ndarray], about: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(leaves):
        digest.update(f"{name} {leaves[name].dtype} {leaves[name].shape}".encode())
        digest.update(np.ascontiguousarray(leaves[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
