"""What the algorithms of Federated Residual Learning have in common: everything but the client's work.

Wei, Agarwal and Langford, "Federated Residual Learning", Algorithms 2 to 4. Private parts stay with their clients,
the changes of the shared part are averaged, all clients alike, and controls, if there are any, travel along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from cantons.aggregate import KEEPS_MEAN, mean_of_uploads
from cantons.algorithm.parts.fitting import fitter, mark_as_acted
from cantons.algorithm.parts.schedule import Schedule, ScheduleTable, StepSize, as_schedule
from cantons.algorithm.parts.training import Work
from cantons.algorithm.parts.trees import add, scale, zeros
from cantons.algorithm.parts.tuning import NAMES_DIVERGED
from cantons.errors import InputError
from cantons.protocol import Algorithm, Array, Needs, Problem, PyTree
from cantons.ranges import Count, NonNegative

PrivateStepSize = NonNegative | ScheduleTable | Schedule  # 0 leaves the private part as it is


class FedResWork(NamedTuple):
    """What a client of FedRes does in a round.

    step_size: eta, of the shared part: a number, or a schedule over rounds.
    private_step_size: lambda, of the private part; if left open it is `step_size`, or what a preset makes of it.
    steps: K, the local steps of each part in one round.
    batch_size: examples in a batch; with none, all examples of a client at once.
    fit_epochs: passes that a client which has never acted spends on its private part before it predicts.
    """

    step_size: StepSize = 0.1
    private_step_size: PrivateStepSize | None = None
    steps: Count = 10
    batch_size: Count | None = 32
    fit_epochs: Count = 5

    @property
    def work(self) -> Work:
        return Work(steps=self.steps, batch_size=self.batch_size)

    @property
    def first_work(self) -> Work:
        """What a new client spends on its private part."""
        return Work(self.fit_epochs, batch_size=self.batch_size)


class Server(NamedTuple):
    shared: PyTree
    control: PyTree  # empty, here and below, where nothing is corrected
    round: Array


class Client(NamedTuple):
    private: PyTree
    own_control: PyTree
    visits: Array


class Message(NamedTuple):
    shared: PyTree
    control: PyTree
    step_size: Array
    private_step_size: Array


class Upload(NamedTuple):
    change: PyTree  # of the shared part
    control_change: PyTree


class Rates(NamedTuple):
    """The step sizes of a run; eta, lambda and alpha in the paper."""

    step_size: StepSize
    private_step_size: PrivateStepSize | None  # None is `private_ratio` times `step_size`
    private_ratio: float = 1.0
    server_scale: float = 1.0

    def schedules(self) -> tuple[Schedule, Schedule]:
        """`step_size` and `private_step_size` as functions of the round."""
        shared, own = as_schedule(self.step_size), self.private_step_size
        if own is None:
            return shared, lambda round: self.private_ratio * shared(round)
        if callable(own) or isinstance(own, dict):
            return shared, as_schedule(own)
        return shared, lambda round: jnp.full((), own)

    @property
    def fitting_step(self) -> StepSize:
        """The private step size for work outside the rounds, without the ratio of a preset."""
        return self.step_size if self.private_step_size is None else self.private_step_size


def preset_rates(population: int, local: FedResWork, preset: str | None,
                 server_scale: float | None = None) -> Rates:
    """The rates a preset stands for; what it leaves open is as given, or lambda = eta and alpha = 1."""
    ratio = 1.0
    if preset is not None:
        _check_open("private_step_size", local.private_step_size, preset)
        ratio = 1 / population
    if preset == "theorem2":
        _check_open("server_scale", server_scale, preset)
        ratio, server_scale = population**-0.5, population**0.5
    return Rates(local.step_size, local.private_step_size, ratio, 1.0 if server_scale is None else server_scale)


def _check_open(name: str, value: object, preset: str) -> None:
    if value is not None:
        raise InputError(f"preset {preset!r} chooses {name}, which is given as {value}; leave out one of the two.")


def build_fedres(problem: Problem, population: int, local: FedResWork, rates: Rates, client_update: Callable,
                 controlled: bool = False) -> Algorithm:
    """Build the algorithm around a client's work.

    Where clients are `controlled`, the server's control moves by |S|/N times the cohort's mean change of theirs.
    """
    schedule, private_schedule = rates.schedules()
    fit = fitter(problem.loss, local.first_work, rates.fitting_step)

    def init_server(key, shared, private):
        return Server(shared, zeros(shared) if controlled else (), jnp.zeros((), jnp.int32))

    def init_client(key, shared, private):
        return Client(private, zeros(shared) if controlled else (), jnp.zeros((), jnp.int32))

    def broadcast(key, server, central):
        return Message(server.shared, server.control, schedule(server.round), private_schedule(server.round))

    def server_update(key, server, cohort, central):
        moved = scale(rates.server_scale, cohort.value.change)
        learned = scale(cohort.weight / population, cohort.value.control_change)
        return Server(add(server.shared, moved), add(server.control, learned), server.round + 1)

    def model(key, message, client, data):
        return fit(key, message.shared, client.private, data, client.visits)

    averages = mean_of_uploads(only=KEEPS_MEAN if controlled else "")
    return Algorithm(init_server, init_client, broadcast, client_update, averages, server_update, model,
                     adopt=mark_as_acted, needs=Needs(private=True, counts_once=controlled), diagnostics=NAMES_DIVERGED)
