"""Clients one after another in plain Python, beside a server that stays one compiled program.

To the engine such a client is one whose examples come with what its model says about them. Everything else is the
online clock's: who is silent, what is late, how a step is scored before anybody learns from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.client import keyed
from cantons.engine.devices import floats, mesh_of, replicated
from cantons.engine.evaluate import scorer, sides_of
from cantons.engine.in_flight import held_messages
from cantons.engine.init import initial_clients, seed_keys, starting_point
from cantons.engine.mapping import Fanout
from cantons.engine.online import online_step
from cantons.engine.round import Arrays, round_keys, travelling
from cantons.engine.stepper import begin_run, progress_of
from cantons.local_models.local_model import LocalModel, kind
from cantons.local_models.saving import can_be_saved, get_state, set_state
from cantons.protocol import (
    Array,
    Batch,
    Clock,
    Engine,
    Evaluation,
    Key,
    Message,
    Parts,
    Plan,
    PyTree,
    Snapshot,
    State,
    Upload,
)

View = Callable[[Any, Any], tuple[Any, Any]]  # (inputs, targets) -> (x, y), as a local model sees them


class Told(NamedTuple):
    """Inputs, and what the client's own model says about them."""

    inputs: PyTree
    said: Any


class Look(NamedTuple):
    """What the clients are about to meet, one row each."""

    acts: Any
    x: Any
    y: Any
    shared: Any  # what the shared model they hold says about it


class LocalModels:
    """The engine of clients that bring their models: `models` has one for each client, in their order."""

    name = "local_models"

    def __init__(self, models: Sequence[LocalModel], view: View):
        self.models, self.view = models, view
        self.left_out: dict[int, str] = {}  # clients whose models gave bad answers, and what was wrong

    def options(self) -> dict[str, Any]:
        return {}

    def refuses(self, run: Parts) -> str:
        return "" if run.clock.online is not None else "runs online steps, no rounds; use the online clock."

    def start(self, runs: Sequence[Parts], notice: Callable[[str], None] = lambda sentence: None) -> Session:
        (run,) = runs
        self.left_out.clear()
        return Session(run, self.models, self.view, notice, self.left_out)

    def together(self) -> Engine | None:
        return None


class Stage(NamedTuple):
    """A state, and what the clients are about to meet in it."""

    state: State
    look: Look


