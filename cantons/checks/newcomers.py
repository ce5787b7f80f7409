"""A client that never acted is served too: it fits its private part before it predicts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from cantons.checks.case import Case
from cantons.checks.compare import difference, rows
from cantons.checks.finding import Failed, Skipped
from cantons.engine.client import keyed
from cantons.protocol import PyTree, State

ACTED, NEW = [0, 1], [2, 3, 4, 5, 6]
REMEDY = ("in `model`, fit the private part on `data` if the client has never acted (let its state count its visits), "
          "while the shared part stands still")


def a_new_client_fits_its_private_part_before_it_predicts(case: Case) -> None:
    stage = case.stage
    if not jax.tree.leaves(stage.start_private):
        raise Skipped("the problem has no private part")
    state = stage.play(stage.start, ACTED, rounds=3)
    private, losses = _private_parts(case, state)
    if not difference(rows(private, ACTED[:1]), rows(private, ACTED[1:])):
        raise Skipped("no client has a private part of its own, not even after it has acted")
    new = rows(private, NEW)
    start = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(NEW), *leaf.shape)), stage.start_private)
    if not difference(start, new):
        raise Failed("a client that has never acted predicts with the private part that all clients start with, though "
                     f"others have learned theirs; {REMEDY}.")
    fitted, unfitted = (float(np.mean(numbers[NEW])) for numbers in losses)
    if not fitted < unfitted:
        raise Failed(f"the private part with which a new client predicts has the loss {fitted:.3g} on its own training "
                     f"examples, and the one that all start with has {unfitted:.3g}; {REMEDY}, in steps that are "
                     "small enough.")


def _private_parts(case: Case, state: State) -> tuple[PyTree, tuple[np.ndarray, np.ndarray]]:
    """The private part each client predicts with; and the loss on its training examples with it and with the first."""
    session, stage = case.stage.session, case.stage
    algorithm, arrays = session.algorithm, session.arrays

    def each(arrays, message, client, index, key):
        data = arrays.train.client(index)
        shared, private = algorithm.personal_model(key, message, client, data).parts
        loss = [case.problem.loss(shared, part, data.full()) for part in (private, stage.start_private)]
        return private, tuple(loss)

    @jax.jit
    def all_models(arrays, state):
        message = algorithm.broadcast(arrays.key, state.server, arrays.datacenter(algorithm, arrays.key))
        ids = jnp.arange(stage.population)
        return jax.vmap(each, in_axes=(None, None, 0, 0, 0))(arrays, message, state.clients, ids,
                                                             keyed(arrays.key, ids))

    return jax.device_get(all_models(arrays, stage.restored(state)))
