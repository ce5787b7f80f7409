"""NumPy archives and LIBSVM files become tables."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cantons.data.columns import Columns, as_table
from cantons.data.files import reading
from cantons.data.table import Table, with_labels
from cantons.errors import InputError


def read_npz(path: str | Path, *, inputs: str = "x", targets: str = "y", client: str | None = None,
             time: str | None = None, regression: bool = False) -> Table:
    """Read a NumPy archive; `inputs`, `targets`, `client` and `time` are names of arrays in it."""
    with reading(path), open(path, "rb") as file:
        return as_table(arrays(file, path), inputs=inputs, targets=targets, client=client, time=time,
                        regression=regression)


def read_libsvm(path: str | Path, *, regression: bool = False) -> Table:
    """Read a file in LIBSVM's format, also gzipped (.gz) or bzipped (.bz2), into a dense float32 matrix."""
    from sklearn.datasets import load_svmlight_file  # slow to import, and only needed here

    with reading(path):
        try:
            rows, values = load_svmlight_file(str(path), dtype=np.float32)
        except ValueError as error:
            reason = f"cannot read {path}, whose lines should be 'label index:value ...': {error}."
            raise InputError(reason) from error
    return with_labels(Table(rows.toarray(), values, None), regression, path)


def arrays(file: BinaryIO, path: str | Path) -> Columns:
    """The arrays of a NumPy archive, to be read while the file is open."""
    try:
        archive = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path}: it is not an npz file; write one with np.savez.") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError(f"{path} holds a single array without a name; write an npz file with np.savez.")

    def read(name: str) -> np.ndarray:
        try:
            return archive[name]
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            if "allow_pickle" in str(error):
                raise InputError(f"array {name!r} in {path} is pickled, and unpickling can run any code; "
                                 "save it again as numbers or strings.") from error
            raise InputError(f"array {name!r} in {path} is damaged: {error}.") from error

    return Columns(path, archive.files, read, "array")
