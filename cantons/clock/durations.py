"""How long a client's job takes: it follows from the seed, the client and the job's number, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError
from cantons.protocol import Array, Key, PyTree
from cantons.ranges import Named, Range, checked

SHORTEST, LONGEST = 1e-9, 1e9  # so that sums and differences of times have digits to spare
Deviation = Annotated[float, Range(0, 10)]
Time = Annotated[float, Range(SHORTEST, LONGEST)]


class Duration(NamedTuple):
    arrays: PyTree
    # (arrays, a key of the client, a key of the job, the client, the job's number) -> how long it takes
    draw: Callable[[PyTree, Key, Key, Array, Array], Array]


@checked
def constant(value: Time = 1.0) -> Duration:
    """All jobs take as long."""
    return Duration((), lambda arrays, own, key, client, number: jnp.full((), value, jnp.float32))


@checked
def log_normal(spread: Deviation = 1.0, jitter: Deviation = 0.0) -> Duration:
    """The median is 1; `spread` is between clients, `jitter` between the jobs of one."""

    def draw(arrays, own, key, client, number):
        drawn = spread * jax.random.normal(own, (), jnp.float32) + jitter * jax.random.normal(key, (), jnp.float32)
        return jnp.clip(jnp.exp(drawn), SHORTEST, LONGEST)

    return Duration((), draw)


@checked
def trace(path: str) -> Duration:
    """As they were measured: an npz file with an array `durations`, [clients] or [clients, jobs]."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return _of_array(file["durations"])
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise InputError(f"cannot read an array 'durations' from {path}: {error}.") from error


DURATIONS: dict[str, Callable[..., Duration]] = {"constant": constant, "log_normal": log_normal, "trace": trace}
Durations = (Annotated[str, Named("duration", DURATIONS)] | Annotated[dict, Named("duration", DURATIONS)]
             | Sequence[Any] | np.ndarray)


def durations_of(given: Any, population: int) -> Duration:
    """The durations that a name, a table or an array describes."""
    if not isinstance(given, str | Mapping):
        found = _of_array(given)
    else:
        options = {"name": given} if isinstance(given, str) else dict(given)
        try:
            found = DURATIONS[options.pop("name")](**options)
        except TypeError as error:
            raise InputError(f"durations is {given!r}; a trace has a path.") from error
    if not isinstance(found.arrays, tuple) and len(found.arrays) != population:
        raise InputError(f"durations has {len(found.arrays)} rows for {population} clients; give one for each.")
    return found


def _of_array(durations: Any) -> Duration:
    try:
        rows = np.asarray(durations)
    except ValueError:  # lists of unequal length
        rows = np.empty(0, object)
    if rows.ndim not in (1, 2) or not rows.size or rows.dtype.kind not in "iuf":
        raise InputError("durations needs one number for each client, or a row of numbers, all of one length.")
    rows = rows.reshape(len(rows), -1)
    odd = np.argwhere(~((rows >= SHORTEST) & (rows <= LONGEST)))
    if len(odd):
        client, job = odd[0]
        raise InputError(f"durations has {rows[client, job]} for job {job} of client {client}; a job takes a time "
                         f"above 0, from {SHORTEST:g} to {LONGEST:g}.")
    rows = rows.astype(np.float32)
    return Duration(rows, lambda arrays, own, key, client, number: arrays[
        jnp.minimum(client, len(rows) - 1), number % rows.shape[1]])
