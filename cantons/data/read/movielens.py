"""MovieLens: every user is a client, who rates movies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from cantons.data.checks import check_numbers
from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.read.columns import Columns, numbers
from cantons.data.read.csv import cells
from cantons.data.read.files import reading
from cantons.data.read.npz import arrays
from cantons.data.split.divide import NaturalDivision, fraction_held, from_table
from cantons.data.split.holdout import mark_last_rows
from cantons.data.split.partition import natural
from cantons.data.table import EXACT, Table
from cantons.errors import InputError, one_of
from cantons.options import Flat

Target = Literal["rating", "like"]
LIKED = 4  # stars, or more


@recorded
def movielens(
    path: str | Path,
    *,
    target: Target = "rating",
    by_time: bool = False,
    division: Flat[NaturalDivision] = NaturalDivision(test=0.2),
) -> Federation:
    """Ratings of movies by users, who are the clients. The input is the number of a movie, whose id is in `vocabulary`.

    path: ratings.csv, ratings.dat, the folder of either, or movielens1m.npz.
    target: predict the "rating", or "like": 1 from four stars on and else 0.
    by_time: put the rows in order of time, and test on the latest of each user.
    """
    table = read_movielens(path, target=target)
    if not by_time:
        return from_table(table, division, name=Path(path).stem)
    test = fraction_held(division.test)
    whole = from_table(_latest_as_test(table, test), division._replace(test=None), name=Path(path).stem)
    return replace(whole, test_set=f"the latest {100 * test:g}% of each client's own examples")


def read_movielens(path: str | Path, *, target: Target = "rating") -> Table:
    """Read all ratings, with their users and times."""
    one_of("target", target, get_args(Target))
    with reading(path):
        user, movie, rating, time = _ratings(_file(Path(path)))
        for what, values in (("users", user), ("movies", movie)):
            if values.dtype.kind not in "iu":
                odd = values[(values != np.floor(values)) | ~np.isfinite(values) | (np.abs(values) > EXACT)]
                raise InputError(f"{what} hold {odd[0] if len(odd) else values[0]}; ids are whole numbers.")
        for what, values in (("ratings", rating), ("timestamps", time)):
            check_numbers(what, values.astype(np.float64), lambda row: f"row {row} (from 0)")
    ids, inputs = np.unique(movie, return_inverse=True)
    liked = target == "like"
    targets = (rating >= LIKED).astype(np.int32) if liked else rating.astype(np.float32)
    return Table(inputs.astype(np.int32), targets, np.arange(2) if liked else None, user,
                 times=time.astype(np.float64), vocabulary=tuple(map(str, ids)))


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in ("ratings.csv", "ratings.dat"):
        if (path / name).exists():
            return path / name
    raise InputError(f"{path} holds neither ratings.csv nor ratings.dat; point path to where they are.")


def _ratings(file: Path) -> list[np.ndarray]:
    """Users, movies, ratings and times."""
    if file.suffix == ".npz":
        with open(file, "rb") as archive:
            return _fields(arrays(archive, file), ["user", "movie", "rating", "timestamp"])
    names = ["userId", "movieId", "rating", "timestamp"]
    with open(file, encoding="utf-8-sig", newline="") as lines:
        if file.suffix == ".csv":
            return _fields(cells(lines, file, ","), names)
        return _fields(cells((line.replace("::", "\t") for line in lines), file, "\t", names), names)


def _fields(columns: Columns, names: Sequence[str]) -> list[np.ndarray]:
    fields = [numbers(columns, name) for name in names]
    if len({field.shape for field in fields}) > 1 or fields[0].ndim != 1:
        raise InputError(f"{', '.join(names)} in {columns.source} have shapes "
                         f"{', '.join(str(field.shape) for field in fields)}; give one of each per rating.")
    return fields


def _latest_as_test(table: Table, fraction: float) -> Table:
    """Order the rows by user and time, and mark the last ones of each user."""
    assert table.clients is not None and table.times is not None
    users, names = natural(table.clients)
    order = np.lexsort((table.times, users))
    return table._replace(inputs=table.inputs[order], targets=table.targets[order], clients=table.clients[order],
                          times=table.times[order], test=mark_last_rows(fraction, users[order], len(names)))
