"""Take a trained model out of its run folder, in files any framework can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.protocol import PyTree
from cantons.study.result import Trained


def export(trained: Trained, out: Path) -> list[Path]:
    """Write shared.safetensors, private.safetensors (one row per client) and model.json, which explains them."""
    from safetensors.numpy import save_file

    out.mkdir(parents=True, exist_ok=True)
    shared, start_private = trained.parts()
    clients = [trained.parts(index) for index in range(trained.population)] if trained.data is not None else []
    parts: dict[str, dict[str, np.ndarray]] = {"shared": named(shared)}
    if jax.tree.leaves(start_private):
        parts["private"] = stacked([private for _, private in clients] or [start_private])
    if clients and any(not same(own, shared) for own, _ in clients):
        parts["personal"] = stacked([own for own, _ in clients])  # clients that predict with a shared part of their own
    for part, arrays in parts.items():
        save_file(arrays, out / f"{part}.safetensors")
    about: dict[str, Any] = {
        "problem": trained.problem.spec,
        "clients": list(trained.data.clients.names) if clients else None,
        "parts": {part: {name: list(array.shape) for name, array in arrays.items()} for part, arrays in parts.items()},
    }
    (out / "model.json").write_text(json.dumps(about, indent=2) + "\n")
    return [*(out / f"{part}.safetensors" for part in parts), out / "model.json"]


def named(tree: PyTree) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.ascontiguousarray(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def stacked(trees: list[PyTree]) -> dict[str, np.ndarray]:
    return named(jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees))


def same(left: PyTree, right: PyTree) -> bool:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)
