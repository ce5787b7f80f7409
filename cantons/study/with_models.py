"""Federated Residual Learning with clients that bring local models of their own, whatever they are.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 3.2: the server needs global features,
local predictions and targets, so it works without knowing what makes those predictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.algorithm import fedres_online_sgd
from cantons.clock import online
from cantons.data import Federation
from cantons.engine.devices import floats
from cantons.errors import InputError, one_of
from cantons.local_models.local_model import LocalModel, Models, kind, one_for_each
from cantons.local_models.saving import can_be_saved
from cantons.local_models.session import LocalModels, Told, View, judged
from cantons.models import Model
from cantons.problem import residual
from cantons.problem.shaped import Shapes
from cantons.protocol import Algorithm, Problem, Recipe
from cantons.study.callbacks import Callback
from cantons.study.resolve import resolve
from cantons.study.result import Result, Trained
from cantons.study.run import play


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
    resume: bool = False,
    checkpoint_every: int | None = None,
    callbacks: Sequence[Callback] = (),
    name: str | None = None,
) -> Result:
    """Train a shared model beside local models that only their clients know, by Federated Residual Learning online.

    `models` has one `LocalModel` for each client: a mapping by name, a list, or a factory `lambda name: model`. The
    problem comes from `residual(data, ...)`: its shared model, features, loss and labels are used; its private model is
    not, but its private features are what the local models see. `step_size`, `method`, `combine` and `radius` are those
    of `fedres_online_sgd` for the server. The clients learn at once, so `alignment` is "paired" or "none". `clock` is
    online(...), with delays and silent clients; `rounds` are its steps. The rest is as in `run`. A run can be
    resumed from its checkpoints if all local models can be saved (they have `get_state` and `set_state`), and otherwise
    begins anew.
    """
    one_of("alignment", alignment, ("paired", "none"))
    told, view = stand_in(problem, data)
    recipe = fedres_online_sgd(step_size=step_size, method=method, alignment=alignment, combine=combine, radius=radius)
    brought = one_for_each(models, data.clients.names)
    engine = LocalModels(brought, view)
    run = resolve(told, data, recipe, rounds=rounds, clock=clock or online(), seed=seed, evaluate_every=evaluate_every,
                  validation=validation, precision=precision, engine=engine, checkpoint_every=checkpoint_every,
                  keep=1, name=name)
    run.study["models"] = dict(Counter(map(kind, brought)))
    run = run._replace(parts=run.parts._replace(algorithm=_listening(run.parts.algorithm)))
    strange = [kind(model) for model in brought if not can_be_saved(model)]
    if resume and strange:
        for callback in callbacks:
            callback.noticed(f"local models of the kind {strange[0]} cannot be saved (they have no get_state and "
                             "set_state); starting from step 0.")
    ended = play(engine, run, callbacks, out, resume, save=not strange)
    left_out = engine.left_out
    trained = TrainedWithModels(
        told, run.parts.algorithm, ended.snapshot, run.data, seed, precision,
        tuple(None if index in left_out else model for index, model in enumerate(brought)), view)
    return Result(ended.history, ended.columns, ended.summary, trained, None if out is None else Path(out))


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
class TrainedWithModels(Trained):
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
