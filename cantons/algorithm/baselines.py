"""The two ends every federated method is measured against: everyone alone, and everything in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import NO_UPLOADS, mean_of_uploads
from cantons.algorithm.parts.centre import CentralWork, central_batch, centre_of
from cantons.algorithm.parts.fitting import fit_whole_model, keep_part, mark_as_acted
from cantons.algorithm.parts.schedule import as_schedule, usual_step
from cantons.algorithm.parts.training import LocalOptimizer, LocalWork, Work, trainer
from cantons.algorithm.parts.trees import add
from cantons.algorithm.parts.tuners import by_steps
from cantons.algorithm.parts.tuning import NAMES_DIVERGED, Tune, TunerTable, read_tuner, round_of, tune_with, tuner_of
from cantons.errors import InputError
from cantons.options import Flat
from cantons.protocol import Algorithm, Array, Needs, PersonalModel, Problem, PyTree
from cantons.ranges import Count
from cantons.recipe import algorithm

FIT_EPOCHS = 5


class Alone(NamedTuple):
    """A client that keeps the whole model, or the private part alone."""

    own: PyTree
    private: PyTree
    visits: Array
    diverged: Array | tuple[()] = ()  # in how many rounds tuning fell back to its beginning


class Server(NamedTuple):
    shared: PyTree
    private: PyTree
    round: Array


class Message(NamedTuple):
    shared: PyTree
    private: PyTree
    step_size: Array


class SharedPart(NamedTuple):
    """A message to clients that tune their private parts: the shared part, which stands still."""

    shared: PyTree
    round: Array | None  # for a tuner whose steps have a schedule


@algorithm
def independent(problem: Problem, population: int, *, local: Flat[LocalWork], optimizer: Flat[LocalOptimizer],
                fit_epochs: Count = FIT_EPOCHS, parts: Literal["all", "private"] = "all",
                tuner: TunerTable | None = None) -> Algorithm:
    """Every client trains alone: nothing is sent up, and only the step size comes down, or the shared part.

    fit_epochs: passes that a client which has never acted spends on its model before it predicts.
    parts: "all" of the model is trained, each client with a copy of its own; or the "private" part alone, while the
        shared part, which then comes down too, stands still: the final tuning of a model that was trained before.
    tuner: with "private", a tuner in place of the local steps, as those of `ffgg`: "lbfgs", "cg", or a table. It also
        fits clients that have never acted.
    """
    fitting = Work(fit_epochs, batch_size=local.batch_size)
    if parts == "private" and tuner is not None:
        _refuse_steps_beside_a_tuner(local._asdict() | optimizer._asdict() | {"fit_epochs": fit_epochs})
        tune, needs = tuner_of(problem, tuner)
        return tuned_alone(tune, tune, needs, round_of(read_tuner(tuner)))
    if parts == "private":
        steps, first_steps = (by_steps(work, optimizer, local.step_size) for work in (local.work, fitting))
        return tuned_alone(tune_with(problem.loss, steps), tune_with(problem.loss, first_steps), Needs(),
                           round_of(steps))
    if tuner is not None:
        raise InputError(f"tuner is {tuner!r}, and tuners are for private parts; give parts = 'private', or leave it "
                         "out.")
    schedule, train, first = as_schedule(local.step_size), *(
        trainer(problem.loss, work, optimizer) for work in (local.work, fitting))

    def init_server(key, shared, private):
        return Server(shared, (), jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Alone(shared, private, jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return Message((), (), schedule(server.round))

    def client_update(key, message, client, data):
        trained = train(key, client.own, client.private, data, message.step_size)
        return (), Alone(trained.shared, trained.private, client.visits + 1)

    def server_update(key, server, nothing, central):
        return server._replace(round=server.round + 1)

    def model(key, message, client, data):
        own = client.own, client.private
        return fit_whole_model(problem.loss, fitting, key, data, own, lambda: first(
            key, *own, data, usual_step(local.step_size)), client.visits, own)

    return Algorithm(init_server, init_client, broadcast, client_update, mean_of_uploads(only=NO_UPLOADS),
                     server_update, model, needs=Needs(shared=False), diagnostics=NAMES_DIVERGED)


def _refuse_steps_beside_a_tuner(chosen: Mapping[str, Any]) -> None:
    usual = LocalWork()._asdict() | LocalOptimizer()._asdict() | {"fit_epochs": FIT_EPOCHS}
    # Where several runs are one program, an option that differs between them is traced, and so was given.
    given = [name for name, value in chosen.items() if hasattr(value, "aval") or value != usual[name]]
    if given:
        raise InputError(f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} of local steps, and a tuner "
                         "takes their place; give the tuner a table with options of its own, or leave it out.")


def tuned_alone(tune: Tune, fit: Tune, needs: Needs, round_for: Callable[[Array], Array | None]) -> Algorithm:
    """Clients tune their private parts round after round; `fit` is for those that have never acted."""
    def init_server(key, shared, private):
        return Server(shared, (), jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Alone((), private, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return SharedPart(server.shared, round_for(server.round))

    def client_update(key, message, client, data):
        tuned = tune(key, message.shared, client.private, data, message.round)
        return (), Alone((), tuned.private, client.visits + 1, client.diverged + tuned.diverged)

    def server_update(key, server, nothing, central):
        return server._replace(round=server.round + 1)

    def model(key, message, client, data):
        fitted = jax.lax.cond(client.visits == 0, lambda: fit(key, message.shared, client.private, data),
                              lambda: keep_part(client.private))
        return PersonalModel(message.shared, fitted.private, {"diverged_tunings": client.diverged + fitted.diverged})

    return Algorithm(init_server, init_client, broadcast, client_update, mean_of_uploads(only=NO_UPLOADS),
                     server_update, model, adopt=mark_as_acted, needs=needs._replace(shared=False, private=True),
                     diagnostics=NAMES_DIVERGED)


TEN_STEPS = LocalWork(steps=10)


@algorithm
def central(problem: Problem, population: int, *, work: Flat[LocalWork] = TEN_STEPS,
            optimizer: Flat[LocalOptimizer]) -> Algorithm:
    """One model trained on everybody's examples together, as if privacy and bandwidth were no matter.

    Private parts are trained as one part common to all. Where the problem has a central loss, each step also has its
    gradient, on as many examples of the datacenter.

    step_size: of the steps: a number, or a schedule over rounds.
    epochs: if `steps` is none, passes over everybody's examples in one round.
    steps: batches drawn at random in one round.
    batch_size: examples in a batch; with none, everybody's examples at once.
    client_optimizer: as for the clients of other algorithms; its state is not kept between rounds.
    clip_norm: no gradient is longer than this.
    """
    schedule = as_schedule(work.step_size)
    train = trainer(lambda parts, nothing, batch: problem.loss(parts[0], parts[1], batch), work.work, optimizer)
    needs = Needs() if problem.central is None else centre_of(
        problem, CentralWork(central_batch_size=work.batch_size)).needs

    def joint(central):
        """Add the gradient of the central loss, where there is one."""
        if problem.central is None:
            return lambda gradient, parts, step: gradient
        loss = problem.central.loss
        return lambda gradient, parts, step: add(gradient, jax.grad(lambda parts: loss(
            *parts, central_batch(central, step, work.batch_size)))(parts))

    def init_server(key, shared, private):
        return Server(shared, private, jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return ()

    def broadcast(key, server, central):
        return Message(server.shared, server.private, schedule(server.round))

    def client_update(key, message, client, data):
        return (), client

    def server_update(key, server, nothing, central):
        trained = train(key, (server.shared, server.private), (), central.pooled, schedule(server.round),
                        adjust=joint(central))
        return Server(*trained.shared, server.round + 1)

    def model(key, message, client, data):
        return message.shared, message.private

    return Algorithm(init_server, init_client, broadcast, client_update, mean_of_uploads(only=NO_UPLOADS),
                     server_update, model, needs=needs._replace(shared=False, pooled=True))