class Session:
    """A run whose clients bring their models.

    Its problem is one whose inputs are `Told`. A client whose model predicts NaN, infinity or an array of another shape
    is left out from then on: its model is not asked again, the shared model alone predicts for it, and it sends nothing
    more. `left_out` says who and why.
    """

    def __init__(self, run: Parts, models: Sequence[LocalModel], view: View, notice: Callable[[str], None],
                 left_out: dict[int, str]):
        problem, clock, data = run.problem, run.clock, run.data
        assert clock.online is not None and problem.residual is not None
        self.problem, self.algorithm, self.models = problem, run.algorithm, models
        self.joint, self.online, self.view, self.notice = problem.residual, clock.online, view, notice
        self.clock = _with_silence(clock)
        self.mesh = mesh_of(1)
        self.names = data.clients.names
        self.left_out = left_out
        self._start_key, run_key, self._score_key = seed_keys(run.seed)
        self._rows = floats(sides_of(data))
        self._sides = replicated(self.mesh, self._rows)
        train = self._sides["clients"]["train"]
        self.arrays = Arrays(train, None, *replicated(self.mesh, (floats(clock.arrays), run_key)))
        self._parts = starting_point(problem, self._start_key)
        self.start_private = self._parts[1]
        inputs = self._rows["clients"]["train"].inputs
        self._outputs = jax.eval_shape(self._said_by_shared, self._parts[0], inputs[:1])
        self._step: Any = None
        self._scorers: dict[str, Any] = {}

    def begin(self, initial: tuple[PyTree, PyTree] | None = None) -> Stage:
        if initial is not None:
            self._parts = starting_point(self.problem, self._start_key, initial)
        arrays = self._telling(self.arrays, *self._nothing_said())
        begin = partial(begin_run, self.problem, self.algorithm, self.clock, population=len(self.names))
        return self._looking(jax.jit(lambda arrays, key, parts: begin(arrays, key, parts))(
            arrays, self._start_key, self._parts))

    def restore(self, snapshots: Sequence[Snapshot]) -> Stage:
        (snapshot,) = snapshots
        self.left_out.update({int(index): reason for index, reason in snapshot.outside["left_out"].items()})
        for model, saved in zip(self.models, snapshot.outside["models"], strict=True):
            set_state(model, saved)
        return self._looking(jax.tree.map(np.array, snapshot.state))

    def prepare(self, stage: Stage) -> None:
        """Compile the step, once."""
        if self._step is None:
            def step(arrays, state, said, left_out):
                state = online_step(self.problem, self.algorithm, self.clock, Fanout(self.mesh, len(self.names)),
                                    self._telling(arrays, said, left_out), state)
                return state, self._look(arrays, state)

            arguments = self.arrays, stage.state, *self._nothing_said()
            self._step = jax.jit(step, donate_argnums=1).lower(*arguments).compile()

    def advance(self, stage: Stage, until: int) -> Stage:
        self.prepare(stage)
        for _ in range(int(stage.state.round), until):
            stage = self._advanced(stage)
        return stage

    def evaluate(self, stage: Stage) -> list[Evaluation]:
        """New clients have no models yet: they are told the shared one."""
        state = stage.state
        found = {side: self._scored(state, side) for side in self._rows}
        server = jax.device_get(dict(self.algorithm.diagnostics.server(state.server)))
        return [Evaluation(progress_of(self._accounted(state)), {side: scores for side, (scores, _) in found.items()},
                           server, found["clients"][1], {"model": [kind(model) for model in self.models]})]

    def whole(self, stage: Stage) -> list[Snapshot]:
        outside = None
        if all(map(can_be_saved, self.models)):
            outside = {"left_out": {str(index): reason for index, reason in self.left_out.items()},
                       "models": [get_state(model) for model in self.models]}
        state, start = jax.device_get((self._accounted(stage.state), self.start_private))
        return [Snapshot(state, start, outside)]

    def travel(self, stage: Stage) -> tuple[Message, Upload]:
        arrays = self._telling(self.arrays, *self._nothing_said())
        return travelling(self.algorithm, arrays, stage.state, self.online.batch)

    def about(self) -> dict[str, Any]:
        return {"devices": 1, "clients_at_once": 1}

    def close(self) -> None:
        pass

    def _looking(self, state: State) -> Stage:
        state = replicated(self.mesh, state)
        return Stage(state, jax.device_get(jax.jit(self._look)(self.arrays, state)))

    def _advanced(self, stage: Stage) -> Stage:
        """One step: every model predicts, the server learns from that, every model learns."""
        state, look = stage
        said, _ = self._nothing_said()
        for index in np.flatnonzero(look.acts).tolist():
            answer = self._asked(index, {"now": look.x[index]}, f"step {int(state.round)}")
            if answer is not None:
                said[index] = answer["now"]
        # Dispatched now, looked at when the models have learned: the two take place at the same time.
        state, following = self._step(self.arrays, state, said, self._is_left_out())
        for index in np.flatnonzero(look.acts & ~self._is_left_out()).tolist():
            with _named(self.names[index]):
                self.models[index].update(look.x[index], look.y[index], look.shared[index])
        return Stage(state, jax.device_get(following))

    def _scored(self, state: State, side: str) -> tuple[PyTree, PyTree]:
        rows = self._rows[side]
        said = {name: np.zeros((len(ragged.inputs), *self._outputs.shape[1:]), self._outputs.dtype)
                for name, ragged in rows.items()}
        messages, places = held_messages(state.in_flight)
        if side == "clients":
            clients = state.clients
            for index in range(len(self.names)):
                self._say_all(index, rows, said, int(state.round))
        else:
            clients = self._newcomers
            places = jnp.full(rows["train"].population, state.round % state.in_flight.received.shape[0])
        sets = {name: replace(ragged, inputs=Told(ragged.inputs, said[name]))
                for name, ragged in self._sides[side].items()}
        arguments = (sets, None, state.server, self.start_private, clients,
                     jax.random.fold_in(self._score_key, state.round), np.int32(0), (messages, places))
        if side not in self._scorers:
            fanout = Fanout(self.mesh, rows["train"].population)
            self._scorers[side] = jax.jit(scorer(self.problem, self.algorithm, fanout, (), late=True)).lower(
                *arguments).compile()
        return jax.device_get(self._scorers[side](*arguments))

    def _accounted(self, state: State) -> State:
        """The same state, with one rejected upload for each client that was left out."""
        return state._replace(ledger=state.ledger.at[:, 3].set(self._is_left_out()))

    @cached_property
    def _newcomers(self) -> PyTree:
        """The new clients, to whom the server has just sent its first message."""
        ids = len(self.names) + np.arange(self._rows["new"]["train"].population)
        return jax.jit(partial(initial_clients, self.algorithm))(self._start_key, self._parts, ids)

    def _look(self, arrays: Arrays, state: State) -> Look:
        messages, places = held_messages(state.in_flight)
        everyone = jnp.arange(len(self.names))
        plan = self.clock.plan((arrays.clock, False), round_keys(arrays.key, state.round).plan, state.round)

        def one(index, stream, met, place):
            batch = arrays.train.client(index).at(stream, met, self.online.batch, self.online.order).now()
            message = jax.tree.map(lambda leaf: leaf[place], messages)
            return *self.view(batch.inputs, batch.targets), self._said_by_shared(message, batch.inputs)

        return Look(plan.acts, *jax.vmap(one)(everyone, keyed(arrays.key, everyone), state.in_flight.met, places))

    def _said_by_shared(self, shared: PyTree, inputs: Array) -> Array:
        return self.joint.shared(shared, self.joint.seen(Told(inputs, jnp.zeros(()))))

    def _telling(self, arrays: Arrays, said: Any, left_out: Any) -> Arrays:
        train: Any = _Now(arrays.train, said)
        return arrays._replace(train=train, clock=(arrays.clock, left_out))

    def _nothing_said(self) -> tuple[np.ndarray, np.ndarray]:
        shape = len(self.names), self.online.batch, *self._outputs.shape[1:]
        return np.zeros(shape, self._outputs.dtype), self._is_left_out()

    def _is_left_out(self) -> np.ndarray:
        return np.isin(np.arange(len(self.names)), list(self.left_out))

    def _say_all(self, index: int, rows: dict[str, Any], said: dict[str, np.ndarray], round: int) -> None:
        """Let one client's model predict all its examples, into its rows of `said`."""
        own = {name: slice(ragged.starts[index], ragged.starts[index] + ragged.sizes[index])
               for name, ragged in rows.items() if ragged.sizes[index]}
        examples = {name: self.view(rows[name].inputs[part], rows[name].targets[part])[0] for name, part in own.items()}
        for name, answer in (self._asked(index, examples, f"evaluation after step {round}") or {}).items():
            said[name][own[name]] = answer

    def _asked(self, index: int, questions: dict[str, np.ndarray], when: str) -> dict[str, np.ndarray] | None:
        """What a client's model says about each set of rows; None if it is, or is now, left out."""
        if index in self.left_out:
            return None
        answers = {}
        for name, x in questions.items():
            with _named(self.names[index]):
                answer = self.models[index].predict(x)
            answers[name], complaint = judged(answer, (len(x), *self._outputs.shape[1:]))
            if complaint:
                self.left_out[index] = complaint
                self.notice(f"{when}: the model of client {self.names[index]!r} {complaint}; it is left out from now "
                            "on: the shared model alone predicts for this client, which sends nothing more.")
                return None
        return answers


