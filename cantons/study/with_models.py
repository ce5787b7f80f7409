"""Federated Residual Learning with clients that bring local models of their own, whatever they are.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 3.2: the server needs global features,
local predictions and targets, so it works without knowing what makes those predictions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.algorithm import fedres_online_sgd
from cantons.bring.local_model import LocalModel, Models, kind, one_for_each
from cantons.bring.session import Session, Told, View, judged
from cantons.clock import online
from cantons.data import Federation
from cantons.engine import Local
from cantons.engine.devices import floats
from cantons.errors import InputError, one_of
from cantons.models import Model
from cantons.problem import residual
from cantons.problem.shaped import Shapes
from cantons.protocol import Algorithm, Problem, Recipe, State
from cantons.study.callbacks import Callback
from cantons.study.folder import Folder
from cantons.study.interrupt import Interruption
from cantons.study.online_metrics import online_row, progress_of
from cantons.study.record import scored, sides, summary_of, traffic_of, travelled
from cantons.study.result import Result, Trained
from cantons.study.run import Settled, settled


def run_with_models(
    problem: Problem,
    data: Federation,
    models: Models,
    *,
    rounds: int,
    step_size: float | dict = 0.05,
    method: str = "sgd",
    alignment: str = "paired",
    combine: str = "sum",
    radius: float | None = None,
    clock: Recipe | None = None,
    seed: int = 0,
    evaluate_every: int | None = None,
    validation: float | None = None,
    precision: str = "float32",
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    name: str | None = None,
) -> Result:
    """Train a shared model beside local models that only their clients know, by Federated Residual Learning online.

    `models` has one `LocalModel` for each client: a mapping by name, a list, or a factory `lambda name: model`. The
    problem comes from `residual(data, ...)`: its shared model, features, loss and labels are used; its private model is
    not, but its private features are what the local models see. `step_size`, `method`, `combine` and `radius` are those
    of `fedres_online_sgd` for the server. The clients learn at once, so `alignment` is "paired" or "none". `clock` is
    online(...), with delays and silent clients; `rounds` are its steps. The rest is as in `run`. A saved run holds
    scores, for tables and reports, and no checkpoints: what a local model remembers is its own business.
    """
    one_of("alignment", alignment, ("paired", "none"))
    told, view = stand_in(problem, data)
    recipe = fedres_online_sgd(step_size=step_size, method=method, alignment=alignment, combine=combine, radius=radius)
    ready = settled(told, data, recipe, rounds=rounds, cohort=None, clock=clock or online(), seed=seed,
                    evaluate_every=evaluate_every, validation=validation, precision=precision,
                    engine=Local(devices=1), checkpoint_every=None, keep=1, name=name)
    brought = one_for_each(models, data.clients.names)
    ready.study["models"] = dict(Counter(map(kind, brought)))
    with jax.enable_x64(precision == "float64"):
        return _Run(ready, brought, view, callbacks, out).play()


def stand_in(problem: Problem, data: Federation) -> tuple[Problem, View]:
    """The problem as the server sees it: its inputs are `Told`, and its private part only says whether to listen.

    Where that is 1, what a client's model says counts; where it is 0, the shared model predicts alone. Also, what a
    local model sees of inputs and targets.
    """
    joint, spec = problem.residual, problem.spec or {}
    if joint is None or spec.get("name") != "residual":
        raise InputError("local models need a problem made by residual(data, ...), with networks that have a name, "
                         "such as linear() or mlp(): it says what the local models see and what the loss is.")
    shapes = Shapes(tuple(data.input_shape), data.classes)
    rules = {key: spec[key] for key in ("loss", "labels", "clip") if key in spec}
    judge = residual(shapes, shared_model=_verbatim, private_model=_silent, **rules)
    # A shared side picks its columns as a private one does: here, those of the private side.
    local = residual(shapes, shared_features=spec.get("private_features", "all"), **rules).residual
    assert local is not None
    signs, numbers = rules.get("labels") == "sign", (rules.get("loss") or "softmax") != "softmax" or not data.classes

    def view(inputs, targets):
        if numbers:
            targets = (2 * targets - 1 if signs and data.classes else targets).astype(float)
        return local.seen(inputs), targets

    def seen(inputs):
        return joint.seen(inputs.inputs)

    def private(listen, inputs):
        return listen * inputs.said

    def predict(shared, listen, inputs):
        return joint.shared(shared, seen(inputs)) + private(listen, inputs)

    def loss(shared, listen, batch):
        return joint.loss(predict(shared, listen, batch.inputs), batch.targets, batch.mask)

    def score(shared, listen, batch):
        return judge.score(predict(shared, listen, batch.inputs), (), batch._replace(inputs=batch.inputs.inputs))

    told = problem._replace(init=lambda key: (problem.init(key)[0], jnp.zeros(())), loss=loss, predict=predict,
                            score=score, residual=joint._replace(seen=seen, private=private, quadratic=False,
                                                                 blank=None))
    return told, view


def _verbatim(input_shape: tuple[int, ...], outputs: int) -> Model:
    """A network whose parameters are its outputs."""
    return Model(lambda key: (), lambda said, inputs: said if outputs > 1 else said[..., None])


def _silent(input_shape: tuple[int, ...], outputs: int) -> Model:
    return Model(lambda key: (), lambda nothing, inputs: jnp.zeros((inputs.shape[0], outputs)))


def _listening(algorithm: Algorithm) -> Algorithm:
    """The same algorithm for clients whose private part is always 1; what they learn, they learn elsewhere."""

    def init_client(key, shared, private):
        return algorithm.init_client(key, shared, jnp.ones_like(private))

    def client_update(key, message, client, data):
        return algorithm.client_update(key, message, client, data)[0], client

    return algorithm._replace(init_client=init_client, client_update=client_update)


@dataclass(frozen=True)
class Accompanied(Trained):
    """A trained shared model, and the local models in the order of the clients; None for one that was left out."""

    models: tuple[LocalModel | None, ...] = ()
    view: View | None = None

    def predict(self, inputs: Any, client: int | str | None = None) -> np.ndarray:
        """The shared model's outputs, and for a client those of its local model added."""
        with jax.enable_x64(self.precision == "float64"):
            parts = self.parts(client)
            inputs = floats(np.asarray(inputs))
            said = np.zeros(())
            model = None if client is None else self.models[self._index(client)]
            if model is not None:
                assert self.view is not None
                x, _ = self.view(inputs, np.zeros(len(inputs)))
                alone = jax.eval_shape(self.problem.predict, *parts, Told(inputs, said))
                said, complaint = judged(model.predict(x), alone.shape)
                if complaint:
                    raise InputError(f"the model of client {client!r} {complaint}; it cannot predict these inputs.")
            return jax.device_get(self._outputs(*parts, Told(inputs, floats(said))))


