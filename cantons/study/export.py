"""Take a trained model out of its run folder, in files any framework can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.files import check_replaceable, make_folder, write_text, writing
from cantons.protocol import PyTree
from cantons.study.result import Trained

PARTS = ("shared", "private", "personal")
OURS = {"written_by": "cantons"}  # in each file: by it we know our own again


def check_export(out: Path, overwrite: bool = False) -> None:
    """Refuse to replace files that are no export."""
    for name in (*(f"{part}.safetensors" for part in PARTS), "model.json"):
        check_replaceable(out / name, overwrite, _is_ours)


def export(trained: Trained, out: Path, *, overwrite: bool = False) -> list[Path]:
    """Write shared.safetensors, private.safetensors (one row per client) and model.json, which explains them."""
    from safetensors.numpy import save

    check_export(out, overwrite)
    make_folder(out)
    shared, start_private = trained.parts()
    clients = [trained.parts(index) for index in range(trained.population)] if trained.data is not None else []
    parts: dict[str, dict[str, np.ndarray]] = {"shared": named(shared)}
    if jax.tree.leaves(start_private):
        parts["private"] = stacked([private for _, private in clients] or [start_private])
    if clients and any(not same(own, shared) for own, _ in clients):
        parts["personal"] = stacked([own for own, _ in clients])  # clients that predict with a shared part of their own
    for part, arrays in parts.items():
        with writing(out / f"{part}.safetensors") as file:
            file.write(save(arrays, metadata=OURS))
    about: dict[str, Any] = {
        **OURS,
        "problem": trained.problem.spec,
        "clients": list(trained.data.clients.names) if clients else None,
        "parts": {part: {name: list(array.shape) for name, array in arrays.items()} for part, arrays in parts.items()},
    }
    write_text(out / "model.json", json.dumps(about, indent=2) + "\n")
    return [*(out / f"{part}.safetensors" for part in parts), out / "model.json"]


def _is_ours(path: Path) -> bool:
    """Whether the table that a file of an export begins with is one of ours."""
    with path.open("rb") as file:
        begin = file.read(200)
    return b'"written_by"' in begin and b'"cantons"' in begin


def named(tree: PyTree) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.ascontiguousarray(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def stacked(trees: list[PyTree]) -> dict[str, np.ndarray]:
    return named(jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees))


def same(left: PyTree, right: PyTree) -> bool:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)
