"""Take one model away, to where there is no cantons: arrays for NumPy, a program for JAX, a graph for ONNX.

    model.safetensors  its arrays, by the names of their parts: "shared/layer0/weight"
    model.json         how raw rows become inputs, what outputs mean, and which arrays are which layers
    numpy_model.py     predicts with these two and NumPy, where the model is made of dense layers
    model.jax          the program from inputs to outputs, which jax.export.deserialize reads; any number of rows
    model.onnx         the same for ONNX runtimes, if asked for
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export as programs

from cantons.errors import InputError, Notice
from cantons.files import check_replaceable, make_folder, write_text, writing
from cantons.optional import optional_import
from cantons.protocol import Dense, PyTree
from cantons.study import numpy_model
from cantons.study.client_model import ClientModel
from cantons.study.exported import name_of
from cantons.study.plain import plain

FORMAT = 1
OURS = {"written_by": "cantons"}
NAMES = ("model.safetensors", "model.json", "numpy_model.py", "model.jax", "model.onnx")
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
CLOSE = 1e-3  # how far the outputs of an ONNX graph may be from ours, relative to the largest


def check_export_model(out: Path, overwrite: bool = False) -> None:
    """Refuse to replace files that are no export of a model."""
    for name in NAMES:
        check_replaceable(out / name, overwrite, lambda path: is_ours(path.parent / "model.json"))


def export_model(model: ClientModel, out: Path, *, onnx: bool = False, overwrite: bool = False,
                 about: Mapping[str, Any] | None = None) -> list[Path]:
    """Write one model into a folder, in files that need no cantons; `about` goes to model.json with the rest."""
    from safetensors.numpy import save

    check_export_model(out, overwrite)
    if not model.alone:
        raise InputError("the clients of this run brought local models of their own, which only you can save; export "
                         "the shared part, without client and common.")
    contents: dict[str, bytes] = {}
    with jax.enable_x64(model.precision == "float64"):
        inputs = _inputs_of(model)
        arrays = {f"{side}/{name}": array for side, part in zip(("shared", "private"), model.parts, strict=True)
                  for name, array in named(part).items()}
        networks = None if model.problem.dense is None else [
            _layers(network, number, arrays) for number, network in enumerate(model.problem.dense(*model.parts))]
        try:
            contents["model.jax"] = _program(model, inputs)
        except InputError as error:
            if networks is None and not onnx:
                raise  # nobody could run what is left
            warnings.warn(f"model.jax is left out: {error}", Notice, stacklevel=2)
        if onnx:
            contents["model.onnx"] = _onnx(model, inputs)
    assert model.encoding is not None
    table = {
        **OURS, "format": FORMAT, "client": model.name, **(about or {}), "problem": model.problem.spec,
        "encoding": model.encoding.to_json(), "inputs": {"shape": list(inputs.shape[1:]), "dtype": str(inputs.dtype)},
        "outputs": model.problem.outputs, "classes": _classes(model), "networks": networks,
        "arrays": {name: list(array.shape) for name, array in arrays.items()},
    }
    contents["model.safetensors"] = save(arrays, metadata=OURS)
    contents["numpy_model.py"] = Path(numpy_model.__file__).read_bytes()
    make_folder(out)
    for name in NAMES:
        if name in contents:
            with writing(out / name) as file:
                file.write(contents[name])
        elif name == "model.json":
            write_text(out / name, json.dumps(plain(table), indent=2) + "\n")
        else:
            (out / name).unlink(missing_ok=True)  # of an export before this one
    return [out / name for name in NAMES if name in contents or name == "model.json"]


def named(tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a tree by their paths."""
    return {name_of(path): np.ascontiguousarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def is_ours(path: Path) -> bool:
    """Whether the table that a file of an export begins with is one of ours."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(200)
    return b'"written_by"' in begin and b'"cantons"' in begin


def _inputs_of(model: ClientModel) -> jax.ShapeDtypeStruct:
    """What a program takes: any number of encoded rows."""
    encoding = model.encoding
    if encoding is None or encoding.shape is None:
        raise InputError("this model cannot leave: how raw rows become its inputs is not known, or they are several "
                         "arrays; export the shared and private parts, without client and common.")
    real = encoding.scaling is not None or encoding.dtype is None or np.dtype(encoding.dtype).kind == "f"
    kind = jax.dtypes.canonicalize_dtype(np.float64 if real else encoding.dtype)
    return jax.ShapeDtypeStruct((*programs.symbolic_shape("rows"), *encoding.shape), kind)


def _apply(model: ClientModel) -> Any:
    """inputs -> outputs, the parameters inside; a new function each time, because jax2onnx leaves its marks on one."""
    shared, private = jax.device_get(model.parts)
    return jax.jit(lambda inputs: model.problem.predict(shared, private, inputs))


def _program(model: ClientModel, inputs: jax.ShapeDtypeStruct) -> bytes:
    """The program as jax.export has it, for every kind of device."""
    optional_import("flatbuffers", "export", user="the program of a model")
    return bytes(programs.export(_apply(model), platforms=PLATFORMS)(inputs).serialize())


def _layers(network: Dense, number: int, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The names of a network's arrays, layer by layer; those that are sums, as adapters make them, are added."""
    def place(layer: str, kind: str) -> str | None:
        if kind not in network.params[layer]:
            return None
        array = np.ascontiguousarray(network.params[layer][kind])
        same = (name for name, other in arrays.items() if name.endswith(f"/{layer}/{kind}") and np.array_equal(
            array, other))
        name = next(same, f"network{number}/{layer}/{kind}")
        arrays.setdefault(name, array)
        return name

    layers = [f"layer{place}" for place in range(len(network.params))]
    return {"columns": None if network.columns is None else np.asarray(network.columns).tolist(),
            "layers": [{kind: place(layer, kind) for kind in ("weight", "bias")} for layer in layers]}


def _classes(model: ClientModel) -> list | None:
    """The labels, where outputs speak for some."""
    if model.problem.outputs == "numbers":
        return None
    width = jax.eval_shape(model.problem.predict, *model.parts, jax.ShapeDtypeStruct(
        (1, *_inputs_of(model).shape[1:]), _inputs_of(model).dtype)).shape[-1]
    return model.labels(width).tolist()


def _onnx(model: ClientModel, inputs: jax.ShapeDtypeStruct) -> bytes:
    """The graph that jax2onnx makes of a program, if it computes the same."""
    jax2onnx = optional_import("jax2onnx", "onnx", user="an ONNX file")
    runtime = optional_import("onnxruntime", "onnx", user="an ONNX file")
    if inputs.dtype == np.float64:
        raise InputError("ONNX files are written for runs in single precision, and this one is in float64; leave onnx "
                         "out, and use model.jax.")
    rows = np.random.default_rng(0).integers(0, 2, (3, *inputs.shape[1:])).astype(inputs.dtype)
    ours = np.asarray(_apply(model)(rows))
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)  # it warns of every axis whose size is not known
    try:
        graph = jax2onnx.to_onnx(_apply(model), inputs=[inputs]).SerializeToString()
        session = runtime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    except Exception as error:  # whatever it cannot do, it says in its own way
        raise InputError(f"jax2onnx cannot write this model: {str(error)[:200]}; leave onnx out, and use model.jax."
                         ) from error
    (theirs,) = session.run(None, {session.get_inputs()[0].name: rows})
    if ours.shape != theirs.shape or not np.allclose(ours, theirs, atol=CLOSE * max(1.0, float(np.abs(ours).max()))):
        raise InputError("the graph that jax2onnx made of this model computes other numbers than it; leave onnx out, "
                         "and use model.jax.")
    return graph
