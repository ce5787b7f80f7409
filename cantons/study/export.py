"""Take trained models out of their run folder, in files that others can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError
from cantons.files import check_replaceable, folder_name, make_folder, without_separators, write_text, writing
from cantons.protocol import PyTree
from cantons.study.export_model import OURS, check_export_model, export_model, is_ours, named
from cantons.study.exported import PLACE
from cantons.study.load import load
from cantons.study.result import Result
from cantons.study.trained import Trained

PARTS = ("shared", "private", "personal")


def export(model: Result | Trained | str | Path, out: str | Path, *, client: int | str | None = None,
           common: bool = False, onnx: bool = False, overwrite: bool = False) -> list[Path]:
    """Write a trained model, a result's or a run folder's, into the folder `out`; the paths of its files.

    With `client`, the model of one client, which runs without cantons: with NumPy where it is made of dense layers,
    with jax alone, and with `onnx=True` in ONNX runtimes. With `common`, the model that a stranger gets, in the same
    way. With neither, the shared part and the private parts of all clients.
    """
    trained = model.model if isinstance(model, Result) else load(model) if isinstance(model, str | Path) else model
    if not isinstance(trained, Trained):
        raise InputError(f"export got a {type(trained).__name__}; give a result, a model that load gave, or a run "
                         "folder.")
    if client is not None and common:
        raise InputError("client names one client's model, and common is nobody's; give one of them.")
    if client is not None or common:
        return export_model(trained.client(client), Path(out), onnx=onnx, overwrite=overwrite,
                            about={"held_out": trained.held_out})
    if onnx:
        raise InputError("an ONNX file is of one model; say whose: client=NAME (--client NAME), or common=True "
                         "(--common).")
    return _export_parts(trained, Path(out), overwrite)


def place_of(folder: Path, client: str | None, common: bool) -> Path:
    """Where an export goes if nobody says so."""
    place = folder / PLACE
    return place / "common" if common else place if client is None else place / folder_name(without_separators(client))


def check_place(out: Path, one: bool, overwrite: bool = False) -> None:
    """Refuse to replace files that are no export, of `one` model or of the parts of all."""
    if one:
        check_export_model(out, overwrite)
        return
    for name in (*(f"{part}.safetensors" for part in PARTS), "model.json"):
        check_replaceable(out / name, overwrite, is_ours)


def _export_parts(trained: Trained, out: Path, overwrite: bool) -> list[Path]:
    """Write shared.safetensors, private.safetensors (one row per client) and model.json, which explains them."""
    from safetensors.numpy import save

    check_place(out, one=False, overwrite=overwrite)
    make_folder(out)
    shared, start_private = trained.parts()
    known = trained.data is not None
    private, apart = trained.of_clients(lambda own, private: (private, differs(own, shared))) if known else (
        jax.tree.map(lambda leaf: np.asarray(leaf)[None], start_private), np.zeros(1, bool))
    parts: dict[str, dict[str, np.ndarray]] = {"shared": named(shared)}
    if jax.tree.leaves(start_private):
        parts["private"] = named(private)
    if np.any(apart):  # clients that predict with a shared part of their own
        parts["personal"] = named(trained.of_clients(lambda own, private: own))
    for part in PARTS:
        (out / f"{part}.safetensors").unlink(missing_ok=True)  # of an export before this one, perhaps of another round
    for part, arrays in parts.items():
        with writing(out / f"{part}.safetensors") as file:
            file.write(save(arrays, metadata=OURS))
    about: dict[str, Any] = {
        **OURS,
        "round": int(trained.state.round),
        "problem": trained.problem.spec,
        "outputs": trained.problem.outputs,
        "encoding": None if trained.encoding is None else trained.encoding.to_json(),
        "held_out": trained.held_out,
        "clients": list(trained.names) if known else None,
        "parts": {part: {name: list(array.shape) for name, array in arrays.items()} for part, arrays in parts.items()},
    }
    write_text(out / "model.json", json.dumps(about, indent=2) + "\n")
    return [*(out / f"{part}.safetensors" for part in parts), out / "model.json"]


def differs(left: PyTree, right: PyTree) -> jax.Array:
    """Whether some number is another one, or none."""
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return jnp.array([(one != other).any() for one, other in pairs] or [False]).any()
