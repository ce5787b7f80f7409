"""A clock from outside the package: clients work in shifts, one group after the other."""

import jax.numpy as jnp

from cantons.errors import at_least
from cantons.protocol import Clock, Plan
from cantons.recipe import clock


@clock
def shifts(population, *, groups: int = 2) -> Clock:
    """In round t the clients whose number leaves the rest t when divided by `groups` take part.

    groups: how many shifts there are.
    """
    at_least("groups", groups, 1)
    slots = -(-population // groups)

    def plan(arrays, key, round):
        ids = round % groups + groups * jnp.arange(slots, dtype=jnp.int32)
        there = ids < population
        return Plan(jnp.minimum(ids, population), there, there.astype(jnp.int32), there)

    return Clock(slots, population % groups == 0, (), plan, actors_hear=True)
