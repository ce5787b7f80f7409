"""LEAF's JSON: users, num_samples, and user_data with the lists x and y of each user.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. FEMNIST and the synthetic set have numbers as x and
labels as y. Shakespeare has strings as x and the character that follows each as y.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cantons.data.checks import as_float32
from cantons.data.federation import Federation
from cantons.data.prepare.vocabulary import fit_vocabulary, number_characters
from cantons.data.provenance import recorded
from cantons.data.read.blocks import Block, join
from cantons.data.read.files import decoding, list_files, read_text, reading
from cantons.data.split.divide import NaturalDivision, from_table
from cantons.data.table import Table, with_labels
from cantons.errors import InputError
from cantons.options import Flat


@recorded
def leaf(
    path: str | Path,
    *,
    regression: bool = False,
    division: Flat[NaturalDivision] = NaturalDivision(),
) -> Federation:
    """A JSON file of LEAF, a folder of them, or a folder with the folders train and test.

    The folder test is what the file marks as test. Strings become numbers of characters, 0 for those that no client
    trains with.

    path: the file or folder.
    regression: targets are numbers; otherwise they are labels.
    """
    table = read_leaf(path, regression=regression)
    whole = from_table(table, division, name=Path(path).stem)
    return whole if table.vocabulary is None else fit_vocabulary(whole)


def read_leaf(path: str | Path, *, regression: bool = False) -> Table:
    """Read all users; those who stand in several files have the rows of all."""
    with reading(path):
        table = join([block for file, test in _files(Path(path)) for block in _users(file, test)], path)
        return _characters(table, path) if table.inputs.dtype.kind == "U" else with_labels(table, regression, path)


def _files(path: Path) -> list[tuple[Path, bool]]:
    """The files to read, and whether each is for testing."""
    if not path.is_dir():
        return [(path, False)]
    if not (path / "train").is_dir():
        return [(file, False) for file in list_files(path, ".json")]
    folders = [(path / name, name == "test") for name in ("train", "test") if (path / name).is_dir()]
    return [(file, test) for folder, test in folders for file in list_files(folder, ".json")]


def _users(path: Path, test: bool) -> Iterator[Block]:
    text = read_text(path)
    with decoding(path, "which should be JSON"):
        content = json.loads(text)
    for key, kind in (("users", list), ("num_samples", list), ("user_data", dict)):
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise InputError(f"{path} has no {kind.__name__} {key!r}; LEAF's files have the lists users and "
                             "num_samples, and user_data with x and y of each user.")
    if len(content["users"]) != len(content["num_samples"]):
        raise InputError(f"{path} has {len(content['users'])} users and {len(content['num_samples'])} num_samples; "
                         "give one number per user.")
    for user, size in zip(content["users"], content["num_samples"], strict=True):
        data = content["user_data"].get(str(user))
        if not isinstance(data, dict) or "x" not in data or "y" not in data:
            raise InputError(f"user_data in {path} has no x and y for user {user!r}; give both.")
        block = Block(str(user), _array(data["x"], f"x of user {user!r} in {path}", single=True),
                      _array(data["y"], f"y of user {user!r} in {path}", single=False), test)
        if len(block.targets) != size:
            raise InputError(f"num_samples in {path} is {size} for user {user!r}, who has {len(block.targets)} y; "
                             "is the file whole?")
        yield block


def _array(values: Any, which: str, *, single: bool) -> np.ndarray:
    """Numbers or words; floats in `single` precision, except for labels, which must stay what they are."""
    try:
        array = np.array(values)
    except (ValueError, TypeError, OverflowError):
        array = np.empty(0, object)  # lists of unequal length
    if array.ndim == 0 or array.dtype.kind not in "biufU":
        raise InputError(f"{which} is no list of numbers, of strings or of equally long lists of numbers; "
                         "mend or remove it.")
    if array.dtype.kind != "f":
        return array
    return as_float32(which, array, lambda row: f"row {row} (from 0)") if single else array


def _characters(table: Table, path: str | Path) -> Table:
    """Strings and the characters that follow them, as numbers of characters."""
    x, y = table.inputs, table.targets
    if x.ndim != 1 or y.dtype != np.dtype("U1") or not (_equally_long(x) and _equally_long(y)):
        raise InputError(f"x in {path} are strings; give numbers, or strings of equal length with the next character "
                         "as y.")
    points = np.column_stack([text.view(np.uint32).reshape(len(text), -1) for text in (x, y)])
    numbers, symbols = number_characters(points)
    return table._replace(inputs=numbers[:, :-1], targets=numbers[:, -1], vocabulary=symbols)


def _equally_long(strings: np.ndarray) -> bool:
    return bool((np.char.str_len(strings) == strings.dtype.itemsize // 4).all())
