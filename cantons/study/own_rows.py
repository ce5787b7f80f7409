"""Rows of a run's own data are encoded already: given as raw ones, they would be scaled a second time, in silence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cantons.data import Federation, kinds_of
from cantons.errors import InputError

LOOKED_AT = 3  # rows that scaling changes; raw ones that all happen to be in the data as well are not met
TELLING = 2  # numbers in them that raw rows do not have
FEW, DIGITS = 20, 5  # different numbers of a column, and digits of a number, up to which they may be met raw and scaled


def refuse_own_rows(data: Federation, rows: np.ndarray, inputs: np.ndarray) -> None:
    """Refuse `rows`, which scaling made `inputs`, if they are in the data of the run as they stand.

    A raw row of few-valued columns may equal the scaling of another one: with stars from 2 to 5, which become 0 to 1,
    one star looks like five. So some of their numbers must be such as no raw row has.
    """
    flat, scaled = _flat(rows), _flat(inputs)
    if flat.shape != scaled.shape:
        return
    changed = np.flatnonzero((flat != scaled).any(axis=1))[:LOOKED_AT]
    if (len(changed) and all(_holds(data, flat[row]) and not _holds(data, scaled[row]) for row in changed)
            and _are_telling(data, np.where(flat[changed] != scaled[changed], flat[changed], 0))):
        raise InputError("these rows are of the data that the run was given, which are scaled already, and here they "
                         "would be scaled again; say encoded=True, or give rows as they are in the file.")


def _are_telling(data: Federation, rows: np.ndarray) -> bool:
    """Whether some of these numbers are not met in raw rows.

    Such are fractions where raw numbers are whole, and those of many digits in a column with many different numbers.
    """
    found = 0
    for place in np.flatnonzero((rows != np.rint(rows)).any(axis=0)).tolist():
        column = np.concatenate([_single(inputs.reshape(len(inputs), -1)[:, place]) for inputs in _all_inputs(data)
                                 if inputs[0].size == rows.shape[1]])
        numbers = rows[:, place]
        if _was_whole(data, column, place):
            found += int(np.count_nonzero(numbers != np.rint(numbers)))
        elif len(np.unique(column)) > FEW:
            found += sum(np.float32(f"{number:.{DIGITS}g}") != number for number in numbers)
        if found >= TELLING:
            return True
    return False


def _was_whole(data: Federation, column: np.ndarray, place: int) -> bool:
    """Whether the numbers of a column were whole before they were scaled, as far as that is known."""
    scaling = None if data.encoding is None else data.encoding.scaling
    if scaling is None or scaling.clients:
        return False
    shift, size = (np.broadcast_to(each, data.input_shape).ravel()[place] for each in (scaling.shift, scaling.size))
    raw = column * size + shift
    return bool((np.abs(raw - np.rint(raw)) <= 1e-5 * np.abs(raw).max()).all())


def _holds(data: Federation, row: np.ndarray) -> bool:
    return any(_is_in(inputs, row) for inputs in _all_inputs(data))


def _all_inputs(data: Federation) -> Iterator[np.ndarray]:
    """Of all examples, set by set."""
    sets = [data.validation, *kinds_of(data.central).values(), *data.sets.values(),
            *(part for population in (data.clients, data.new) if population is not None
              for part in (population.train, population.test))]
    return (examples.inputs for examples in sets
            if examples is not None and isinstance(examples.inputs, np.ndarray) and len(examples.inputs))


def _is_in(inputs: np.ndarray, row: np.ndarray) -> bool:
    known = inputs.reshape(len(inputs), -1)  # no copy: there may be many
    if known.shape[1:] != row.shape:
        return False
    telling = np.abs(row).argmax()  # a number that few others have: the rest is compared for these alone
    alike = known[_single(known[:, telling]) == row[telling]]
    return bool((_single(alike) == row).all(axis=1).any())


def _flat(rows: np.ndarray) -> np.ndarray:
    """One line for each row."""
    return _single(np.asarray(rows).reshape(len(rows), -1))


def _single(numbers: np.ndarray) -> np.ndarray:
    """In the precision in which any of them may have been before."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)
