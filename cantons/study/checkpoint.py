"""Checkpoints that survive a kill at any moment, and damage: orbax writes, a digest vouches.

Orbax writes a checkpoint beside its final name and renames it when it is whole; the digest of all bytes,
kept with it, catches what goes wrong afterwards.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.protocol import PyTree


class Checkpoints:
    """The checkpoints of one run; the `keep` newest stay."""

    def __init__(self, folder: Path, keep: int = 3):
        logging.getLogger("absl").setLevel(logging.ERROR)  # orbax reports every step it takes
        import orbax.checkpoint as orbax

        self._orbax = orbax
        options = orbax.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self._manager = orbax.CheckpointManager(folder.resolve(), options=options)

    def save(self, round: int, state: PyTree, about: dict[str, Any]) -> None:
        """Write `state` after `round`; `about` is plain JSON kept beside it."""
        leaves = _leaves(state)
        args = self._orbax.args
        self._manager.save(round, force=True, args=args.Composite(
            state=args.StandardSave(leaves), about=args.JsonSave({**about, "digest": _digest(leaves, about)})))

    def newest(self, template: PyTree) -> tuple[PyTree, dict[str, Any], list[str]] | None:
        """The newest sound checkpoint in the shape of `template`, what was said of it, and what was passed over."""
        complaints: list[str] = []
        wanted = _leaves(template)
        args = self._orbax.args
        for round in sorted(self._manager.all_steps(), reverse=True):
            try:
                found = self._manager.restore(round, args=args.Composite(
                    state=args.StandardRestore(wanted), about=args.JsonRestore()))
                leaves = {name: np.asarray(leaf) for name, leaf in found["state"].items()}
                about = dict(found["about"])
                if about.pop("digest") != _digest(leaves, about):
                    raise ValueError("its bytes are not the ones that were written")
            except Exception as error:  # whatever a damaged file makes a reader raise
                reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
                complaints.append(f"checkpoint of round {round} is damaged ({reason}); using the one before it.")
                continue
            return _fill(template, leaves), found["about"], complaints
        return (template, {}, complaints) if complaints else None

    def drop_after(self, round: int) -> None:
        """Delete checkpoints newer than `round`: they are damaged, or of a future that will be run again."""
        for step in self._manager.all_steps():
            if step > round:
                self._manager.delete(step)


def _leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """Every leaf that holds anything, by path; empty arrays carry no information and some stores refuse them."""
    found = jax.tree_util.tree_leaves_with_path(jax.device_get(tree))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in found if np.size(leaf)}


def _fill(template: PyTree, leaves: dict[str, np.ndarray]) -> PyTree:
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaves.get(jax.tree_util.keystr(path), leaf), jax.device_get(template))


def _digest(leaves: dict[str, np.ndarray], about: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(leaves):
        digest.update(f"{name} {leaves[name].dtype} {leaves[name].shape}".encode())
        digest.update(np.ascontiguousarray(leaves[name]).tobytes())
    return digest.hexdigest()
