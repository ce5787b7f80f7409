"""HDF5 files in the layout of TensorFlow Federated: /examples/<client>/<feature>, as in fed_emnist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cantons.data.federation import Federation
from cantons.data.prepare.scaling import Scale
from cantons.data.provenance import recorded
from cantons.data.read.blocks import Block, join
from cantons.data.read.files import decoding, list_files, reading
from cantons.data.split.divide import NaturalDivision, from_table
from cantons.data.table import Table, with_labels
from cantons.errors import InputError, unknown
from cantons.memory import require
from cantons.optional import optional_import
from cantons.options import Flat


@recorded
def hdf5(
    path: str | Path,
    *,
    inputs: str = "pixels",
    targets: str = "label",
    regression: bool = False,
    scale: Scale = "none",
    division: Flat[NaturalDivision] = NaturalDivision(),
) -> Federation:
    """A file in the layout of fed_emnist, or a folder with one that ends in train.h5 and one in test.h5.

    The test.h5 of a folder is what the file marks as test.

    path: the file or folder.
    inputs: the dataset to learn from, in every client's group.
    targets: the dataset to predict.
    regression: targets are numbers; otherwise they are labels.
    scale: "unit" divides each feature by its largest absolute value, "standard" gives it mean 0 and variance 1.
    """
    table = read_hdf5(path, inputs=inputs, targets=targets, regression=regression)
    return from_table(table, division.with_scale(scale), name=Path(path).stem)


def read_hdf5(path: str | Path, *, inputs: str = "pixels", targets: str = "label", regression: bool = False) -> Table:
    """Read the datasets `inputs` and `targets` of every client."""
    h5py = optional_import("h5py", "hdf5", user="this data")
    blocks: list[Block] = []
    with reading(path):
        for name, test in _files(Path(path)):
            with reading(name), decoding(name, "which should be HDF5"), h5py.File(name) as file:
                blocks += _clients(file, name, inputs, targets, test)
        return with_labels(join(blocks, path), regression, path)


def _files(path: Path) -> list[tuple[Path, bool]]:
    """The files to read, and whether each is for testing."""
    if not path.is_dir():
        return [(path, False)]
    files = list_files(path, ".h5", ".hdf5")
    train, test = ([file for file in files if file.stem.endswith(ending)] for ending in ("train", "test"))
    if len(train) != 1 or len(test) > 1:
        raise InputError(f"{path} holds {', '.join(file.name for file in files)}; keep one file that ends in train.h5 "
                         "and at most one in test.h5, or point path to a single file.")
    return [(train[0], False), *((file, True) for file in test)]


def _clients(file: Any, name: Path, inputs: str, targets: str, test: bool) -> Iterator[Block]:
    if "examples" not in file:
        raise unknown(f"group in {name}:", "examples", file)
    examples = _member(file, "examples", "Group", name)
    for client in examples:
        rows = _member(examples, client, "Group", name)
        for feature in (inputs, targets):
            if feature not in rows:
                raise unknown(f"dataset of client {client!r} in {name}:", feature, rows)
        x, y = (_values(_member(rows, feature, "Dataset", name), name) for feature in (inputs, targets))
        if x.dtype.kind in "SU":
            raise InputError(f"{rows.name}/{inputs} in {name} holds words, where numbers belong.")
        yield Block(client, x, y, test)


def _member(group: Any, key: str, kind: str, file: Path) -> Any:
    """What a group holds under a name, in this very file: links may lead to any file of the machine."""
    link = group.get(key, getlink=True)
    where = f"{group.name.rstrip('/')}/{key} in {file}"
    if type(link).__name__ != "HardLink":
        raise InputError(f"{where} is a link to another place; copy what it leads to into the file.")
    found = group[key]
    if type(found).__name__ != kind:
        raise InputError(f"{where} is a {type(found).__name__}, where a {kind} belongs.")
    return found


def _values(dataset: Any, file: Path) -> np.ndarray:
    """Numbers or words."""
    where = f"{dataset.name} in {file}"
    if dataset.is_virtual or dataset.external:
        raise InputError(f"{where} keeps its values in another file; copy them into this one.")
    if dataset.shape is None:
        raise InputError(f"{where} is empty; give one row per example.")
    require(dataset.nbytes, where)
    if dataset.dtype.kind == "O" and dataset.dtype.metadata and dataset.dtype.metadata.get("vlen") in (str, bytes):
        return np.asarray(dataset.asstr()[()]).astype(np.str_)
    if dataset.dtype.kind not in "biufSU":
        raise InputError(f"{where} is of type {dataset.dtype}; give numbers or words.")
    return np.asarray(dataset[()])
