"""Shapes and types, before anything is computed: what each function returns fits where it goes next.

Each function is called with shapes alone, as a compiler does; in either precision; for clients of unequal size, whose
`data.size` is an array, and for clients of equal size, where it is a plain number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from cantons.checks.case import Case
from cantons.checks.finding import Failed
from cantons.checks.stage import as_shapes
from cantons.data import Federation
from cantons.engine.aggregation import aggregation_of
from cantons.engine.client import as_arrays, sent_to
from cantons.engine.devices import floats
from cantons.engine.init import initial_clients
from cantons.engine.round import Arrays
from cantons.engine.summands import dense
from cantons.protocol import (
    Algorithm,
    Averages,
    PersonalModel,
    Problem,
    PyTree,
    Receipt,
    Stack,
    StackRule,
    Sum,
    SumRule,
    stateless,
)


def the_server_state_has_a_field_shared(case: Case) -> None:
    def judge(walk: Walk) -> None:
        if not hasattr(walk.server, "shared"):
            raise Failed(f"`init_server` returns a {type(walk.server).__name__} without a field `shared`; return a "
                         "NamedTuple with one: the shared part that the server would hand to a new client")
        found = _difference(walk.parts[0], walk.server.shared)
        if found:
            raise Failed(f"`shared` of the server's state should look like the shared part of the problem, and "
                         f"{found}; keep in it what predictions are made with, and everything else in other fields")

    _in_every_setting(case, judge)


def aggregate_is_a_sum_a_stack_or_averages(case: Case) -> None:
    aggregate: Any = case.algorithm.aggregate
    if not isinstance(aggregate, Sum | Stack | Averages):
        name = getattr(aggregate, "__name__", type(aggregate).__name__)
        raise Failed(f"`aggregate` is {name}, which is neither a Sum nor a Stack nor Averages; for the mean of what "
                     "clients send give cantons.aggregate.mean_of_uploads().")
    if isinstance(aggregate, Averages) and not isinstance(aggregate.rule, SumRule | StackRule):
        raise Failed(f"the rule in `aggregate` is a {type(aggregate.rule).__name__}, not a rule; build it: "
                     "weighted_mean().build().")


def a_client_keeps_the_structure_and_the_types_of_its_state(case: Case) -> None:
    def judge(walk: Walk) -> None:
        found = _difference(walk.client, jax.eval_shape(walk.algorithm.adopt, walk.client))
        if found:
            raise Failed(f"`adopt` should return a state like the one of `init_client`, and {found}; return the same "
                         "fields, each with the type and shape it began with. Whoever replaces `init_client` of an "
                         "algorithm replaces its `adopt` too")
        found = _difference(walk.client, walk.heard)
        if found:
            raise Failed(f"`receive` should return a state like the one of `init_client`, and {found}; return the same "
                         "fields, each with the type and shape it began with")
        if not _is_pair(walk.acted):
            raise Failed(f"`client_update` returns a {type(walk.acted).__name__}; return a pair: the upload, and the "
                         "client's new state")
        found = _difference(walk.client, walk.acted[1])
        if found:
            raise Failed("the state that `client_update` returns should look like the one of `init_client`, and "
                         f"{found}; return the same fields, each with the type and shape it began with")

    _in_every_setting(case, judge)


def the_server_keeps_the_structure_and_the_types_of_its_state(case: Case) -> None:
    def judge(walk: Walk) -> None:
        found = _difference(walk.server, walk.moved)
        if found:
            raise Failed("the state that `server_update` returns should look like the one of `init_server`, and "
                         f"{found}; return the same fields, each with the type and shape it began with")

    _in_every_setting(case, judge)


def the_model_is_a_shared_and_a_private_part(case: Case) -> None:
    def judge(walk: Walk) -> None:
        if not _is_pair(walk.model) and not isinstance(walk.model, PersonalModel):
            raise Failed(f"`model` returns a {type(walk.model).__name__}; return a pair: the shared and the private "
                         "part to predict with, or a PersonalModel")
        for name, wanted, part in zip(("shared", "private"), walk.parts, PersonalModel(*walk.model).parts, strict=True):
            found = _difference(wanted, part, types=False)
            if found:
                raise Failed(f"the {name} part that `model` returns should look like the one of the problem, and "
                             f"{found}; return (shared, private), in this order")

    _in_every_setting(case, judge)


@dataclass(frozen=True, eq=False)
class Walk:
    """One round with one client, in shapes: each step is taken when it is first looked at."""

    problem: Problem
    algorithm: Algorithm
    data: Federation
    batch: int | None  # examples of a step; None: rounds

    @cached_property
    def parts(self) -> tuple[PyTree, PyTree]:
        return jax.eval_shape(self.problem.init, self.key)

    @cached_property
    def server(self) -> Any:
        return jax.eval_shape(self.algorithm.init_server, self.key, *self.parts)

    @cached_property
    def client(self) -> PyTree:
        def first(key, *parts):
            rows = initial_clients(self.algorithm, key, parts, jnp.arange(2))
            return jax.tree.map(lambda leaf: leaf[0], rows)

        return jax.eval_shape(first, self.key, *self.parts)

    @cached_property
    def message(self) -> PyTree:
        return jax.eval_shape(lambda key, server, train, central: as_arrays(self.algorithm.broadcast(
            key, server, self._datacenter(key, train, central))), self.key, self.server, self.train, self.central)

    @cached_property
    def sent(self) -> PyTree:
        """The part of it that the client asks for."""
        return jax.eval_shape(lambda key, message, client, train: sent_to(
            self.algorithm, key, message, client, self._handle(key, train)),
            self.key, self.message, self.client, self.train)

    @cached_property
    def heard(self) -> PyTree:
        def hear(key, message, client, train, said):
            note = () if self.batch is None else self.algorithm.note(key, message, client, self._handle(key, train))
            return self.algorithm.receive(message, Receipt(said, said, note), client)

        said = jax.ShapeDtypeStruct((), bool)
        return jax.eval_shape(hear, self.key, self.sent, self.client, self.train, said)

    @cached_property
    def acted(self) -> Any:
        return jax.eval_shape(lambda key, message, client, train: self.algorithm.client_update(
            key, message, client, self._handle(key, train)), self.key, self.sent, self.client, self.train)

    @cached_property
    def moved(self) -> PyTree:
        aggregation, population = aggregation_of(self.algorithm.aggregate), self.data.population

        def move(key, server, sent, upload, train, central):
            upload = as_arrays(upload)
            rule = () if aggregation.init is stateless else aggregation.init(jax.tree.map(jnp.zeros_like, upload))
            carried = dense(aggregation.carry(rule, upload, sent))
            if not aggregation.adds:
                carried = jax.tree.map(lambda leaf: jnp.stack([leaf] * population), carried)
            ids, counts = jnp.arange(population, dtype=jnp.int32), jnp.ones(population, jnp.int32)
            aggregate, _, _ = aggregation.close(key, rule, carried, ids, counts, population)
            return self.algorithm.server_update(key, server, aggregate, self._datacenter(key, train, central))

        return jax.eval_shape(move, self.key, self.server, self.sent, self.acted[0], self.train, self.central)

    @cached_property
    def model(self) -> Any:
        return jax.eval_shape(lambda key, message, client, train: self.algorithm.model(
            key, message, client, self._handle(key, train).hidden() if self.batch else train.client(0)),
            self.key, self.message, self.client, self.train)

    @cached_property
    def key(self) -> Any:
        return jax.eval_shape(lambda: jax.random.key(0))

    @cached_property
    def train(self) -> Any:
        return as_shapes(floats(self.data.train))

    @cached_property
    def central(self) -> Any:
        return as_shapes(floats(self.data.central))

    def _handle(self, key, train):
        if self.batch is None:
            return train.client(0)
        return train.client(0).at(key, jnp.zeros((), jnp.int32), self.batch, "cycle")

    def _datacenter(self, key, train, central):
        return Arrays(train, central, (), key).datacenter(self.algorithm, key)


def _in_every_setting(case: Case, judge: Callable[[Walk], None]) -> None:
    """Judge the algorithm for both kinds of federation and in both precisions."""
    for words, data in (("unequal", case.data), ("equal", case.equal)):
        for precision in ("float32", "float64"):
            with jax.enable_x64(precision == "float64"):
                try:
                    judge(Walk(case.problem, case.algorithm, data, 1 if case.clocks else None))
                except Failed as failure:
                    raise Failed(f"{failure} (seen in {precision}, with clients of {words} size).") from failure


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _difference(before: PyTree, after: PyTree, types: bool = True) -> str:
    """The first leaf of `after` that cannot take the place of the one in `before`, in words; nothing if all can."""
    here, there = (dict(_leaves(tree)) for tree in (before, after))
    lost, added = [name for name in here if name not in there], [name for name in there if name not in here]
    if lost or added:
        words = [f"{verb} {', '.join(names)}" for verb, names in (("lacks", lost), ("has", added)) if names]
        return f"it {' and '.join(words)}"
    for name, leaf in here.items():
        new = there[name]
        if new.shape != leaf.shape or (types and not _fits(leaf, new)):
            return f"its {name} is {leaf.dtype} {leaf.shape} there and {new.dtype} {new.shape} here"
    kinds: list[Any] = [jax.tree.structure(tree) for tree in (before, after)]
    if kinds[0] != kinds[1]:
        return f"it is a {type(after).__name__}, not a {type(before).__name__}, or one of its fields is of another kind"
    return ""


def _fits(leaf: Any, new: Any) -> bool:
    """Can `new` be kept where `leaf` was? A plain number takes the type of the other, if it is of its kind."""
    joined = jax.eval_shape(jnp.where, jax.ShapeDtypeStruct((), bool), new, leaf).dtype
    return joined == leaf.dtype or (leaf.weak_type and joined.kind == leaf.dtype.kind)


def _leaves(tree: PyTree) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path) or "value", leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
