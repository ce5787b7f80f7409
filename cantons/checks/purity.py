"""Functions are pure: what they return follows from what they are given, and nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.checks.case import Case
from cantons.checks.compare import blank, difference
from cantons.checks.finding import Failed
from cantons.engine.devices import floats
from cantons.engine.round import Arrays
from cantons.protocol import Algorithm


def the_same_call_gives_the_same_bits(case: Case) -> None:
    stage = case.stage
    first, second = (stage.advance(case.warm, 2) if case.clocks else stage.play(case.warm, (1, 4, 6))
                     for _ in range(2))
    found = difference(first, second)
    if found:
        raise Failed(f"two runs from the same state end differently: {found}; draw only from the keys that functions "
                     "are given, and keep nothing outside the states.")


def an_algorithm_built_twice_does_the_same(case: Case) -> None:
    first, second, again = case.algorithm, case.algorithm, case.algorithm
    programs = [_programs(case, first), _programs(case, second), _programs(case, again), _programs(case, again)]
    for program in programs[1:]:
        for name, text in programs[0].items():
            if program[name] != text:
                raise Failed(f"`{name}` does something else when it is called again with the same arguments; draw only "
                             "from the key it is given, and keep nothing outside the states: no counters, no lists, no "
                             "numpy.random.")


def functions_leave_their_arguments_alone(case: Case) -> None:
    def watch(name: str, call: Callable[..., Any], *given: Any) -> Any:
        before: Any = jax.tree.flatten(given)
        result = call(*given)
        after: Any = jax.tree.flatten(given)
        if after[1] != before[1] or any(now is not then for now, then in zip(after[0], before[0], strict=True)):
            raise Failed(f"`{name}` changes what it is given; make a new value: _replace of a NamedTuple, or "
                         "{**old, ...} of a dict.")
        return result

    jax.eval_shape(lambda: _call_each(case, case.algorithm, watch))


def _programs(case: Case, algorithm: Algorithm) -> dict[str, str]:
    """The program behind each function, as text."""
    found: dict[str, str] = {}

    def trace(name: str, call: Callable[..., Any], *given: Any) -> Any:
        program, result = jax.make_jaxpr(call, return_shape=True)(*given)
        numbers = "".join(str(np.asarray(constant).tobytes()) for constant in program.consts
                          if isinstance(constant, np.ndarray | jax.Array) and jnp.issubdtype(constant.dtype, np.number))
        found[name] = re.sub(r"0x[0-9a-f]+", "", str(program)) + numbers  # but for where functions lie in memory
        return result

    _call_each(case, algorithm, trace)
    return found


def _call_each(case: Case, algorithm: Algorithm, call: Callable[..., Any]) -> None:
    """Call the functions of a round one after the other, through `call(name, function, *given)`."""
    key, parts = jax.random.key(0), jax.eval_shape(case.problem.init, jax.random.key(1))
    parts = blank(parts)
    arrays = jax.tree.map(jnp.asarray, floats(Arrays(case.data.train, case.data.central, (), key)))
    train, central = arrays.train, arrays.datacenter(algorithm, key)
    data = train.client(0).at(key, jnp.zeros((), jnp.int32), 1, "cycle") if case.clocks else train.client(0)
    server = call("init_server", algorithm.init_server, key, *parts)
    client = call("init_client", algorithm.init_client, key, *parts)
    call("adopt", algorithm.adopt, client)
    message = call("broadcast", lambda key, server: algorithm.broadcast(key, server, central), key, server)
    request = call("request", lambda key, client: algorithm.request(key, client, data), key, client)
    sent = call("select", algorithm.select, message, request)
    call("client_update", lambda key, sent, client: algorithm.client_update(key, sent, client, data), key, sent,
         client)
    call("model", lambda key, sent, client: algorithm.model(
        key, sent, client, data.hidden() if case.clocks else data), key, message, client)
