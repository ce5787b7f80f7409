"""Which parameters are private: a rule over their paths."""

from __future__ import annotations

from fnmatch import fnmatchcase

import jax

from cantons.errors import InputError
from cantons.models import Model
from cantons.protocol import PyTree


def paths(params: PyTree) -> list[str]:
    """Where each array of `params` is, in the order of `jax.tree.leaves`.

    >>> paths({"layer0": {"weight": 1.0, "bias": 2.0}, "scales": [3.0]})
    ['layer0/bias', 'layer0/weight', 'scales/0']
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]


def is_shared(params: PyTree, rule: str, model: Model) -> PyTree:
    """A tree like `params` that is True where the rule leaves a parameter shared, for `eqx.partition`.

    The rule names the private part: "none", "all", the model's "input" or "output" layer, or a glob over
    paths, such as "layer0/*" or "*/bias" (a star also matches slashes).
    """
    known = paths(params)
    pattern = _pattern(rule, model, known)
    private = [pattern is not None and fnmatchcase(path, pattern) for path in known]
    if pattern is not None and not any(private):
        raise InputError(f"split is {rule!r}, which matches no parameter; there are {', '.join(known)}.")
    return jax.tree.unflatten(jax.tree.structure(params), [not one for one in private])


def _pattern(rule: str, model: Model, known: list[str]) -> str | None:
    """The glob that a rule stands for; None matches nothing."""
    layers = {"input": model.input_layer, "output": model.output_layer}
    if rule in layers and layers[rule] is None:
        raise InputError(f"split is {rule!r}, but this model does not say which layer that is; give a "
                         f"pattern over its parameters, such as {known[0]!r}; there are {', '.join(known)}.")
    return {"none": None, "all": "*", **layers}.get(rule, rule)
