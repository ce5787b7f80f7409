"""What can be wrong with a user's arrays, one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from cantons.errors import InputError, at_least
from cantons.protocol import PyTree

Where = Callable[[int], str]  # the number of a row -> words that help to find it


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
            if leaf.dtype.kind in "OSUMm":
                raise InputError(f"{what}{whose} are of type {leaf.dtype}; turn them into numbers first.")
            sizes.append(len(leaf))
    if not sizes or len(set(sizes)) > 1:
        raise InputError(f"inputs and targets{whose} have {' and '.join(map(str, sizes)) or 'no'} rows; "
                         "give one row per example in every array.")
    return *both, sizes[0]


def finite(what: str, arrays: PyTree, where: Where) -> None:
    """No NaN and no infinity in any array of floats."""
    for leaf in jax.tree.leaves(arrays):
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
            row, *place = np.argwhere(~np.isfinite(leaf))[0]
            raise InputError(f"{what} hold {leaf[(row, *place)]} in {where(int(row))}; "
                             "remove such rows or fill in a number.")


def as_labels(targets: PyTree, classes: int, where: Where) -> PyTree:
    """The targets as int32, all of them in 0..classes-1."""
    at_least("classes", classes, 2)

    def check(leaf: np.ndarray) -> np.ndarray:
        if leaf.dtype.kind not in "iub":
            raise InputError(f"targets are of type {leaf.dtype}, but labels of {classes} classes are "
                             "integers: convert them, or leave out classes for regression.")
        outside = (leaf < 0) | (leaf >= classes)
        if outside.any():
            row, *place = np.argwhere(outside)[0]
            raise InputError(f"targets hold label {leaf[(row, *place)]} in {where(int(row))}; "
                             f"labels of {classes} classes are 0 to {classes - 1}.")
        return leaf.astype(np.int32)

    return jax.tree.map(check, targets)
