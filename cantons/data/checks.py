"""What can be wrong with a user's arrays, one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from cantons.errors import InputError, at_least
from cantons.protocol import PyTree

Where = Callable[[int], str]  # the number of a row -> words that help to find it

# Programs compute in 32 bits, and JAX wraps or overflows what does not fit without a word.
LARGEST = float(np.finfo(np.float32).max)
WHOLE = {"i": np.iinfo(np.int32), "u": np.iinfo(np.uint32)}


def first_names(names: Sequence[str]) -> str:
    """The first five names, and how many more there are.

    >>> first_names(["a", "b"]), first_names(list("abcdefg"))
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    rest = len(names) - 5
    return ", ".join(map(repr, names[:5])) + (f" and {rest} more" if rest > 0 else "")


def as_rows(inputs: PyTree, targets: PyTree, whose: str = "") -> tuple[PyTree, PyTree, int]:
    """The two as NumPy arrays of numbers, and the number of rows on which all of them agree."""
    both = jax.tree.map(np.asarray, (inputs, targets))
    sizes = []
    for what, tree in zip(("inputs", "targets"), both, strict=True):
        for leaf in jax.tree.leaves(tree):
            if leaf.ndim == 0:
                raise InputError(f"{what}{whose} hold a single value where an array with one row per example "
                                 "belongs; wrap lists in np.array.")
            if not is_real(leaf.dtype):
                raise InputError(f"{what}{whose} are of type {leaf.dtype}; turn them into numbers first.")
            if 0 in leaf.shape[1:]:
                raise InputError(f"{what}{whose} have shape {leaf.shape}, not one number in a row; give at least one.")
            sizes.append(len(leaf))
    if not sizes or len(set(sizes)) > 1:
        raise InputError(f"inputs and targets{whose} have {' and '.join(map(str, sizes)) or 'no'} rows; "
                         "give one row per example in every array.")
    return *both, sizes[0]


def as_array(what: str, values: object) -> np.ndarray:
    """One array, whatever it holds."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{what} cannot be made an array: {error}.") from error


def check_numbers(what: str, arrays: PyTree, where: Where) -> None:
    """No NaN and no infinity, and nothing that 32 bits cannot hold."""
    for leaf in jax.tree.leaves(arrays):
        if leaf.dtype.kind == "f":
            _refuse_any(what, leaf, ~np.isfinite(leaf), where)
    check_sizes(what, arrays, where)


def check_sizes(what: str, arrays: PyTree, where: Where) -> None:
    """Nothing that 32 bits cannot hold; NaN and infinity are the same in any number of bits."""
    for leaf in jax.tree.leaves(arrays):
        kind, wide = leaf.dtype.kind, leaf.dtype.itemsize > 4
        if wide and kind == "f":
            _refuse_any(what, leaf, np.isfinite(leaf) & (np.abs(leaf) > LARGEST), where)
        elif wide and kind in WHOLE:
            _refuse_any(what, leaf, (leaf < WHOLE[kind].min) | (leaf > WHOLE[kind].max), where)


def as_float32(what: str, values: np.ndarray, where: Where) -> np.ndarray:
    """The same numbers in single precision; what would become infinite there is refused."""
    if values.dtype.kind == "f":
        check_sizes(what, values, where)
    return values.astype(np.float32)


def _refuse_any(what: str, values: np.ndarray, bad: np.ndarray, where: Where) -> None:
    """Name the first number that is bad, if there is one."""
    if not bad.any():
        return
    row, *place = np.argwhere(bad)[0]
    value, where_it_is = values[(row, *place)], where(int(row))
    if value.dtype.kind != "f":
        limits = WHOLE[value.dtype.kind]
        raise InputError(f"{what} hold {value} in {where_it_is}; whole numbers of 32 bits go from {limits.min} to "
                         f"{limits.max}: make them floats, or number from 0 what they stand for.")
    if np.isfinite(value):
        raise InputError(f"{what} hold {value} in {where_it_is}; numbers of 32 bits go up to {LARGEST:.2g}: scale "
                         "them.")
    raise InputError(f"{what} hold {value} in {where_it_is}; remove such rows or fill in a number.")


def is_real(dtype: np.dtype) -> bool:
    """Real numbers and booleans; also those of fewer bits that NumPy does not know by itself, such as bfloat16."""
    return dtype.kind in "biuf" or (dtype.kind == "V" and jax.dtypes.issubdtype(dtype, np.number))


def as_labels(targets: PyTree, classes: int, where: Where) -> PyTree:
    """The targets as int32, all of them in 0..classes-1; of several to an example some may be -1, for none."""
    at_least("classes", classes, 2)

    def check(leaf: np.ndarray) -> np.ndarray:
        if leaf.dtype.kind not in "iub":
            raise InputError(f"targets are of type {leaf.dtype}, but labels of {classes} classes are "
                             "integers: convert them, or leave out classes for regression.")
        outside = (leaf < (-1 if leaf.ndim > 1 else 0)) | (leaf >= classes)
        if outside.any():
            row, *place = np.argwhere(outside)[0]
            raise InputError(f"targets hold label {leaf[(row, *place)]} in {where(int(row))}; "
                             f"labels of {classes} classes are 0 to {classes - 1}.")
        return leaf.astype(np.int32)

    return jax.tree.map(check, targets)
