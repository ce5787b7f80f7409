"""Federated Residual Learning with clients that bring local models of their own, whatever they are.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020 (v1), section 3.2: the server needs global features,
local predictions and targets, so it works without knowing what makes those predictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.algorithm import fedres_online_sgd
from cantons.clock import online
from cantons.data import Federation
from cantons.engine import Local, Ray, floats
from cantons.errors import InputError, one_of
from cantons.local_models.host import Host, ProcessHost, check_outputs
from cantons.local_models.local_model import LocalModel, Models, kind, one_for_each
from cantons.local_models.predictions import Predicted
from cantons.local_models.ray_host import RayHost
from cantons.local_models.saving import why_not_saved
from cantons.local_models.server_side import server_problem
from cantons.local_models.session import LocalModels
from cantons.protocol import Engine, Problem, PyTree, Recipe
from cantons.study.callbacks import Callbacks, Several
from cantons.study.client_model import ClientModel
from cantons.study.progress import watching
from cantons.study.resolve import resolve
from cantons.study.result import Result, Trained
from cantons.study.run import play
from cantons.study.source import foreign_sources


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
    engine: Engine | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    accept_changes: bool = False,
    checkpoint_every: int | None = None,
    keep: int = 3,
    callbacks: Callbacks = (),
    progress: bool | None = True,
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

    Models predict and learn in this process, one after another; with `engine=Ray(actors=2)` they do so on actors at the
    same time, to the same bits. There they are copies: those that have learned are the result's.
    """
    one_of("alignment", alignment, ("paired", "none"))
    served = server_problem(problem)
    recipe = fedres_online_sgd(step_size=step_size, method=method, alignment=alignment, combine=combine, radius=radius)
    brought = one_for_each(models, data.clients.names)
    unsaved = [] if out is None else [
        f"{kind(model)} {reason}" for model in brought if (reason := why_not_saved(model))]
    host = _host(engine, brought, data.clients.names)
    local_models = LocalModels(host, save=out is not None and not unsaved)
    run = resolve(served, data, recipe, rounds=rounds, clock=clock or online(), seed=seed,
                  evaluate_every=evaluate_every, validation=validation, precision=precision, engine=local_models,
                  checkpoint_every=checkpoint_every, keep=keep, name=name, of_rows=problem)
    run.study["models"] = dict(Counter(map(kind, brought)))
    run.study["source"] |= foreign_sources(brought)
    with watching(progress) as watchers, closing(host):
        callbacks = [*callbacks, *watchers]
        if unsaved:
            Several(callbacks).noticed(
                f"this run leaves no checkpoints, because a local model cannot be saved: {unsaved[0]}; "
                f"{'starting from step 0.' if resume else 'it cannot be resumed.'}")
        ended = play(local_models, run, callbacks, out, resume, save=not unsaved,
                     again="go on with run_with_models(..., out=..., resume=True).", accept_changes=accept_changes)
        learned = host.get_models()
    left_out = {int(index) for index in ended.snapshot.outside["left_out"]}
    trained = TrainedWithModels(
        served, run.parts.algorithm, ended.snapshot._replace(outside=None), run.data, seed, precision,
        models=tuple(None if index in left_out else model for index, model in enumerate(learned)))
    return Result(ended.history, ended.columns, ended.summary, trained, None if out is None else Path(out),
                  new_clients=ended.new_columns)


def _host(engine: Engine | None, models: list[LocalModel], names: Sequence[str]) -> Host:
    """Who holds the models."""
    if isinstance(engine, Ray):
        return RayHost(engine, models, names)
    if engine is None or isinstance(engine, Local):
        return ProcessHost(dict(enumerate(models)), names)
    raise InputError(f"engine is {getattr(engine, 'name', engine)!r}; local models run in this process, for which "
                     "engine is left out, or on actors: Ray(actors=2).")


@dataclass(frozen=True, repr=False)
class TrainedWithModels(Trained):
    """A trained shared model, and the local models in the order of the clients; None for one that was left out."""

    models: tuple[LocalModel | None, ...] = ()

    def client(self, client: int | str | None = None) -> ClientModel:
        return replace(super().client(client), alone=False)

    def _apply(self, client: int | str | None) -> Callable[..., PyTree]:
        """The shared model's outputs, and for a client those of its local model added."""
        model = None if client is None else self.models[self._index(client)]

        def apply(shared: PyTree, private: PyTree, inputs: Any) -> PyTree:
            rows = Predicted(floats(np.asarray(inputs)), np.zeros(()))
            if model is not None:
                joint = self.problem.residual
                assert joint is not None and joint.private_features is not None
                shape = jax.eval_shape(self.problem.predict, shared, private, rows).shape
                outputs, complaint = check_outputs(model.predict(joint.private_features(rows)), shape)
                if complaint:
                    raise InputError(f"the model of client {client!r} {complaint}; it cannot predict these inputs.")
                rows = rows._replace(outputs=outputs)
            return self._outputs(shared, private, rows)

        return apply
