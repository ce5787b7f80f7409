"""NumPy archives: arrays with names, one row per example."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.read.columns import Columns, as_table
from cantons.data.read.files import decoding, reading, shorten
from cantons.data.split.divide import Division, from_table
from cantons.data.table import Table
from cantons.errors import InputError
from cantons.memory import require
from cantons.options import Flat
from cantons.ranges import Count

ARRAY = b"\x93NUMPY"  # how a file with a single array begins


@recorded
def npz(
    path: str | Path,
    *,
    inputs: str = "x",
    targets: str = "y",
    client: str | None = None,
    regression: bool = False,
    shape: Sequence[Count] | None = None,
    division: Flat[Division] = Division(test=0.2),
) -> Federation:
    """A NumPy archive, divided by its array of ids `client`, or into `clients` by another partition.

    path: the file.
    inputs: the array to learn from, of any shape.
    targets: the array to predict.
    client: the array that says whose each row is.
    regression: targets are numbers; otherwise they are labels.
    shape: of one input, where the array has another one with as many numbers: [28, 28] for images in rows of 784.
    """
    table = read_npz(path, inputs=inputs, targets=targets, client=client, regression=regression)
    if shape is not None:
        own = table.inputs.shape[1:]
        if prod(shape) != prod(own):
            raise InputError(f"shape is {list(shape)}, and an input in {path} has shape {list(own)}; give a shape of "
                             f"{prod(own)} numbers.")
        table = table._replace(inputs=table.inputs.reshape(-1, *shape))
    return from_table(table, division, name=Path(path).stem)


def read_npz(path: str | Path, *, inputs: str = "x", targets: str = "y", client: str | None = None,
             time: str | None = None, regression: bool = False) -> Table:
    """Read a NumPy archive; `inputs`, `targets`, `client` and `time` are names of arrays in it."""
    with reading(path), open(path, "rb") as file:
        return as_table(arrays(file, path), inputs=inputs, targets=targets, client=client, time=time,
                        regression=regression)


def arrays(file: BinaryIO, path: str | Path) -> Columns:
    """The arrays of a NumPy archive, to be read while the file is open."""
    if file.read(len(ARRAY)) == ARRAY:
        raise InputError(f"{path} holds a single array without a name; write an npz file with np.savez.")
    file.seek(0)
    if not zipfile.is_zipfile(file):
        raise InputError(f"cannot read {path}: it is not an npz file; write one with np.savez.")
    with decoding(path, "which should be an npz file as np.savez writes it"):
        archive = np.lib.npyio.NpzFile(file, own_fid=False, allow_pickle=False)
        assert archive.zip is not None
        sizes = {member.filename.removesuffix(".npy"): member.file_size for member in archive.zip.infolist()}

    def read(name: str) -> np.ndarray:
        require(sizes.get(name, 0), f"array {name!r} in {path}")  # a few bytes may unpack to a great many
        try:
            with decoding(path, "which should be an npz file"):
                values = archive[name]
        except (InputError, OSError, EOFError) as error:
            if "Object arrays" in str(error):
                raise InputError(f"array {name!r} in {path} is pickled, and unpickling can run any code; "
                                 "save it again as numbers or strings.") from error
            raise InputError(f"array {name!r} in {path} is damaged: {shorten(error.__cause__ or error)}.") from error
        if not isinstance(values, np.ndarray):
            raise InputError(f"{name!r} in {path} is no array; write it with np.savez.")
        return values

    return Columns(path, archive.files, read, "array")
