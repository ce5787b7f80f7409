"""Step sizes of Theorems 1, 6, 7 and 8 of the FFGG paper, and a notice to runs with longer ones.

Mishchenko et al., "Partially Personalized Federated Learning: Breaking the Curse of Data Heterogeneity". With w*(theta)
the best private part, F_m(theta) is the shared part's gradient there, and L its smoothness: the largest eigenvalue of
f_11 - f_12 f_22^+ f_21, where f_ij are the blocks of the Hessian of a client's loss. L_w bounds f_22 and, by equation
5, f_12. Theorem 8 also has mu, the least eigenvalue of the mean of these matrices over clients, and l_sim, how far they
differ. The paper's losses are sums over rows and ours are means; the constants here are those of our losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cantons.algorithm.parts.schedule import StepSize, usual_step
from cantons.algorithm.parts.step_limit import asked, curvatures, largest_eigenvalue
from cantons.algorithm.parts.training import Loss
from cantons.algorithm.parts.tuners import newton_cg
from cantons.errors import InputError
from cantons.protocol import Array, Examples, Parts, Problem, PyTree
from cantons.solve.conjugate_gradients import conjugate_gradients

DENSE = 2000  # numbers of both parts together of which a Hessian is made
SOLVE = 50  # steps of conjugate gradients for f_22^+ at most
FOUND = 1e-6  # a curvature below this share of the largest counts as 0: Hessians may be of single precision


class StepSizes(NamedTuple):
    """What the theorems ask for; all of it is estimated at the start of a run, and exact for least squares."""

    step_size: float  # 1 / L: gamma_theta of both theorems
    private_step_size: float  # 1 / L_w: gamma_w of Theorem 6
    tuning_steps: float  # tau of Theorem 6, a whole number; infinite where f is not strongly convex in w
    smoothness: float  # L
    private_smoothness: float  # L_w
    private_curvature: float  # mu_w
    curvature: float  # mu of Theorem 8, which its proof needs of the mean of all F_m alone
    dissimilarity: float  # l_sim of equation 20: mean |F_m|^2 - |F|^2 is at most l_sim <F, theta - theta*>

    def asynchronous(self, jobs: int, longest_delay: int) -> float:
        """gamma_theta of Theorem 7, of one event: 1 / (2 L sqrt(2 M tau_max)), and at most the 1 / (2 L) of its proof.

        jobs: M, the jobs that are under way at a time: the clock's `concurrency`.
        longest_delay: tau_max, `clock.delay.max` of a run.
        """
        return _inverse(2 * self.smoothness * math.sqrt(max(2 * jobs * longest_delay, 1)))

    def robust(self, clients: int, liars: int, c: float) -> RobustLimits:
        """What Theorem 8 asks for where honest clients tune exactly (rho_in = 1), and what it promises then.

        clients: M, in a round.
        liars: how many of these.
        c: the constant of the rule with which they are aggregated; `cantons.metrics.measure_robustness` finds one.
        """
        honest = clients - liars
        apart = c * (1 + 1 / max(honest - 1, 1)) * self.dissimilarity
        step_size = _inverse(4 * (self.smoothness + 2 * liars / clients * apart))
        allowed = min(0.5, self.curvature * _inverse(2 * apart))
        return RobustLimits(allowed, step_size, 1 - step_size * self.curvature / 2)


class RobustLimits(NamedTuple):
    """Theorem 8, for one rule."""

    liars: float  # delta, the part of the clients that may lie: equation 22, and less than half
    step_size: float  # gamma_theta: equation 23
    rate: float  # what |theta - theta*|^2 is multiplied by in a round: equation 24


def ffgg_step_sizes(problem: Problem, data: Any, rounds: int = 100,
                    start: tuple[PyTree, PyTree] | None = None) -> StepSizes:
    """The step sizes and the number of tuning steps with which the theorems of the paper prove that FFGG converges.

    They are for convex problems of up to 2000 parameters. The distance r_0 to the solution, which nobody knows, and the
    private parts there are replaced by bounds from the start: r_0 >= ||F|| / L, and ||w*(theta) - w_0|| is at most
    A ||theta - theta_0|| + ||w*(theta_0) - w_0||. Both can only make tau larger. Those of Theorem 7 (asynchronous
    clients) and Theorem 8 (liars) are methods of what comes back.

    rounds: R of Theorem 6.
    start: the (shared, private) that the run begins with; by default the problem's own.
    """
    shared, private = problem.init(jax.random.key(0)) if start is None else start
    size = sum(leaf.size for leaf in jax.tree.leaves((shared, private)))
    if problem.convex is None:
        raise InputError("the theorems are for convex problems, and this one is not known to be; choose step sizes by "
                         "trying some.")
    if size > DENSE:
        raise InputError(f"the model has {size} parameters, and a Hessian is made of {DENSE} at most; choose step "
                         "sizes by trying some.")
    train: Examples = data.train
    each, ids = [], asked(train)
    mean = square = np.zeros(())  # sums: the matrices of all clients together may be too large
    for index in ids:
        each.append(jax.device_get(_constants(problem.loss, train, index, shared, private)))
        reduced = each[-1].pop("reduced")
        mean, square = mean + reduced / len(ids), square + reduced @ reduced / len(ids)
    most = {name: float(np.max([one[name] for one in each])) for name in each[0]}
    least = float(np.min([one["least"] for one in each]))
    smooth, private_smooth = most["smooth"], max(most["private"], most["across"])
    least, smooth = (value if value > FOUND * of else 0.0 for value, of in (
        (least, private_smooth), (smooth, most["whole"])))
    force = float(np.linalg.norm(np.mean([one["force"] for one in each], axis=0)))
    steps = 1.0 if not jax.tree.leaves(private) else math.inf
    if least and smooth:
        factor = 2 * private_smooth / smooth
        a, b = factor * most["sway"], factor * (most["sway"] + most["away"] * smooth / max(force, 1e-300))  # b / r_0
        wanted = max(2 * math.log(max(a * rounds, 1.0)), 2 * math.log(max(b * rounds, 1.0)),
                     math.log(max(b**2 * rounds, 1.0)))
        steps = max(1.0, math.ceil(private_smooth / least * wanted))
    return StepSizes(_inverse(smooth), _inverse(private_smooth), steps, smooth, private_smooth, least,
                     *_curvature_and_dissimilarity(mean, square - mean @ mean))


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf


def _curvature_and_dissimilarity(mean: np.ndarray, spread: np.ndarray) -> tuple[float, float]:
    """(mu, l_sim): the least eigenvalue of the mean, and the least l with spread <= l mean, as quadratic forms."""
    values, axes = np.linalg.eigh(mean)
    found = values > FOUND * values[-1]
    whitened = axes[:, found] / np.sqrt(values[found])  # where all curvatures are 0, all F_m are alike
    if not found.any():
        return 0.0, 0.0
    return float(values[0]) if found[0] else 0.0, max(0.0, float(np.linalg.eigvalsh(
        whitened.T @ spread @ whitened)[-1]))


@partial(jax.jit, static_argnums=0)
def _constants(loss: Loss, train: Any, index: Array, shared: PyTree, private: PyTree) -> dict[str, Array]:
    """Of one client, from the Hessian of its loss at the best private part."""
    batch = train.client(index).full()
    (theta, restore_shared), (own, restore) = ravel_pytree(shared), ravel_pytree(private)
    best, _ = ravel_pytree(_tuned(loss, shared, private, train.client(index)))

    def height(both: Array) -> Array:
        return loss(restore_shared(both[:theta.size]), restore(both[theta.size:]), batch)

    point = jnp.concatenate([theta, best.astype(theta.dtype)])
    hessian, cut = jax.hessian(height)(point), theta.size
    across, inner = hessian[:cut, cut:], hessian[cut:, cut:]
    sway = jnp.linalg.pinv(inner, hermitian=True) @ across.T  # minus the Jacobian of w*
    spectrum = jnp.linalg.eigvalsh(inner) if own.size else jnp.zeros(1)
    reduced = hessian[:cut, :cut] - across @ sway
    return {"reduced": reduced, "smooth": jnp.linalg.eigvalsh(reduced)[-1],
            "whole": jnp.linalg.eigvalsh(hessian[:cut, :cut])[-1], "private": spectrum[-1], "least": spectrum[0],
            "across": _spectral_norm(across), "sway": _spectral_norm(sway), "away": jnp.linalg.norm(best - own),
            "force": jax.grad(height)(point)[:cut]}


def _spectral_norm(matrix: Array) -> Array:
    return jnp.linalg.norm(matrix, 2) if matrix.size else jnp.zeros(())


def _tuned(loss: Loss, shared: PyTree, private: PyTree, data: Any) -> PyTree:
    """The best private part, for convex losses."""
    if not jax.tree.leaves(private):
        return private
    return newton_cg(steps=10, cg_steps=SOLVE).build(loss)(jax.random.key(0), shared, private, data, None)


def ffgg_advice(step_size: StepSize | None, rate: float, tuning_step: StepSize | None
                ) -> Callable[[Parts, tuple[PyTree, PyTree]], list[str]]:
    """Tell that steps are longer than the theorems allow, where losses are convex.

    The server's step is `step_size` times `rate`, and the size is None where nothing is proved about it; `tuning_step`
    is that of gradient descent, None for other tuners.
    """
    def advise(parts: Parts, start: tuple[PyTree, PyTree]) -> list[str]:
        if parts.problem.convex is None:
            return []
        loss, train, found = parts.problem.loss, parts.data.clients.train, []
        shared, private = start
        step = None if step_size is None else float(usual_step(step_size)) * rate
        # f_11 at one private part bounds L from above: where it allows the step, nothing else is found out. It is that
        # of the start: a loss that is not quadratic may bend more at the best private part, and that goes unsaid.
        if step is not None and step * curvatures(loss, train, asked(train), shared, private).max() > 1:
            smooth = float(_smoothness(loss, train, asked(train), shared, private))
            if step * smooth > 1:
                found.append(f"step_size is {step:.3g}, and Theorem 1 proves convergence up to 1/L = {1 / smooth:.3g}, "
                             "with L estimated at the start; the run goes on.")
        if tuning_step is not None and jax.tree.leaves(private):
            smooth = float(curvatures(_swapped(loss), train, asked(train), private, shared).max())
            longest = float(usual_step(tuning_step))
            if longest * smooth > 1:
                fate = ", and beyond twice that it diverges" if longest * smooth > 2 else ""
                found.append(f"the tuner's step_size is {longest:.3g}, and Theorem 6 wants 1/L_w = "
                             f"{1 / smooth:.3g} for gradient descent{fate}, with L_w estimated at the start; the run "
                             "goes on.")
        return found

    return advise


def _swapped(loss: Loss) -> Loss:
    return lambda private, shared, batch: loss(shared, private, batch)


@partial(jax.jit, static_argnums=0)
def _smoothness(loss: Loss, train: Any, ids: Array, shared: PyTree, private: PyTree) -> Array:
    """L, from products of the Hessian with vectors alone: for models of any size."""
    theta, restore_shared = ravel_pytree(shared)

    def of_client(index: Array) -> Array:
        data = train.client(index)
        batch = data.full()
        best, restore = ravel_pytree(_tuned(loss, shared, private, data))

        def gradients(theta: Array, own: Array) -> tuple[Array, Array]:
            return jax.grad(lambda theta, own: loss(restore_shared(theta), restore(own), batch), (0, 1))(theta, own)

        def turn(along: Array) -> Array:
            """f_11 v - f_12 f_22^+ f_21 v."""
            straight, across = jax.jvp(lambda theta: gradients(theta, best), (theta,), (along,))[1]
            if not best.size:
                return straight
            sway = conjugate_gradients(lambda move: jax.jvp(lambda own: gradients(theta, own)[1], (best,), (move,))[1],
                                       across, min(best.size, SOLVE))
            return straight + jax.jvp(lambda own: gradients(theta, own)[0], (best,), (sway,))[1]

        return largest_eigenvalue(turn, theta)

    return jax.lax.map(of_client, ids).max()
