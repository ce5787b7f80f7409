"""Clients' models out of the export of a run: for those that are fitted to examples which are not there any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from cantons.data.read.files import decoding, reading
from cantons.protocol import PyTree
from cantons.study.reading import read_table

PLACE = "export"  # in the run folder, where exports go if nobody says otherwise


def read_exported(folder: Path, round: int, names: tuple[str, ...], index: int,
                  parts: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree] | None:
    """The (shared, private) of one client as `export` wrote them after this round; None if it did not.

    `parts` is the common model, which says what they look like.
    """
    place = folder / PLACE
    if not (place / "model.json").is_file():
        return None
    about = read_table(place / "model.json")
    if about.get("round") != round or about.get("clients") != list(names):
        return None  # of another moment, or of one client
    shared, private = parts
    if (place / "personal.safetensors").is_file():
        shared = _row(place / "personal.safetensors", index, shared)
    if jax.tree.leaves(private):
        private = _row(place / "private.safetensors", index, private)
    return shared, private


def _row(file: Path, index: int, like: PyTree) -> PyTree:
    """One client's arrays, in the tree of another's."""
    from safetensors import safe_open

    def find(path: Any, leaf: Any) -> Any:
        array = arrays.get_slice(name_of(path))[index]
        if array.shape != leaf.shape:
            raise ValueError(f"{name_of(path)} has shape {array.shape}, and the model has {leaf.shape}")
        return array

    with reading(file), decoding(file, "which should be an export of this run"), safe_open(file, "numpy") as arrays:
        return jax.tree_util.tree_map_with_path(find, like)


def name_of(path: Any) -> str:
    """What an array at this path of a tree is called in a file."""
    return jax.tree_util.keystr(path, simple=True, separator="/")
