"""Which devices a run uses, and how many clients each works on at once."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cantons.errors import InputError

AXIS = "clients"


def one_device_per_core() -> None:
    """On a CPU, give XLA one device per core; too late, and harmless, once JAX has computed anything."""
    with contextlib.suppress(RuntimeError):
        if getattr(jax.config, "jax_num_cpu_devices", -1) < 1:  # the user may have chosen already, be it a single one
            jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def mesh_of(devices: int | None) -> Mesh:
    """A line of `devices` devices, all by default."""
    one_device_per_core()
    there = jax.local_devices()
    if devices is not None and not 1 <= devices <= len(there):
        raise InputError(f"devices is {devices}; this process has {len(there)} ({there[0].platform}).")
    return Mesh(np.array(there[:devices]), (AXIS,))


def replicated(mesh: Mesh, tree: Any) -> Any:
    """A copy of every leaf on every device: placed before the first call, so that nothing compiles twice."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()), may_alias=False)


def divided(mesh: Mesh, tree: Any) -> Any:
    """Every device has its share of the rows of every leaf."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec(AXIS)), may_alias=False)


def floats(tree: Any) -> Any:
    """Floating-point NumPy leaves in JAX's default precision: float32, or float64 where it is switched on."""
    wanted = jnp.zeros(0).dtype

    def cast(leaf: Any) -> Any:
        of_numbers = isinstance(leaf, np.ndarray) and np.issubdtype(leaf.dtype, np.floating)
        return leaf.astype(wanted, copy=False) if of_numbers else leaf

    return jax.tree.map(cast, tree)
