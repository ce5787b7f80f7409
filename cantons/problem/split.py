"""Which parameters are private: a rule over their paths, or adapters beside all of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax

from cantons.errors import InputError
from cantons.models import Model
from cantons.problem.adapter import Adapter, adapt, draw_adapters
from cantons.protocol import Key, PyTree
from cantons.ranges import Named


def plain() -> None:
    """A split without options."""


SPLITS: dict[str, Callable[..., Any]] = {"adapter": Adapter, **dict.fromkeys(
    ("all", "input", "none", "norm", "output"), plain)}
Split = str | Annotated[dict, Named("split", SPLITS)]  # a name or a glob over paths, or a table with name and options


class Division(NamedTuple):
    """The parameters of a model as a shared and a private part, and back."""

    divide: Callable[[Key, PyTree], tuple[PyTree, PyTree]]  # (key, params) -> (shared, private)
    join: Callable[[PyTree, PyTree], PyTree]  # (shared, private) -> params


def paths(params: PyTree) -> list[str]:
    """Where each array of `params` is, in the order of `jax.tree.leaves`.

    >>> paths({"layer0": {"weight": 1.0, "bias": 2.0}, "scales": [3.0]})
    ['layer0/bias', 'layer0/weight', 'scales/0']
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]


def division_of(shapes: PyTree, split: Split, model: Model) -> Division:
    """How the parameters of `model`, which have these shapes, are divided."""
    adapter = adapter_in(split)
    if adapter is None:
        shared_leaves = is_shared(shapes, _name(split), model)
        return Division(lambda key, params: eqx.partition(params, shared_leaves), eqx.combine)
    matrices = {path: leaf.shape for path, leaf in zip(paths(shapes), jax.tree.leaves(shapes), strict=True)
                if leaf.ndim > 1 and fnmatchcase(path, model.adapted)}
    if not matrices:
        raise InputError("split is 'adapter', and this model has no matrix that one could be added to; there are "
                         f"{', '.join(paths(shapes))}.")
    return Division(lambda key, params: (params, draw_adapters(key, matrices, adapter.rank)),
                    lambda shared, private: adapt(paths, shared, private, adapter.scale))


def adapter_in(split: Split) -> Adapter | None:
    """The options of the split, if it is "adapter"."""
    if _name(split) != "adapter":
        return None
    return Adapter(**{key: value for key, value in split.items() if key != "name"}) if isinstance(
        split, Mapping) else Adapter()


def is_shared(params: PyTree, rule: str, model: Model) -> PyTree:
    """A tree like `params` that is True where the rule leaves a parameter shared, for `eqx.partition`.

    The rule names the private part: "none", "all", the model's "input" or "output" layer, "norm" for the scales and
    shifts of its normalisation, or a glob over paths, such as "layer0/*" or "*/bias" (a star also matches slashes).
    """
    known = paths(params)
    patterns = _patterns(rule, model, known)
    private = [any(fnmatchcase(path, pattern) for pattern in patterns) for path in known]
    if patterns and not any(private):
        below = next((f"{rule}{mark}*" for mark in "/." if any(path.startswith(rule + mark) for path in known)), None)
        near = [below] if below is not None else difflib.get_close_matches(rule[:80], SPLITS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(f"split is {rule!r}, which matches no parameter; there are {', '.join(known)}, and the splits "
                         f"called {', '.join(SPLITS)}.{hint}")
    if private and all(private) and rule != "all":
        raise InputError(f"split is {rule!r}, which matches every parameter; give one that leaves some to be shared, "
                         "or say \"all\" if none are.")
    return jax.tree.unflatten(jax.tree.structure(params), [not one for one in private])


def _patterns(rule: str, model: Model, known: list[str]) -> tuple[str, ...]:
    """The globs that a rule stands for."""
    there = f"give a pattern over its parameters, such as {known[0]!r}; there are {', '.join(known)}."
    if rule == "norm" and not model.norm_layers:
        raise InputError(f"split is 'norm', and this model has no layer that is known to normalise; choose another "
                         f"split, or {there}")
    layers = {"input": model.input_layer, "output": model.output_layer}
    if rule in layers and layers[rule] is None:
        raise InputError(f"split is {rule!r}, but this model does not say which layer that is; {there}")
    if rule in ("none", "norm"):
        return model.norm_layers if rule == "norm" else ()
    return (layers.get(rule) or {"all": "*"}.get(rule, rule),)


def _name(split: Split) -> str:
    return split if isinstance(split, str) else split["name"]
