"""Learning from a stream: who is silent learns nothing, and every step is charged before it is learned from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from cantons.checks.case import Case
from cantons.checks.compare import difference
from cantons.checks.finding import Failed
from cantons.clock import online
from cantons.engine import Local
from cantons.engine.client import keyed
from cantons.engine.online import progressive_scores
from cantons.engine.round import round_keys

SILENT = 3


def a_client_that_is_always_silent_never_learns(case: Case) -> None:
    population = case.data.population
    stage = case.on(Local(devices=1), online(uplink=1, active=np.arange(population)[None] != SILENT))
    algorithm, before, after = case.algorithm, stage.start, stage.advance(stage.start, 10)
    charged = {name: values[SILENT] for name, values in after.in_flight.scores.items() if values[SILENT] != 0}
    if charged:
        raise Failed(f"a client without examples is charged {charged}; charge only what it met.")
    sent = int(after.uploads[SILENT])
    if sent != (0 if algorithm.idle_upload is None else 10):  # who is silent may still be there
        raise Failed(f"a client without examples has sent {sent} uploads; it has nothing to send.")
    key, data = jax.random.key(0), stage.session.arrays.train.client(SILENT)
    message = algorithm.broadcast(key, before.server, stage.session.arrays.datacenter(algorithm, key))
    private = []
    for state in (before, after):
        client = jax.tree.map(lambda leaf: leaf[SILENT], state.clients)
        private.append(algorithm.model(key, message, client, data)[1])
    found = difference(*private)
    if found:
        raise Failed(f"the private part of a client that never met an example has changed: {found}; let `receive` "
                     "leave it alone unless the client is told of an upload of its own.")


def a_step_is_charged_before_it_is_learned_from(case: Case) -> None:
    """The first charge is that of the models everybody begins with, whatever the examples teach."""
    stage = case.stage
    algorithm, arrays, start = case.algorithm, stage.session.arrays, stage.start
    keys = keyed(round_keys(arrays.key, jnp.int32(0)).client, jnp.arange(stage.population))
    message = algorithm.broadcast(arrays.key, start.server, arrays.datacenter(algorithm, arrays.key))
    expected = []
    for index in stage.everybody:
        data = arrays.train.client(index).at(arrays.key, jnp.int32(0), 1, "cycle")
        client = jax.tree.map(lambda leaf, index=index: leaf[index], start.clients)
        expected.append(progressive_scores(case.problem, algorithm, keys[index], message, client, data)["loss"])
    charged = stage.advance(start, 1).in_flight.scores["loss"]
    found = difference(np.asarray(expected), charged, digits=1e-12)
    if found:
        raise Failed(f"the first step is not charged to the model that its client began with ({found}); score with the "
                     "state before `client_update`.")