class _Run:
    """One run on its way: what it has told whom."""

    def __init__(self, ready: Settled, models: list[LocalModel], view: View, callbacks: Sequence[Callback],
                 out: str | Path | None):
        self.ready, self.models, self.view, self.callbacks = ready, models, view, callbacks
        self.study, self.data, self.problem = ready.study, ready.data, ready.problem
        self.algorithm = _listening(ready.algorithm)
        self.session = Session(self.problem, self.algorithm, ready.clock, self.data, models, view, self.study["seed"],
                               self._notice)
        self.folder = None if out is None else Folder(Path(out))
        self.history: list[dict[str, Any]] = []
        self.columns: dict[str, Any] = {}
        self.seconds = self.since = 0.0  # spent in steps: in all, and since the last evaluation
        self.diverged = False

    def play(self) -> Result:
        rounds, every = self.study["rounds"], self.study["evaluate_every"]
        if self.folder is not None:
            self.folder.open(self.study, resume=False)
        for callback in self.callbacks:
            callback.started(self.study)
        state, look = self.session.begin()
        self.traffic = traffic_of(*self.session.message_and_upload(state))
        self._evaluate(state, 0)
        with Interruption() as interruption:
            for done in range(1, rounds + 1):
                began = time.perf_counter()
                state, look = self.session.advance(state, look)
                self.since += time.perf_counter() - began
                for callback in self.callbacks:
                    callback.advanced(done, rounds)
                if done % every == 0 or done == rounds:
                    self._evaluate(state, done)
                if interruption.asked:
                    for callback in self.callbacks:
                        callback.stopped(done)
                    raise KeyboardInterrupt
        summary = summary_of(self.study, self.data, self.history, self.traffic)
        if self.folder is not None:
            self.folder.summary(summary)
        for callback in self.callbacks:
            callback.finished(summary)
        return Result(self.history, self.columns, summary, self._trained(state),
                      self.folder.path if self.folder else None)

    def _evaluate(self, state: State, done: int) -> None:
        """Score everybody and write the row, with the names of any other run's."""
        began = time.perf_counter()
        scores = {side: self.session.evaluate(state, side) for side in sides(self.data)}
        state = self.session.accounted(state)
        found, columns = scored(self.problem, self.data, scores)
        met, more = online_row(self.problem, progress_of(state))
        moved, most = travelled(self.data, state, self.traffic)
        self.seconds += self.since
        before = self.history[-1] if self.history else {"round": 0, "uploads": 0}
        record = {
            "round": done, **found, **met, **moved, "seconds": self.seconds,
            "seconds_per_round": self.since / (done - before["round"]) if done else None,
            "updates_per_second": (moved["uploads"] - before["uploads"]) / self.since if done else None,
            "evaluation_seconds": time.perf_counter() - began,
        }
        self.since = 0.0
        self.columns = columns | more | most | {"model": [kind(model) for model in self.models]}
        self.history.append(record)
        if self.folder is not None:
            self.folder.append(record)
            self.folder.clients(self.columns)
        if not self.diverged and not np.isfinite(record["train.personal.loss.mean"]):
            self.diverged = True
            self._notice(f"at step {done} the training loss is not a number; a smaller step_size may help.")
        for callback in self.callbacks:
            callback.evaluated(record)

    def _trained(self, state: State) -> Accompanied:
        models = tuple(None if index in self.session.left_out else model for index, model in enumerate(self.models))
        state = jax.device_get(self.session.accounted(state))
        return Accompanied(self.problem, self.algorithm, state, jax.device_get(self.session.start_private), self.data,
                           self.study["seed"], self.study["precision"], models, self.view)

    def _notice(self, sentence: str) -> None:
        for callback in self.callbacks:
            callback.noticed(sentence)
