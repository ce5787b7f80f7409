"""Models written elsewhere, as problems: plain functions, Equinox modules, Flax modules.

All that a problem needs is `init(key) -> params` and `apply(params, inputs) -> outputs`; each wrapper finds
the two. Parameters are arrays of real numbers. Integer and boolean ones are refused, having no gradient to be
trained with, and so are layers that keep running statistics, for which clients have no common place.
"""

from __future__ import annotations

from collections.abc import Callable
from glob import escape
from typing import Any

import equinox as eqx
import jax

from cantons.errors import InputError, unknown
from cantons.models import Model
from cantons.optional import optional_import
from cantons.problem.assemble import assemble
from cantons.problem.losses import LOSSES, Loss, PerExample
from cantons.problem.split import Split, paths
from cantons.protocol import Array, Key, Problem, PyTree
from cantons.ranges import check

STATEFUL = ("federated clients have no common place for running statistics; use group or layer "
            "normalisation, which keep none.")


def from_functions(init: Callable[[Key], PyTree], apply: Callable[[PyTree, PyTree], Array], *,
                   loss: str | PerExample = "softmax", split: Split = "none") -> Problem:
    """A problem from `init(key) -> params`, any pytree, and `apply(params, inputs [B, ...]) -> outputs`.

    `loss` is "softmax", "squared" or "logistic", or a function of (outputs, targets) that gives one number
    per example. `split` is "none", "all", "adapter" for a low-rank matrix beside each array of two or more axes, or a
    glob over the parameters' paths, such as "head/*".
    """
    return _problem(Model(init, apply), loss, split)


def from_equinox(build: Callable[[Key], eqx.Module], *, loss: str | PerExample = "softmax",
                 split: Split = "none") -> Problem:
    """A problem from `build(key)`, which makes an Equinox module of one example; loss and split as above.

    The split "norm" is that of Equinox's LayerNorm, GroupNorm and RMSNorm.
    """
    if isinstance(build, eqx.Module):
        raise InputError("from_equinox got a module; give a function that makes one, "
                         "such as lambda key: MyModule(key=key), so that every run draws its own.")
    skeleton = eqx.filter_eval_shape(lambda: build(jax.random.key(0)))  # shapes in place of arrays
    _refuse_state(skeleton)
    shapes, static = eqx.partition(skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def init(key):
        # In the structure found once: two builds may differ in their lambdas, which JAX compares by identity.
        arrays = jax.tree.leaves(eqx.filter(build(key), eqx.is_array))
        return jax.tree.unflatten(jax.tree.structure(shapes), arrays)

    def apply(params, inputs):
        return jax.vmap(eqx.combine(params, static))(inputs)

    return _problem(Model(init, apply, norm_layers=_equinox_norms(shapes)), loss, split)


def from_flax(module: Any, example_inputs: PyTree, *, loss: str | PerExample = "softmax",
              split: Split = "none") -> Problem:
    """A problem from a `flax.linen` module and a batch of any inputs, as `module.init` takes them.

    The split "norm" is that of the layers whose parameters have a `scale`, as those that normalise do in Flax.
    """
    linen = optional_import("flax.linen", "flax", user="from_flax")
    if not isinstance(module, linen.Module):
        raise InputError(f"from_flax got a {type(module).__name__}; give a flax.linen module, "
                         "or use from_functions.")
    variables = jax.eval_shape(lambda: module.init(jax.random.key(0), example_inputs))
    beyond = sorted(set(variables) - {"params"})
    if beyond:
        raise InputError(f"the Flax module keeps {', '.join(beyond)} beside its parameters: {STATEFUL}")

    def init(key):
        return module.init(key, example_inputs)["params"]

    def apply(params, inputs):
        return module.apply({"params": params}, inputs)

    layers = [path.removesuffix("/scale") for path in paths(variables["params"]) if path.endswith("/scale")]
    return _problem(Model(init, apply, norm_layers=tuple(f"{escape(layer)}/*" for layer in layers)), loss, split)


def _problem(model: Model, loss: str | PerExample, split: Split) -> Problem:
    if isinstance(loss, str) and loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    check("split", Split, split)
    return assemble(model, LOSSES[loss] if isinstance(loss, str) else Loss(loss), split)


def _equinox_norms(shapes: PyTree) -> tuple[str, ...]:
    """The paths of all that layers hold which normalise."""
    def normalises(node: Any) -> bool:
        return isinstance(node, eqx.nn.LayerNorm | eqx.nn.GroupNorm | eqx.nn.RMSNorm)

    marked = jax.tree.map(lambda node: jax.tree.map(lambda leaf: normalises(node), node), shapes, is_leaf=normalises)
    return tuple(escape(path) for path, own in zip(paths(shapes), jax.tree.leaves(marked), strict=True) if own)


def _refuse_state(module: eqx.Module) -> None:
    def stateful(node: Any) -> bool:
        return isinstance(node, eqx.nn.StateIndex)

    if any(map(stateful, jax.tree.leaves(module, is_leaf=stateful))):
        raise InputError(f"the Equinox module has a layer with a state, such as BatchNorm: {STATEFUL}")
