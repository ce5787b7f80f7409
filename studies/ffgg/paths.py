"""Where theta goes when FFGG and others run on the losses of the FFGG paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import scipy.sparse.linalg
from closed_forms import Quadratics

import cantons as ct
from cantons.clock.events import Events
from cantons.protocol import Problem, Recipe
from cantons.study.resolve import resolve

BARE = ct.linear(bias=False)


def in_parts(data: ct.Federation, shared: int) -> Problem:
    """theta is shared, w private."""
    (width,) = data.input_shape
    return ct.residual(data, shared_features=list(range(shared)), private_features=list(range(shared, width)),
                       shared_model=BARE, private_model=BARE)


def in_whole(data: ct.Federation) -> Problem:
    """Nothing is private: (theta, w) is one model."""
    return ct.regression(data, BARE)


def tuned_exactly(known: Quadratics, rows: int) -> ct.Federation:
    """Clients with nothing private, whose gradient at theta is F_m(theta): what FFGG sends after it tuned w exactly.

    Each has the rows of a root of its S_m, as many as columns. A round costs a small part of one that tunes.
    """
    clients, shared = known.s.shape
    half = shared / 2 / rows  # of the mean of squares over so many rows
    roots = np.linalg.cholesky(half * known.S)
    targets = np.linalg.solve(roots, half * known.s[..., None])
    return ct.federation(roots.transpose(0, 2, 1).reshape(-1, shared), targets.ravel(),
                         np.repeat(np.arange(clients), shared), test=0, name="tuned_exactly")


def follow(problem: Problem, data: ct.Federation, recipes: Sequence[Recipe], looks: Sequence[int], shared: int,
           cohort: int | None = None, seed: int = 0, **options: Any) -> np.ndarray:
    """theta of each recipe after so many rounds: [recipes, looks, numbers]. All recipes are one program.

    They may differ in real numbers alone; `options` are those of `run`, such as a rule. Nothing is scored: what there
    is to know follows from theta.
    """
    engine: Any = ct.Local() if len(recipes) == 1 else ct.Local().together()
    with jax.enable_x64(True):
        session = engine.start([resolve(problem, data, recipe, rounds=max(1, looks[-1]), cohort=cohort, seed=seed,
                                        precision="float64", engine=engine, **options).parts for recipe in recipes])
        state, found = session.begin(), []
        for until in looks:
            state = session.advance(state, until) if until else state
            found.append([one.state.server.shared["layer0"]["weight"][:shared, 0] for one in session.whole(state)])
        session.close()
    return np.swapaxes(np.array(found), 0, 1)


def gradient_norms(data: ct.Federation, known: Quadratics, rows: int, rounds: int) -> tuple[float, float]:
    """What the library tells as `clients.gradient_norm.mean` before the first round of FFGG and after the last.

    In the paper's sums: the mean of |F_m| over clients. Steps are 1.8 / L, and w is tuned by 20 conjugate gradients.
    """
    recipe = ct.ffgg(step_size=1.8 * rows / known.sharp, tuner={"name": "cg", "steps": 20})
    result = ct.run(in_parts(data, known.shared), data, recipe, rounds=rounds, evaluate_every=rounds,
                    precision="float64", progress=None)
    first, last = (rows * row["clients.gradient_norm.mean"] for row in (result.history[0], result.final))
    return first, last


def follow_scipy(known: Quadratics, step_size: float, rounds: int, every: int, rtol: float = 1e-5) -> np.ndarray:
    """theta every so many rounds of FFGG, from 0, where SciPy's conjugate gradients tune w from 0: [looks, numbers].

    1e-5 is what `scipy.sparse.linalg.cg` has where it is not told: it ends once the residual is that part of the
    right-hand side.
    """
    _, cross, curvature = known.blocks
    theta, found = np.zeros(known.shared), []
    for number in range(rounds + 1):
        if number % every == 0:
            found.append(theta)
        wanted = known.moments[:, known.shared:] - theta @ cross
        w = np.array([scipy.sparse.linalg.cg(matrix, vector, rtol=rtol)[0]
                      for matrix, vector in zip(curvature, wanted, strict=True)])
        theta = theta - step_size * known.gradients(theta, w).mean(0)
    return np.array(found)


def follow_events(G: np.ndarray, h: np.ndarray, events: Events, step_sizes: Sequence[float]) -> np.ndarray:
    """theta after every event, from 0, where client m answers theta with G_m theta - h_m: [events + 1, steps, numbers].

    It is what the library computes, from the same events. One client's matrix is read once for all step sizes.
    """
    sizes = np.asarray(step_sizes)[:, None]
    thetas = np.zeros((len(events.client) + 1, len(sizes), h.shape[1]))
    for number, (ids, versions) in enumerate(zip(events.client, events.version, strict=True)):
        there = ids < len(h)
        answers = [thetas[version] @ G[one] - h[one] for one, version in zip(ids[there], versions[there], strict=True)]
        thetas[number + 1] = thetas[number] - sizes * np.mean(answers, axis=0)
    return thetas
