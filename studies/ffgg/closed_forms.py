"""What is known by hand about f_m = |H theta - b|^2 / 2 + |A theta + B w - y|^2 / 2, the losses of the FFGG paper.

F_m(theta) = S_m theta - s_m with S_m = H'H + A'(I - B B^+)A: every constant of the theorems is an eigenvalue. All
numbers are those of the paper's sums; the library's losses are means, smaller by the factor `rows`.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

import cantons as ct


class Constants(NamedTuple):
    """Of the theorems, each for the worst client."""

    sharp: float  # L: the largest eigenvalue of any S_m
    strong: float  # mu: the smallest eigenvalue of the mean of all S_m
    joint: float  # L_f: the smoothness of f_m in both parts together
    of_shared: float  # the smoothness of f_m in theta, for a fixed w
    of_private: float  # the smoothness of f_m in w: 1 / gamma_w
    strong_private: float  # mu_w
    cross: float  # |A'B|: what (5) calls L_w


class Quadratics:
    """The losses of all clients of `synthetic_least_squares`, in the order of the federation."""

    def __init__(self, data: ct.Federation, shared: int, rows: int):
        sizes = np.asarray(data.train.sizes)
        count, = set(sizes.tolist())
        inputs = np.asarray(data.train.inputs).reshape(len(sizes), count, -1)
        targets = np.asarray(data.train.targets).reshape(len(sizes), count)
        factor = 2 * rows / count  # the mean of squares times `rows` has this before its half sum of squares
        self.shared = shared
        self.hessians = factor * np.einsum("mni,mnj->mij", inputs, inputs)
        self.moments = factor * np.einsum("mni,mn->mi", inputs, targets)
        self.penalties = factor * np.einsum("mni,mnj->mij", *[inputs[:, : count // 2, :shared]] * 2)  # see `readings`

    @property
    def blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """H'H + A'A, A'B and B'B."""
        cut = self.shared
        return self.hessians[:, :cut, :cut], self.hessians[:, :cut, cut:], self.hessians[:, cut:, cut:]

    @cached_property
    def fit(self) -> tuple[np.ndarray, np.ndarray]:
        """(J, c) with w_m*(theta) = c_m - J_m theta, the shortest of the best."""
        _, cross, curvature = self.blocks
        inverse = np.linalg.pinv(curvature, hermitian=True)
        return inverse @ cross.transpose(0, 2, 1), np.einsum("mij,mj->mi", inverse, self.moments[:, self.shared:])

    @cached_property
    def S(self) -> np.ndarray:
        whole, cross, _ = self.blocks
        return whole - cross @ self.fit[0]

    @cached_property
    def s(self) -> np.ndarray:
        return self.moments[:, :self.shared] - np.einsum("mij,mj->mi", self.blocks[1], self.fit[1])

    @cached_property
    def mean(self) -> tuple[np.ndarray, np.ndarray]:
        """S and s of F, the mean over clients."""
        return self.S.mean(0), self.s.mean(0)

    @cached_property
    def solution(self) -> np.ndarray:
        """theta*: the mean of all F_m is 0."""
        return np.linalg.solve(*self.mean)

    @cached_property
    def sharp(self) -> float:
        """L of the constants, also where nothing is private."""
        return _largest(self.S)

    @cached_property
    def constants(self) -> Constants:
        whole, cross, curvature = self.blocks
        return Constants(
            self.sharp, float(np.linalg.eigvalsh(self.mean[0])[0]), _largest(self.hessians), _largest(whole),
            _largest(curvature), float(np.linalg.eigvalsh(curvature)[:, 0].min()),
            float(np.linalg.norm(cross, 2, axis=(1, 2)).max()))

    def readings(self) -> dict[str, float]:
        """What L may be read as. Only rows that are not compact tell H'H from A'A: the first half of them are H's."""
        rest = self.S - self.penalties
        steepest, longest = _largest(self.penalties), float(np.linalg.norm(rest, axis=(1, 2)).max())
        return {"sharp": self.constants.sharp, "Example 1, spectral": 2 * max(steepest, _largest(rest)),
                "Example 1, Frobenius": 2 * max(steepest, longest), "the authors' code": max(steepest, longest)}

    def operators(self, theta: np.ndarray) -> np.ndarray:
        """F_m(theta) of every client, for one theta or many: [..., clients, numbers]."""
        return np.einsum("mij,...j->...mi", self.S, theta) - self.s

    def norms(self, thetas: np.ndarray) -> np.ndarray:
        """|F(theta)|, of the mean over clients, for one theta or many."""
        S, s = self.mean
        return np.linalg.norm(thetas @ S - s, axis=-1)

    def best_private(self, theta: np.ndarray) -> np.ndarray:
        J, c = self.fit
        return c - J @ theta

    def gradients(self, theta: np.ndarray, private: np.ndarray) -> np.ndarray:
        """Of every client's loss in theta, at a w of its own."""
        whole, cross, _ = self.blocks
        return whole @ theta + np.einsum("mij,mj->mi", cross, private) - self.moments[:, :self.shared]

    def tuned(self, theta: np.ndarray, start: np.ndarray, step_size: float, steps: int) -> np.ndarray:
        """Gradient descent on w: w* + (I - gamma_w B'B)^tau (w_0 - w*)."""
        best = self.best_private(theta)
        return best + _decayed(self.blocks[2], step_size, steps, start - best)

    def tuned_operators(self, step_size: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """(G, h): with w tuned by gradient descent from 0 client m sends G_m theta - h_m in the place of F_m(theta)."""
        whole, cross, curvature = self.blocks
        J, c = self.fit
        learned = _learned(curvature, step_size, steps)
        return (whole - cross @ learned @ J,
                self.moments[:, :self.shared] - np.einsum("mij,mjk,mk->mi", cross, learned, c))

    def tuned_operator(self, step_size: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Their means over clients: what the server sees."""
        G, h = self.tuned_operators(step_size, steps)
        return G.mean(0), h.mean(0)

    @cached_property
    def one_model(self) -> np.ndarray:
        """The best (theta, w) of all clients together, where nothing is private: the limit of SCAFFOLD."""
        return np.linalg.solve(self.hessians.mean(0), self.moments.mean(0))

    def averaged(self, step_size: float, steps: int) -> np.ndarray:
        """The (theta, w) that Local GD ends in, with these local steps."""
        learned = _learned(self.hessians, step_size, steps)
        best = np.linalg.solve(self.hessians, self.moments[..., None])
        return np.linalg.solve(learned.mean(0), (learned @ best).mean(0))[:, 0]

    def local_operator(self, step_size: float, private_step_size: float, steps: int,
                       tau: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(G, h): a round of Local FFGG leads theta to theta - (G theta - h), so that it ends where G theta = h.

        w is tuned exactly, or by tau steps of gradient descent from 0. Around a client's best (theta, w) each of the
        `steps` after that is one and the same matrix. With exact tuning, one step gives `step_size` times S_m, and a
        second one adds S_m times a factor of the client's own: I - gamma (H'H + A'A - gamma_w A'BB'A).
        """
        cut, identity = self.shared, np.eye(self.hessians.shape[1])
        of_shared = np.diag(identity[:cut].sum(0))
        (J, c), curvature = self.fit, self.blocks[2]
        known = np.broadcast_to(identity[cut:, cut:], curvature.shape) if tau is None else (
            _learned(curvature, private_step_size, tau))
        after_tuning = np.concatenate([np.broadcast_to(identity[:cut, :cut], self.S.shape), -known @ J], axis=1)
        from_zero = np.concatenate([0 * self.s, np.einsum("mij,mj->mi", known, c)], axis=1)
        one_step = (identity - step_size * of_shared @ self.hessians) @ (
            identity - private_step_size * (identity - of_shared) @ self.hessians)
        all_steps = np.linalg.matrix_power(one_step, steps)
        best = np.linalg.solve(self.hessians, self.moments[..., None])[..., 0]
        ends = best + np.einsum("mij,mj->mi", all_steps, from_zero - best)
        return identity[:cut, :cut] - (all_steps @ after_tuning).mean(0)[:cut], ends.mean(0)[:cut]

    def descended(self, point: np.ndarray, step_size: float, steps: int) -> np.ndarray:
        """Where every client ends that descends on (theta, w) from one point."""
        best = np.linalg.solve(self.hessians, self.moments[..., None])[..., 0]
        return best + _decayed(self.hessians, step_size, steps, point - best)


def _largest(matrices: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(matrices)[:, -1].max())


def _learned(curvatures: np.ndarray, step_size: float, steps: int) -> np.ndarray:
    """I - (I - gamma C_m)^steps: how much of the way to the solution gradient descent has gone."""
    values, axes = np.linalg.eigh(curvatures)
    return axes * (1 - (1 - step_size * values) ** steps)[:, None] @ axes.transpose(0, 2, 1)


def _decayed(curvatures: np.ndarray, step_size: float, steps: int, vectors: np.ndarray) -> np.ndarray:
    """(I - gamma C_m)^steps v_m."""
    values, axes = np.linalg.eigh(curvatures)
    turned = np.einsum("mij,mi->mj", axes, np.broadcast_to(vectors, (len(axes), axes.shape[1])))
    return np.einsum("mij,mj->mi", axes, (1 - step_size * values) ** steps * turned)
