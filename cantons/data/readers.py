"""Files become tables: one row of inputs and one target per example."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from cantons.errors import InputError, unknown


class Table(NamedTuple):
    """The examples of one file."""

    inputs: np.ndarray
    targets: np.ndarray  # labels 0..K-1, or float32 for regression
    classes: np.ndarray | None  # the K labels as the file has them, sorted; None for regression
    clients: np.ndarray | None = None  # an id per row


def read_npz(path: str | Path, *, inputs: str = "x", targets: str = "y", client: str | None = None,
             regression: bool = False) -> Table:
    """Read a NumPy archive; `inputs`, `targets` and `client` are names of arrays in it."""
    try:
        with open(path, "rb") as file:
            archive = _archive(file, path)
            rows = _array(archive, inputs, path)
            values = _array(archive, targets, path)
            ids = None if client is None else _array(archive, client, path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from error
    for name, array in ((inputs, rows), (targets, values), (client, ids)):
        if array is not None and (array.ndim == 0 or len(array) != len(rows)):
            raise InputError(f"array {name!r} in {path} has shape {array.shape} and {inputs!r} "
                             f"{rows.shape}; both need one row per example.")
    return _table(rows, values, ids, regression, path)


def read_libsvm(path: str | Path, *, regression: bool = False) -> Table:
    """Read a file in LIBSVM's format, also gzipped (.gz) or bzipped (.bz2), into a dense float32 matrix."""
    from sklearn.datasets import load_svmlight_file  # slow to import, and only needed here

    try:
        rows, values = load_svmlight_file(str(path), dtype=np.float32)
    except (OSError, EOFError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    except ValueError as error:
        reason = f"cannot read {path}, whose lines should be 'label index:value ...': {error}."
        raise InputError(reason) from error
    return _table(rows.toarray(), values, None, regression, path)


def _archive(file: BinaryIO, path: str | Path) -> np.lib.npyio.NpzFile:
    try:
        archive = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path}: it is not an npz file; write one with np.savez.") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError(f"{path} holds a single array without a name; write an npz file with np.savez.")
    return archive


def _array(archive: np.lib.npyio.NpzFile, name: str, path: str | Path) -> np.ndarray:
    if name not in archive.files:
        raise unknown(f"array in {path}:", name, archive.files)
    try:
        return archive[name]
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            raise InputError(f"array {name!r} in {path} is pickled, and unpickling can run any code; "
                             "save it again as numbers or strings.") from error
        raise InputError(f"array {name!r} in {path} is damaged: {error}.") from error


def _table(rows: np.ndarray, values: np.ndarray, ids: np.ndarray | None, regression: bool,
           path: str | Path) -> Table:
    if len(rows) == 0:
        raise InputError(f"{path} holds no rows; give a file with at least one example.")
    if regression:
        if values.dtype.kind not in "iuf":
            raise InputError(f"targets in {path} are of type {values.dtype}; regression needs numbers.")
        return Table(rows, values.astype(np.float32), None, ids)
    if values.dtype.kind == "f":
        odd = values[~np.isfinite(values) | (values != np.round(values))]
        if odd.size:
            raise InputError(f"targets in {path} hold {odd[0]}, which is no label; "
                             "give regression = true.")
        values = values.astype(np.int64)
    kinds, labels = np.unique(values, return_inverse=True)
    if len(kinds) < 2:
        raise InputError(f"targets in {path} are all {kinds[0]}; classification needs at least two labels.")
    return Table(rows, labels.astype(np.int32), kinds, ids)
