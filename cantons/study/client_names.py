"""Which client is meant: by its name, or by its number where no client's name is a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cantons.data.read.columns import is_number
from cantons.errors import InputError, shown, unknown


def index_of(client: int | str, names: Sequence[str], new: Sequence[str] = ()) -> int:
    """Where a client stands among `names`; `new` are those that were held out of training.

    >>> index_of(5, ["4", "5"]), index_of("5", ["4", "5"]), index_of(1, ["north", "south"])
    (1, 1, 1)
    """
    if not isinstance(client, str | int | np.integer) or isinstance(client, bool):
        raise InputError(f"client is {shown(client)}; give the name of a client, or its number.")
    name = client if isinstance(client, str) else shown(client)
    if name in names:
        return names.index(name)
    if name in new:
        raise InputError(f"client {shown(name)} was held out of training, and has no model of its own. Leave the "
                         "client out to predict as a stranger does, or train in Python on data in which it takes part, "
                         "beginning where this run ended: run(..., initial=...).")
    # Whoever gives a number may mean a name that is one, be it written 7, 007 or 7.0.
    places = {} if any(map(is_number, (*names, *new))) else {str(place): place for place in range(len(names))}
    if name not in places:
        raise unknown("client", name, names)
    return places[name]
