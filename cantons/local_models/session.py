"""An engine whose clients predict and learn in Python, beside a server that is one compiled program.

To the online clock such a client is one whose examples come with what its model predicts for them. Everything else is
the local engine's: who is silent, what is late, how a step is scored before anybody learns from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine.client import keyed
from cantons.engine.devices import floats
from cantons.engine.evaluate import sides_of
from cantons.engine.in_flight import held_messages
from cantons.engine.local import Local
from cantons.engine.mapping import Fanout
from cantons.engine.round import Arrays, round_keys
from cantons.local_models.clients import Clients
from cantons.local_models.host import Host, Lesson
from cantons.local_models.predictions import Predicted, StepExamples, with_outputs, with_silent_models
from cantons.local_models.server_side import server_algorithm
from cantons.protocol import (
    Array,
    Clock,
    Engine,
    Evaluation,
    Federated,
    Key,
    Message,
    Parts,
    Plan,
    Problem,
    PyTree,
    Residual,
    Snapshot,
    Start,
    State,
    Upload,
)


class LocalModels:
    """The engine of clients that bring their models: `host` holds one for each client, and is closed by its owner.

    It runs problems made by `server_problem`. With `save` the models are in its snapshots, and must be ones that can be
    saved. Where the models are makes no other numbers, so it is no option.
    """

    name = "local_models"

    def __init__(self, host: Host, save: bool = False):
        self.host, self.save = host, save

    def options(self) -> dict[str, Any]:
        return {}

    def refuses(self, run: Parts) -> str:
        if run.clock.online is None:
            return "runs online steps, no rounds; use the online clock."
        if run.clock.online.label_delay:
            return "has clients that learn at once; use label_delay = 0."
        if run.clock.online.cross_score:
            return "does not let a client's model predict for the others; use score = \"own\"."
        return ""

    def start(self, runs: Sequence[Parts], notice: Callable[[str], None] = lambda sentence: None) -> Session:
        (run,) = runs
        return Session(run, self.host, self.save, notice)

    def together(self) -> Engine | None:
        return None


class Meeting(NamedTuple):
    """What the clients meet in the next step, one row each."""

    acts: Any  # bool: has it examples?
    x: Any
    y: Any
    shared_prediction: Any  # of the shared model that the client holds


class Now(NamedTuple):
    """The state between two steps."""

    state: State
    meeting: Meeting


class Session:
    """A run whose clients bring their models. A step is three: they predict, the server learns, and they learn."""

    def __init__(self, run: Parts, host: Host, save: bool, notice: Callable[[str], None]):
        joint, online = run.problem.residual, run.clock.online
        assert online is not None and joint is not None and joint.private_features is not None
        self.joint, self.online, self.local_features = joint, online, joint.private_features
        outputs = _output_shape(run.problem, joint, run.data)
        data = with_silent_models(run.data, outputs)
        self.save = save
        self.clients = Clients(host, run.data.clients.names, outputs, notice)
        self.rows = floats(sides_of(data)["clients"])  # on the host, for the models to predict
        self.server = Local(devices=1).start([run._replace(
            algorithm=server_algorithm(run.algorithm), clock=_with_silence(run.clock), data=data)])
        self._step: Any = None

    def begin(self, initial: Start | tuple[PyTree, PyTree] | None = None) -> Now:
        self.clients.host.open()
        return self._now(self.server.begin(initial))

    def restore(self, snapshots: Sequence[Snapshot]) -> Now:
        self.clients.set_state(snapshots[0].outside)
        return self._now(self.server.restore(snapshots))

    def prepare(self, now: Now) -> None:
        """Compile the step, once."""
        if self._step is not None:
            return
        server, fanout = self.server, Fanout(self.server.mesh, self.server.group)

        def step(arrays: Arrays, state: State, outputs: Array, left_out: Array) -> tuple[State, Meeting]:
            train: Any = StepExamples(arrays.train, outputs)
            told = arrays._replace(train=train, clock=(arrays.clock[0], left_out))
            state = server.stepper.step(fanout, told, state)
            return state, self._meeting(arrays, state)

        arguments = server.arrays, now.state, self._no_outputs(), self.clients.is_left_out()
        self._step = jax.jit(step, donate_argnums=1).lower(*arguments).compile()

    def advance(self, now: Now, until: int) -> Now:
        self.prepare(now)
        for _ in range(int(now.state.round), until):
            now = self._advance_by_one(now)
        return now

    def evaluate(self, now: Now) -> list[Evaluation]:
        """New clients have no models yet: they are scored with the shared one."""
        sides = self.server.sides | {"clients": self._predict_all(f"evaluation after step {int(now.state.round)}")}
        (found,) = self.server.evaluate(now.state, sides)
        progress = found.progress._replace(left_out=self.clients.is_left_out())
        return [found._replace(progress=progress, columns={"model": self.clients.host.kinds})]

    def whole(self, now: Now) -> list[Snapshot]:
        (snapshot,) = self.server.whole(now.state)
        return [snapshot._replace(outside=self.clients.get_state(models_too=self.save))]

    def travel(self, now: Now) -> tuple[Message, Upload]:
        return self.server.travel(now.state)

    def about(self) -> dict[str, Any]:
        return {"devices": 1, **self.clients.host.about()}

    def close(self) -> None:
        self.server.close()

    def _now(self, state: State) -> Now:
        return Now(state, jax.device_get(jax.jit(self._meeting)(self.server.arrays, state)))

    def _advance_by_one(self, now: Now) -> Now:
        state, meeting = now
        outputs, actors = self._no_outputs(), np.flatnonzero(meeting.acts).tolist()
        asked = {index: {"now": meeting.x[index]} for index in actors}
        for index, found in self.clients.predict(asked, f"step {int(state.round)}").items():
            outputs[index] = found["now"]
        # Dispatched now, looked at when the models have learned: the two take place at the same time.
        state, following = self._step(self.server.arrays, state, outputs, self.clients.is_left_out())
        self.clients.update({index: Lesson(meeting.x[index], meeting.y[index], meeting.shared_prediction[index])
                             for index in actors})
        return Now(state, jax.device_get(following))

    def _meeting(self, arrays: Arrays, state: State) -> Meeting:
        messages, places = held_messages(state.in_flight)
        everyone = jnp.arange(len(self.clients.names))
        plan = self.server.clock.plan(arrays.clock, round_keys(arrays.key, state.round).plan, state.round)

        def one(index, stream, met, place):
            batch = arrays.train.client(index).at(stream, met, self.online.batch, self.online.order).now()
            message = jax.tree.map(lambda leaf: leaf[place], messages)
            return (self.local_features(batch.inputs), self.joint.as_outputs(batch.targets),
                    self.joint.shared(message, self.joint.features(batch.inputs)))

        return Meeting(plan.acts, *jax.vmap(one)(everyone, keyed(arrays.key, everyone), state.in_flight.met, places))

    def _no_outputs(self) -> np.ndarray:
        return np.zeros((len(self.clients.names), self.online.batch, *self.clients.output_shape), jnp.zeros(0).dtype)

    def _predict_all(self, when: str) -> dict[str, Any]:
        """Every set of the clients' examples, with what each client's model predicts for its rows."""
        outputs = {name: np.zeros_like(examples.inputs.outputs) for name, examples in self.rows.items()}
        own = {index: {name: slice(examples.starts[index], examples.starts[index] + examples.sizes[index])
                       for name, examples in self.rows.items() if examples.sizes[index]}
               for index in range(len(self.clients.names))}
        asked = {index: {name: self._seen(name, part) for name, part in parts.items()} for index, parts in own.items()}
        for index, found in self.clients.predict(asked, when).items():
            for name, answer in found.items():
                outputs[name][own[index][name]] = answer
        return {name: with_outputs(examples, outputs[name]) for name, examples in self.server.sides["clients"].items()}

    def _seen(self, name: str, part: slice) -> Any:
        """What local models see of some rows of a set."""
        return self.local_features(jax.tree.map(lambda leaf: leaf[part], self.rows[name].inputs))


def _output_shape(problem: Problem, joint: Residual, data: Federated) -> tuple[int, ...]:
    """Of one prediction: () for a single output."""
    train: Any = data.clients.train

    def predict(key: Key) -> Array:
        inputs = jax.tree.map(lambda leaf: jnp.asarray(leaf[:1]), train.inputs)
        return joint.shared(problem.init(key)[0], joint.features(Predicted(inputs, None)))

    return jax.eval_shape(predict, jax.random.key(0)).shape[1:]


def _with_silence(clock: Clock) -> Clock:
    """The same clock, except that clients may be told to send nothing: its arrays are (its own, who is silent)."""

    def plan(arrays: tuple[PyTree, Array], key: Key, round: Array) -> Plan:
        planned = clock.plan(arrays[0], key, round)
        return planned._replace(counts=jnp.where(arrays[1], 0, planned.counts))

    return clock._replace(plan=plan, arrays=(clock.arrays, np.zeros(clock.slots, bool)))
