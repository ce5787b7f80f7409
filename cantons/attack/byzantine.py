"""Who lies in a run, and how: the table [byzantine] of a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cantons.errors import InputError, unknown
from cantons.protocol import Recipe
from cantons.ranges import Count, check


class Byzantine(NamedTuple):
    """Some clients are liars."""

    attack: Recipe
    number: int | None = None  # how many, to be drawn
    clients: tuple[str, ...] | None = None  # or who

    def liars(self, names: Sequence[str], draw: np.random.Generator) -> np.ndarray:
        """Who of these clients lies, as booleans. Those of a smaller count are among those of a larger one."""
        places = {name: place for place, name in enumerate(names)}
        for name in self.clients or ():
            if name not in places:
                raise InputError(f"byzantine.clients: {unknown('client', name, places)}")
        number = self.number if self.clients is None else len(set(self.clients))
        if number is None or number >= len(names):
            raise InputError(f"byzantine has {number} liars among {len(names)} clients; leave at least one honest.")
        chosen = draw.permutation(len(names))[:number] if self.clients is None else [
            places[name] for name in self.clients]
        found = np.zeros(len(names), bool)
        found[chosen] = True
        return found


def byzantine(*, attack: Recipe, count: Count | None = None, clients: Sequence[str] | None = None) -> Byzantine:
    """Some clients lie in every round they take part in; metrics are over the honest ones.

    attack: what liars do, such as sign_flip.
    count: how many clients lie, drawn by the seed.
    clients: or which ones, by their names.
    """
    check("count", Count | None, count)
    if (count is None) == (clients is None):
        raise InputError("byzantine has a count of liars, or names them as clients; give one of the two.")
    if getattr(attack, "kind", None) != "attack":
        raise InputError("byzantine.attack is no attack; give one of cantons.attack, such as sign_flip(), or a recipe "
                         "made by a function decorated with @cantons.recipe.attack.")
    return Byzantine(attack, count, None if clients is None else tuple(clients))
