"""NumPy archives: arrays with names, one row per example."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.read.columns import Columns, as_table
from cantons.data.read.files import reading
from cantons.data.split.divide import Division, from_table
from cantons.data.table import Table
from cantons.errors import InputError
from cantons.options import Flat


@recorded
def npz(
    path: str | Path,
    *,
    inputs: str = "x",
    targets: str = "y",
    client: str | None = None,
    regression: bool = False,
    division: Flat[Division] = Division(test=0.2),
) -> Federation:
    """A NumPy archive, divided by its array of ids `client`, or into `clients` by another partition.

    path: the file.
    inputs: the array to learn from, of any shape.
    targets: the array to predict.
    client: the array that says whose each row is.
    regression: targets are numbers; otherwise they are labels.
    """
    table = read_npz(path, inputs=inputs, targets=targets, client=client, regression=regression)
    return from_table(table, division, name=Path(path).stem)


def read_npz(path: str | Path, *, inputs: str = "x", targets: str = "y", client: str | None = None,
             time: str | None = None, regression: bool = False) -> Table:
    """Read a NumPy archive; `inputs`, `targets`, `client` and `time` are names of arrays in it."""
    with reading(path), open(path, "rb") as file:
        return as_table(arrays(file, path), inputs=inputs, targets=targets, client=client, time=time,
                        regression=regression)


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
