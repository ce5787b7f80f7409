"""Run one function for every client of a cohort: in turn, in groups, or all at once, over the devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun
from jax.sharding import Mesh, PartitionSpec

from cantons.engine.devices import AXIS
from cantons.engine.summands import add_to, dense, join, put_back, split, zero_sum
from cantons.protocol import Array, PyTree

Each = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]  # (common, slot) -> (summand, row)


class Fanout(NamedTuple):
    """`group` clients are vectorised at a time, on each device of the mesh; 1 is a plain scan."""

    mesh: Mesh
    group: int

    @property
    def multiple(self) -> int:
        """The number of slots must be a multiple of this."""
        return self.mesh.size * self.group

    def padded(self, slots: int) -> int:
        return -(-slots // self.multiple) * self.multiple


def map_clients(fanout: Fanout, each: Each, common: PyTree, slots: PyTree) -> tuple[PyTree, PyTree]:
    """The sum of the summands over all slots, and the stack of their rows.

    `common` is the same for all; it is an argument, not a closure, because each device needs its own copy.
    """
    if fanout.mesh.size == 1:
        return _on_one_device(each, fanout.group, common, slots)

    count = jax.tree.leaves(slots)[0].shape[0]

    def share(leaf: Array) -> Array:
        size = count // fanout.mesh.size
        return jax.lax.dynamic_slice_in_dim(leaf, jax.lax.axis_index(AXIS) * size, size)

    def each_apart(common: PyTree, slot: PyTree) -> tuple[PyTree, PyTree]:
        summand, row = each(common, slot)
        added, gathered = split(summand, count)
        return added, (row, gathered)

    def on_each_device(common: PyTree, slots: PyTree) -> tuple[PyTree, PyTree]:
        total, rows = _on_one_device(each_apart, fanout.group, common, jax.tree.map(share, slots))
        total, (rows, gathered) = jax.lax.psum(total, AXIS), jax.lax.all_gather(rows, AXIS, tiled=True)
        return put_back(total, gathered), rows

    # Whole in, whole out. Were slots and rows sharded, the compiler would shard all that is made from them or
    # with them, down to the counters, and devices would wait for each other six times a round, not three.
    return jax.shard_map(on_each_device, mesh=fanout.mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(),
                         check_vma=False)(common, slots)


def map_sharded(fanout: Fanout, each: Each, common: PyTree, slots: PyTree) -> PyTree:
    """The rows alone, for slots that are divided over the devices already; the rows stay so."""

    def rows_of(common: PyTree, slots: PyTree) -> PyTree:
        return _on_one_device(each, fanout.group, common, slots)[1]

    if fanout.mesh.size == 1:
        return rows_of(common, slots)
    # Empty arrays are not divided: JAX 0.11's compiler dies of them.
    def share(common: PyTree, arrays: list[Array]) -> list[Array]:
        return filled(rows_of(common, with_filled(_emptied(slots, fanout.mesh.size), arrays)))

    rows = jax.eval_shape(rows_of, common, slots)
    found = jax.shard_map(share, mesh=fanout.mesh, in_specs=(PartitionSpec(), PartitionSpec(AXIS)),
                          out_specs=PartitionSpec(AXIS), check_vma=False)(common, filled(slots))
    return with_filled(_emptied(rows), found)


def filled(tree: PyTree) -> list[Array]:
    """The arrays that hold anything: divided over devices, empty ones lose their place or break the program."""
    return [leaf for leaf in jax.tree.leaves(tree) if leaf.size]


def with_filled(tree: PyTree, arrays: Sequence[Array]) -> PyTree:
    """The same tree with these in the places of its arrays that hold anything."""
    following = iter(arrays)
    return jax.tree.map(lambda leaf: next(following) if leaf.size else leaf, tree)


def _emptied(shapes: PyTree, devices: int = 1) -> PyTree:
    """The same tree with arrays in its empty places, of which each device has its share of the first axis."""
    return jax.tree.map(lambda leaf: leaf if leaf.size else jnp.zeros(
        (leaf.shape[0] // devices, *leaf.shape[1:]), leaf.dtype), shapes)


def _on_one_device(each: Each, group: int, common: PyTree, slots: PyTree) -> tuple[PyTree, PyTree]:
    count = jax.tree.leaves(slots)[0].shape[0]
    if group >= count > 1:
        summand, rows = _together(each, common, slots)
        return dense(summand), rows
    work = each if group == 1 else lambda common, slots: _together(each, common, slots)
    if group > 1:
        slots = jax.tree.map(lambda leaf: leaf.reshape(count // group, group, *leaf.shape[1:]), slots)
    work, (summand, _) = trace_once(work, common, jax.tree.map(lambda leaf: leaf[0], slots))

    def one(total: PyTree, slot: PyTree) -> tuple[PyTree, PyTree]:
        summand, row = work(common, slot)
        return add_to(total, summand), row

    total, rows = jax.lax.scan(one, zero_sum(summand), slots)
    if group > 1:
        rows = jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), rows)
    return total, rows


def trace_once(function: Callable[..., PyTree], *arguments: PyTree) -> tuple[Callable[..., PyTree], PyTree]:
    """The same function, and the shapes it gives, for arguments like these; its Python code is not run again."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    run = jaxpr_as_fun(jaxpr)
    return lambda *arguments: jax.tree.unflatten(jax.tree.structure(shapes), run(*jax.tree.leaves(arguments))), shapes


def _together(each: Each, common: PyTree, slots: PyTree) -> tuple[PyTree, PyTree]:
    summands, rows = jax.vmap(each, in_axes=(None, 0))(common, slots)
    return join(summands), rows
