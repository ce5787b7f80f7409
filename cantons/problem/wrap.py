"""Models written elsewhere, as problems: plain functions, Equinox modules, Flax modules.

All that a problem needs is `init(key) -> params` and `apply(params, inputs) -> outputs`; each wrapper finds
the two. Parameters are arrays of real numbers. Integer and boolean ones are refused, having no gradient to be
trained with, and so are layers that keep running statistics, for which clients have no common place.
"""

from __future__ import annotations

import inspect
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
from cantons.problem.split import Split, adapter_in, paths
from cantons.protocol import Array, Convex, Key, Problem, PyTree
from cantons.ranges import check

TRAINED = {"deterministic": False, "train": True, "training": True, "is_training": True}  # arguments of Flax modules
STATEFUL = ("federated clients have no common place for running statistics; use group or layer "
            "normalisation, which keep none.")


def from_functions(init: Callable[[Key], PyTree], apply: Callable[[PyTree, PyTree], Array], *,
                   train: Callable[[PyTree, PyTree, Key], Array] | None = None,
                   loss: str | PerExample = "softmax", split: Split = "none", convex: bool | None = None) -> Problem:
    """A problem from `init(key) -> params`, any pytree, and `apply(params, inputs [B, ...]) -> outputs`.

    `train(params, inputs, key)`, if given, takes the place of `apply` in training: it may draw dropout from its key.
    `loss` is "softmax", "masked_softmax" (which leaves out labels of -1, where an example has several), "squared" or
    "logistic", or a function of (outputs, targets) that gives one number
    per example. `split` is "none", "all", "adapter" for a low-rank matrix beside each array of two or more axes, or a
    glob over the parameters' paths, such as "head/*".
    `convex=True` says that every example's loss is convex and smooth in `params`; what adapters add is never.
    """
    problem = problem_of(Model(init, apply, train=train), loss, split)
    # Adapters are two factors that are multiplied with each other, as `convex_if_linear` says.
    return problem._replace(convex=Convex() if convex and adapter_in(split) is None else None)


def from_equinox(build: Callable[[Key], eqx.Module], *, loss: str | PerExample = "softmax",
                 split: Split = "none") -> Problem:
    """A problem from `build(key)`, which makes an Equinox module of one example; loss and split as above.

    Dropout layers get a key in training, if the module is called as `module(example, key=key)`, and none to predict.
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
        return jax.vmap(eqx.nn.inference_mode(eqx.combine(params, static)))(inputs)

    def train(params, inputs, key):
        module = eqx.combine(params, static)
        keys = jax.random.split(key, jax.tree.leaves(inputs)[0].shape[0])
        return jax.vmap(lambda example, key: module(example, key=key))(inputs, keys)

    return problem_of(Model(init, apply, norm_layers=_equinox_norms(shapes),
                          train=train if _drops(skeleton) else None), loss, split)


def from_flax(module: Any, example_inputs: PyTree, *, loss: str | PerExample = "softmax",
              split: Split = "none") -> Problem:
    """A problem from a `flax.linen` module and a batch of any inputs, as `module.init` takes them.

    A module that is called with an argument `deterministic`, `train`, `training` or `is_training` is told which it is,
    and its dropout gets a key in training, and none to predict. The split "norm" is that of the layers whose parameters
    have a `scale`, as those that normalise do in Flax.
    """
    linen = optional_import("flax.linen", "flax", user="from_flax")
    no_key = optional_import("flax.errors", "flax", user="from_flax").InvalidRngError
    if not isinstance(module, linen.Module):
        raise InputError(f"from_flax got a {type(module).__name__}; give a flax.linen module, "
                         "or use from_functions.")
    asked = {flag: value for flag, value in TRAINED.items() if flag in inspect.signature(module.__call__).parameters}
    predicting = {flag: not value for flag, value in asked.items()}
    variables = jax.eval_shape(lambda: module.init(jax.random.key(0), example_inputs, **predicting))
    beyond = sorted(set(variables) - {"params"})
    if beyond:
        raise InputError(f"the Flax module keeps {', '.join(beyond)} beside its parameters: {STATEFUL}")

    def init(key):
        return module.init(key, example_inputs, **predicting)["params"]

    def apply(params, inputs):
        return module.apply({"params": params}, inputs, **predicting)

    def train(params, inputs, key):
        return module.apply({"params": params}, inputs, **asked, rngs={"dropout": key})

    try:  # to initialise, Flax has a key for everything; so what draws without being asked shows only here
        jax.eval_shape(apply, variables["params"], example_inputs)
    except no_key as error:
        raise InputError("the Flax module draws at random when it predicts too, as Dropout(deterministic=False) does; "
                         "let it be called with an argument `deterministic` or `train`, and give that to the "
                         "layer.") from error
    layers = [path.removesuffix("/scale") for path in paths(variables["params"]) if path.endswith("/scale")]
    norms = tuple(f"{escape(layer)}/*" for layer in layers)
    return problem_of(Model(init, apply, norm_layers=norms, train=train if asked else None), loss, split)


def problem_of(model: Model, loss: str | PerExample, split: Split) -> Problem:
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


def _drops(module: eqx.Module) -> bool:
    """Does an Equinox module draw at random, unless it is told that it predicts?"""
    def told(node: Any) -> bool:
        return getattr(node, "inference", None) is False and getattr(node, "p", None) != 0

    if not any(map(told, jax.tree.leaves(module, is_leaf=told))):
        return False
    if "key" not in inspect.signature(module.__call__).parameters:  # type: ignore[operator]
        raise InputError("the Equinox module has a layer that draws at random, such as Dropout, and takes no key; let "
                         "it be called as module(example, key=key), or give the layer inference=True.")
    return True


def _refuse_state(module: eqx.Module) -> None:
    def stateful(node: Any) -> bool:
        return isinstance(node, eqx.nn.StateIndex)

    if any(map(stateful, jax.tree.leaves(module, is_leaf=stateful))):
        raise InputError(f"the Equinox module has a layer with a state, such as BatchNorm: {STATEFUL}")
