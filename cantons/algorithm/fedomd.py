"""FedOMD: clients take mirror descent steps on streams of losses and meet now and then to average.

Mitra, Hassani and Pappas, "Online Federated Learning", 2021, Algorithm 1. In the paper x_{i,t} is a client's `point`,
eta_t `step_size`, psi the `mirror` map and X the set it is kept `within`; the set I of synchronisations and the number
K of clients that are counted in each belong to the clock: online(sync=tau, counted=K). Line 8, which the print leaves
out, keeps y_{i,t+1} as the next prediction. A private part takes plain gradient steps and is never averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from cantons.aggregate import mean_of_uploads
from cantons.algorithm.parts.schedule import Schedule, StepSize, as_schedule
from cantons.algorithm.parts.trees import add, norm, scale, subtract, zeros
from cantons.errors import InputError
from cantons.mirror import MAPS, SETS, ConvexSet, MirrorMap, mirror_descent_step
from cantons.protocol import Algorithm, Array, Diagnostics, Key, Needs, Problem, PyTree
from cantons.ranges import Named, Positive
from cantons.recipe import algorithm
from cantons.regret.fedomd_bounds import theory_of

MIRROR, WITHIN = Named("mirror", MAPS), Named("within", SETS)


class Server(NamedTuple):
    shared: PyTree


class Client(NamedTuple):
    point: PyTree
    private: PyTree
    steps: Array
    optimizer_state: PyTree  # of adaptive step sizes
    total: PyTree  # of all points predicted with, for the average of equation (14)


@algorithm
def fedomd(problem: Problem, population: int, *, step_size: StepSize = 0.1,
           mirror: Annotated[str, MIRROR] | Annotated[dict, MIRROR] | MirrorMap = "euclidean",
           within: Annotated[str, WITHIN] | Annotated[dict, WITHIN] | ConvexSet = "all_space",
           private_step_size: StepSize | None = None, adaptive: Literal["none", "adagrad", "dog"] = "none",
           feedback: Literal["gradient", "two_point", "one_point"] = "gradient", width: Positive = 0.1) -> Algorithm:
    """Every client steps on each loss as it comes; at a synchronisation all go on from the mean.

    A pair of a map and a set without an exact step is refused.

    step_size: a number, or a schedule over steps such as {"name": "inverse", "start": s}, s/t in step t: 2/sigma for
        losses that are sigma-strongly convex relative to the map (Theorem 2).
    mirror: a mirror map: "euclidean", "entropy", {"name": "p_norm", "p": 1.5}, ...
    within: the set of points: "all_space", "simplex", {"name": "box", "low": -3, "high": 3},
        {"name": "ball", "radius": 1}, ...
    private_step_size: of the private part; the same as `step_size` unless given.
    adaptive: "none"; "adagrad" gives every coordinate a step of its own; "dog" (distance over gradients: Ivgi, Hinder
        and Carmon, 2023) needs no step size at all.
    feedback: "gradient"; under "two_point" or "one_point" a client sees losses only, near its point in a random
        direction, and estimates its gradient from them.
    width: how far from its point a client then looks.
    """
    map_, set_ = build_named(mirror, MAPS, MirrorMap), build_named(within, SETS, ConvexSet)
    step = adaptive_step(adaptive, map_, set_, as_schedule(step_size))
    private_schedule = as_schedule(step_size if private_step_size is None else private_step_size)
    estimate = gradient_estimator(problem, feedback, width)

    def init_server(key, shared, private):
        return Server(shared)

    def init_client(key, shared, private):
        return Client(shared, private, jnp.zeros((), jnp.int32), step.init(shared), zeros(shared))

    def broadcast(key, server, central):
        return server.shared

    def receive(shared, receipt, client):
        return client._replace(point=jax.tree.map(lambda new, old: jnp.where(receipt.new, new, old), shared,
                                                  client.point))

    def client_update(key, shared, client, data):
        gradient, private_gradient, _ = estimate(key, client.point, client.private, data.now())
        point, optimizer_state = step.move(client.point, client.optimizer_state, gradient, client.steps)
        private = subtract(client.private, scale(private_schedule(client.steps), private_gradient))
        return point, Client(point, private, client.steps + 1, optimizer_state, add(client.total, client.point))

    def server_update(key, server, cohort, central):
        return Server(cohort.value)

    def model(key, shared, client, data):
        return client.point, client.private

    # A coordinate-wise rule may leave any other set.
    only = "" if set_.kind in ("all_space", "box") else f"a mean of points stays in the set {set_.name}"
    built = Algorithm(init_server, init_client, broadcast, client_update, mean_of_uploads(only), server_update, model,
                      receive=receive, idle_upload=lambda shared, client: client.point,
                      needs=Needs(shared=False, stream=True),
                      diagnostics=Diagnostics(client=lambda shared, client, model, data: {
                          "drift": norm(subtract(client.point, shared))}),
                      theory=theory_of(map_, set_, step_size, adaptive == "none" and feedback == "gradient"))
    if feedback == "gradient":
        return built
    return built._replace(score=lambda key, shared, client, data: {"loss": estimate(
        key, client.point, client.private, data.now())[2]})


def build_named(value: Any, known: dict[str, Callable], kind: type) -> Any:
    """Build a map or a set from itself, its name, or a table with its name and options."""
    if isinstance(value, kind):
        return value
    options = {"name": value} if isinstance(value, str) else dict(value)
    return known[options.pop("name")](**options)


class Step(NamedTuple):
    init: Callable[[PyTree], PyTree]  # point -> optimizer_state
    move: Callable[[PyTree, PyTree, PyTree, Array], tuple[PyTree, PyTree]]  # (point, optimizer_state, gradient, t)


def adaptive_step(adaptive: str, mirror: MirrorMap, within: ConvexSet, schedule: Schedule) -> Step:
    """Build the step of equation (3), with the step sizes given or with adaptive ones."""
    if adaptive == "adagrad":
        if mirror.kind != "euclidean" or within.kind not in ("all_space", "box"):
            raise InputError(f"adaptive = \"adagrad\" scales every coordinate by itself, which has an exact step with "
                             f"the Euclidean map on the whole space or in a box, not with {mirror.name} on "
                             f"{within.name}; use adaptive = \"dog\", or none.")
        project = within.project
        assert project is not None

        def move_by_coordinate(point, squares, gradient, count):
            squares = jax.tree.map(lambda total, part: total + part**2, squares, gradient)
            move = jax.tree.map(lambda part, total: part / jnp.sqrt(jnp.where(total > 0, total, 1)), gradient, squares)
            return project(subtract(point, scale(schedule(count), move))), squares

        return Step(zeros, move_by_coordinate)
    step = mirror_descent_step(mirror, within)
    if adaptive == "none":
        return Step(lambda point: (), lambda point, nothing, gradient, count: (
            step(point, gradient, schedule(count)), nothing))

    def move_by_distance(point, optimizer_state, gradient, count):
        first, furthest, squares = optimizer_state
        furthest = jnp.maximum(furthest, norm(subtract(point, first)))
        squares = squares + norm(gradient) ** 2
        size = furthest / jnp.sqrt(jnp.where(squares > 0, squares, 1))
        return step(point, gradient, size), (first, furthest, squares)

    return Step(lambda point: (point, 1e-4 * (1 + norm(point)), jnp.zeros(())), move_by_distance)


def gradient_estimator(problem: Problem, feedback: str, width: float) -> Callable[[Key, PyTree, PyTree, Any], tuple]:
    """Build `estimate(key, point, private, batch)`: the gradients of both parts, and the loss that is charged.

    Flaxman, Kalai and McMahan, 2005, for one point; Agarwal, Dekel and Xiao, 2010, for two: n / width times a loss at a
    distance, or half the difference of two, along a random direction of length 1.
    """

    def estimate(key: Key, point: PyTree, private: PyTree, batch: Any) -> tuple[PyTree, PyTree, Array]:
        if feedback == "gradient":
            loss, found = jax.value_and_grad(problem.loss, argnums=(0, 1))(point, private, batch)
            return *found, loss
        parts = point, private
        leaves, structure = jax.tree.flatten(parts)
        keys = jax.random.split(key, max(len(leaves), 1))
        noise = jax.tree.unflatten(structure, [jax.random.normal(one, leaf.shape, leaf.dtype)
                                               for one, leaf in zip(keys, leaves, strict=False)])
        direction = scale(1 / norm(noise), noise)
        entries = sum(leaf.size for leaf in leaves)
        there, back = add(parts, scale(width, direction)), subtract(parts, scale(width, direction))
        ahead = problem.loss(there[0], there[1], batch)
        if feedback == "one_point":
            return *scale(entries / width * ahead, direction), ahead
        behind = problem.loss(back[0], back[1], batch)
        return *scale(entries / (2 * width) * (ahead - behind), direction), (ahead + behind) / 2

    return estimate
