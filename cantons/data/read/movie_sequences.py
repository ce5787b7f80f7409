"""Movies in the order in which a user rated them: which comes next?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cantons.data.federation import Federation
from cantons.data.provenance import recorded
from cantons.data.read.files import reading
from cantons.data.read.movielens import read_movielens
from cantons.data.split.divide import NaturalDivision, fraction_held, from_table
from cantons.data.split.holdout import mark_last_rows
from cantons.data.split.partition import natural
from cantons.data.table import Table
from cantons.errors import InputError
from cantons.memory import require
from cantons.options import Flat
from cantons.ranges import Count, check

NOTHING = -1  # where a context has fewer movies


@recorded
def movie_sequences(
    path: str | Path,
    *,
    context: Count = 10,
    most: Count | None = None,
    division: Flat[NaturalDivision] = NaturalDivision(test=0.2),
) -> Federation:
    """The movies each user rated, in order of time; an example is some of them and the one that comes next.

    Users are the clients. Every movie of a user but the first is a target once, and the latest are the test set. Inputs
    are numbers of movies, whose ids are in `vocabulary`; a context with fewer movies begins with -1.

    path: of ratings, as `movielens` takes it.
    context: how many movies before the next one are looked at.
    most: keep the latest examples of a user, so many at most: then a user looks at `most` + `context` movies at most,
        and clients with so many `rows` have room for all of them.
    """
    ratings = read_movielens(path)
    with reading(path):
        table = latest(sequences(ratings, context), most)
    assert table.clients is not None
    users, names = natural(table.clients)
    test = fraction_held(division.test)
    table = table._replace(test=mark_last_rows(test, users, len(names)))
    whole = from_table(table, division._replace(test=None), name=Path(path).stem)
    return replace(whole, test_set=f"the latest {100 * test:g}% of each client's own examples")


def latest(table: Table, most: int | None) -> Table:
    """The last rows of each client, at most so many; a client's rows lie together."""
    if most is None:
        return table
    check("most", Count, most)
    assert table.clients is not None and table.times is not None
    following = np.arange(len(table.clients)) + most
    inside = following < len(table.clients)
    kept = ~inside | (table.clients[np.where(inside, following, 0)] != table.clients)
    return table._replace(inputs=table.inputs[kept], targets=table.targets[kept], clients=table.clients[kept],
                          times=table.times[kept])


def sequences(ratings: Table, context: int) -> Table:
    """Each user's movies in order of time as rows of `context` movies, with the next as their target.

    >>> rated = Table(np.array([3, 1, 2, 0]), np.ones(4), None, np.array([7, 7, 7, 9]), times=np.array([3, 1, 2, 5]))
    >>> found = sequences(rated, 2)
    >>> found.inputs, found.targets, found.clients
    (array([[-1,  1], [ 1,  2]], dtype=int32), array([2, 3], dtype=int32), array([7, 7]))
    """
    check("context", Count, context)
    assert ratings.clients is not None and ratings.times is not None
    order = np.lexsort((ratings.times, ratings.clients))  # of ratings at one time, the first in the file is first
    movies, users = ratings.inputs[order].astype(np.int32), ratings.clients[order]
    rows = np.flatnonzero(users[1:] == users[:-1]) + 1  # all that have one before them
    if not len(rows):
        raise InputError("no user has rated two movies, so none comes next; give more ratings.")
    require(4 * 8 * len(rows) * context, f"{len(rows)} examples of {context} movies each")
    places = rows[:, None] - np.arange(context, 0, -1)
    before = np.maximum(places, 0)
    own = (places >= 0) & (users[before] == users[rows][:, None])
    kinds = np.arange(len(ratings.vocabulary) if ratings.vocabulary is not None else int(movies.max()) + 1)
    return Table(np.where(own, movies[before], NOTHING).astype(np.int32), movies[rows], kinds, users[rows],
                 times=ratings.times[order][rows], vocabulary=ratings.vocabulary)