def judged(answer: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """A model's answer as an array in JAX's precision, and what is wrong with it, if anything.

    >>> judged([1, 2, 3], (2,))[1]
    'returned an array of shape (3,) for (2,)'
    """
    if answer is None:
        return np.zeros(0), "returned nothing"
    try:
        with np.errstate(over="ignore"):  # what is too large for single precision is infinite, and told so below
            values = np.asarray(answer, float).astype(jnp.zeros(0).dtype)
    except (TypeError, ValueError):
        return np.zeros(0), f"returned a {type(answer).__name__} that is no array of numbers"
    if values.shape != shape:
        return values, f"returned an array of shape {values.shape} for {shape}"
    return values, "" if np.isfinite(values).all() else "predicted NaN or infinity"


class _named:
    """As a context: an error in a client's model says whose it is."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            error.add_note(f"in the local model of client {self.name!r}")


def _with_silence(clock: Clock) -> Clock:
    """The same clock, except that clients may be told to send nothing: its arrays are (its own, who is left out)."""

    def plan(arrays: tuple[PyTree, Array], key: Key, round: Array) -> Plan:
        planned = clock.plan(arrays[0], key, round)
        return planned._replace(counts=jnp.where(arrays[1], 0, planned.counts))

    return clock._replace(plan=plan)


@partial(jax.tree_util.register_dataclass, data_fields=["examples", "said"], meta_fields=[])
@dataclass(frozen=True)
class _Now:
    """The clients' examples, those of now with what their models say about them: [clients, batch, ...]."""

    examples: Any
    said: Array

    def client(self, index: Array | int) -> _Meeting:
        return _Meeting(self.examples.client(index), jnp.asarray(self.said)[index])


class _Meeting:
    def __init__(self, examples: Any, said: Array):
        self._examples, self._said, self.size = examples, said, examples.size

    def at(self, key: Key, meeting: Array, size: int, order: str) -> _Meeting:
        return _Meeting(self._examples.at(key, meeting, size, order), self._said)

    def hidden(self) -> _Meeting:
        return _Meeting(self._examples.hidden(), self._said)

    def now(self) -> Batch:
        batch = self._examples.now()
        return batch._replace(inputs=Told(batch.inputs, self._said))
