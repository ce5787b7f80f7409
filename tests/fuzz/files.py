"""Files of every reader, damaged as bytes or in their structure, and read with options that may be nonsense too."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from data.samples import SAMPLES, VARIANTS
from fuzz.damage import damaged, damaged_json
from fuzz.values import nonsense, parameters
from hypothesis import strategies as st


class Sample(NamedTuple):
    """A sound file, or folder of files, of one reader."""

    reader: str
    path: str  # inside the folder of the case
    options: dict[str, Any]
    files: dict[str, bytes]


class ReaderCase(NamedTuple):
    reader: str
    path: str
    options: dict[str, Any]
    files: dict[str, bytes]
    damage: str


def make_samples(folder: Path) -> None:
    """Every sample in `folder`, and a list of them."""
    made = {}
    for label, (reader, make) in {**{name: (name, make) for name, make in SAMPLES.items()}, **VARIANTS}.items():
        place = folder / label
        place.mkdir(parents=True)
        path, options = make(place)
        made[label] = reader, str(path.relative_to(place)), options
    (folder / "samples.json").write_text(json.dumps(made))


def read_samples(folder: Path) -> dict[str, Sample]:
    return {label: Sample(reader, path, options, {str(file.relative_to(folder / label)): file.read_bytes()
                                                  for file in sorted((folder / label).rglob("*")) if file.is_file()})
            for label, (reader, path, options) in json.loads((folder / "samples.json").read_text()).items()}


@st.composite
def damaged_files(draw: st.DrawFn, samples: dict[str, Sample]) -> ReaderCase:
    sample = samples[draw(st.sampled_from(sorted(samples)))]
    files, options, said = dict(sample.files), dict(sample.options), []
    if draw(st.integers(0, 9)):
        name = draw(st.sampled_from(sorted(files)))
        suffix = Path(name).suffix
        if draw(st.integers(0, 15)) == 0:
            del files[name]
        elif suffix in STRUCTURED and draw(st.booleans()):
            files[name] = draw(STRUCTURED[suffix](files[name]))
        elif suffix == ".json" and draw(st.integers(0, 3)):
            files[name] = draw(damaged_json(files[name]))
        else:
            files[name] = draw(damaged(files[name]))
        said.append(name)
    if draw(st.integers(0, 3)) == 0:
        option = draw(st.sampled_from([each.name for each in parameters("data", sample.reader) if each.name != "path"]))
        options[option] = draw(nonsense)
        said.append(option)
    return ReaderCase(sample.reader, sample.path, options, files, ", ".join(said))


def play(case: ReaderCase, folder: Path) -> Any:
    """Write the files and read them, as a study would."""
    from cantons.study.read import check_part
    from cantons.study.registry import make

    for name, content in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    import tomllib

    from fuzz.studies import as_toml

    from cantons.errors import InputError

    try:  # what a TOML file cannot hold, no study can ask for
        table = tomllib.loads(as_toml({"data": {"name": case.reader, "path": str(folder / case.path), **case.options}}))
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise InputError("not TOML") from error
    return make("data", check_part(f"{case.reader} case", "data", table["data"]))


ARRAYS: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda a: a[:0], lambda a: a[:1], lambda a: a[:-1], lambda a: np.array(1.0), lambda a: a.astype(object),
    lambda a: np.zeros((len(a), 0)), lambda a: np.zeros((len(a), 2, 2)), lambda a: np.zeros(len(a), complex),
    lambda a: np.full(len(a), np.nan), lambda a: np.full(len(a), np.inf), lambda a: np.full(len(a), 2**62),
    lambda a: np.arange(len(a)).astype("datetime64[s]"), lambda a: np.array(["x"] * len(a)),
                                                    lambda a: np.array([b"x"] * len(a)),
    lambda a: np.zeros(len(a), [("a", int), ("b", float)]), lambda a: np.zeros(len(a), "V4"),
    lambda a: np.zeros(len(a), bool),
    lambda a: np.zeros(len(a), np.uint64) + np.uint64(2**64 - 1), lambda a: np.arange(len(a)) - 5,
                                                    lambda a: np.ones(len(a), np.float16),
    lambda a: np.full(len(a), 1e300), lambda a: np.full(len(a), -1), lambda a: a[::-1],
    lambda a: np.concatenate([a, a])]
HEADER = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 3), }"
HUGE = b"\x93NUMPY\x01\x00v\x00" + HEADER.ljust(117) + b"\n"


@st.composite
def npz_with_odd_arrays(draw: st.DrawFn, content: bytes) -> bytes:
    import zipfile

    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    name, how = draw(st.sampled_from(sorted(arrays))), draw(st.integers(0, 12))
    buffer = io.BytesIO()
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name + "2"] = arrays.pop(name)
    elif how > 3:
        arrays[name] = draw(st.sampled_from(ARRAYS))(arrays[name])
    np.savez(buffer, **arrays)
    if how in (2, 3):  # a member that is no array, or says that it is a huge one
        with zipfile.ZipFile(io.BytesIO(buffer.getvalue())) as old, zipfile.ZipFile(buffer := io.BytesIO(), "w") as new:
            for member in old.namelist():
                odd = b"hello" if how == 2 else HUGE
                new.writestr(member, odd if member == f"{name}.npy" else old.read(member))
    return buffer.getvalue()


@st.composite
def hdf5_with_odd_things(draw: st.DrawFn, content: bytes) -> bytes:
    import h5py

    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+") as file:
        places: list[str] = []
        file.visit(places.append)
        place, how = draw(st.sampled_from(sorted(places))), draw(st.integers(0, 9))
        array = file[place][()] if isinstance(file[place], h5py.Dataset) else np.zeros(3)
        del file[place]
        if how == 1:
            file.create_group(place)
        elif how == 2:
            file[place] = h5py.SoftLink("/nowhere")
        elif how == 3:
            file[place] = h5py.ExternalLink("elsewhere.h5", "/x")
        elif how == 4:
            file[place] = h5py.SoftLink("/examples")
        elif how == 5:
            file[place] = h5py.Empty("f")
        elif how > 5:
            odd = draw(st.sampled_from(ARRAYS))(array)
            if odd.dtype.kind not in "OUM":
                file[place] = odd
            else:
                file[place] = ["é"] * len(odd)
    return buffer.getvalue()


@st.composite
def parquet_with_odd_columns(draw: st.DrawFn, content: bytes) -> bytes:
    import datetime
    import decimal

    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(content))
    name, rows = draw(st.sampled_from(table.column_names)), table.num_rows
    columns = [[None] * rows, [{"a": 1}] * rows, [[1.0]] * (rows - 1) + [[1.0, 2.0]], [[]] * rows, [[[1]]] * rows,
               [b"\xff"] * rows,
               [datetime.date(2020, 1, 1)] * rows, [datetime.datetime(2020, 1, 1)] * rows,
               [decimal.Decimal("1.5")] * rows,
               [True] * rows, ["x"] * rows, [float("nan")] * rows, [2**63 - 1] * rows, [1] + [None] * (rows - 1),
               [-1] * rows]
    how = draw(st.integers(0, len(columns) + 2))
    if how == len(columns):
        table = table.slice(0, 0)
    elif how == len(columns) + 1:
        table = table.drop_columns([name])
    elif how == len(columns) + 2:
        table = table.append_column(name, table[name])
    else:
        table = table.set_column(table.column_names.index(name), name, pyarrow.array(columns[how]))
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


STRUCTURED = {".npz": npz_with_odd_arrays, ".h5": hdf5_with_odd_things, ".parquet": parquet_with_odd_columns}


def describe(case: ReaderCase) -> str:
    shown = {name: content if len(content) < 2000 else content[:2000] + b"..." for name, content in case.files.items()}
    options = json.dumps(case.options, default=str)
    return f"{case.reader}(path={case.path!r}, options={options}); damaged: {case.damage}\n{shown}"
