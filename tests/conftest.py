"""Two devices even on a CPU, compiled programs kept between runs, and the tiny federations the tests share."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

# Before JAX is imported, and through the environment, so that programs the tests start do likewise.
# Tests run a program once or twice: compile fast rather than well. `XLA_FLAGS= make test` compiles as users do.
os.environ.setdefault("XLA_FLAGS", " ".join(
    ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
    + ["--xla_cpu_use_fusion_emitters=false"] * version("jax").startswith("0.10.")))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import jax.numpy as jnp
import numpy as np
import pytest

# Before anything is computed: afterwards the number of devices cannot be changed.
jax.config.update("jax_num_cpu_devices", 2)

from starting import start  # noqa: E402

import cantons as ct  # noqa: E402  (not before the two devices are asked for)
from cantons.checks.engines import compilations as counted_compilations  # noqa: E402
from cantons.engine.aggregation import aggregation_of  # noqa: E402
from cantons.engine.summands import dense  # noqa: E402
from cantons.protocol import Datacenter, Receipt  # noqa: E402

# Tracing makes millions of small objects, and most of what the collector walks through is JAX itself: look less often.
gc.freeze()
gc.set_threshold(50_000, 20, 20)

pytest_plugins = ["tiers"]

SIZES = (3, 17, 5, 8, 11, 4, 9)  # training examples of each client: ragged on purpose


def pytest_ignore_collect(collection_path, config):
    """Tests that start a cluster run where they are asked for: `make test-engines`."""
    asked = any("engines" in str(argument) for argument in config.args)
    return True if collection_path == Path(__file__).parent / "engines" and not asked else None


@pytest.fixture
def float64():
    """Equalities are mathematics: look at sixteen digits of them."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def numbers():
    """Seven ragged clients, each with a linear model of its own behind its targets; every row trains."""
    random = np.random.default_rng(0)

    def client(size):
        inputs = random.normal(size=(size, 3))
        return inputs, inputs @ random.normal(size=3) + 0.1 * random.normal(size=size)

    return ct.from_clients({f"client{number}": client(size) for number, size in enumerate(SIZES)}, test=0)


@pytest.fixture(scope="session")
def labels():
    """Seven ragged clients with four inputs, three classes and test rows, and two newcomers besides."""
    random = np.random.default_rng(1)
    clients = {f"client{number}": (random.normal(number / 4, 1, (size, 4)), random.integers(0, 3, size))
               for number, size in enumerate((*SIZES, 6, 13))}
    return ct.from_clients(clients, classes=3, test=0.25, new=2)


@pytest.fixture(scope="session")
def least_squares(numbers):
    """The mean of (x.w - y)^2, whose gradient is 2/n X'(Xw - y)."""
    return ct.regression(numbers, ct.linear(bias=False))


@pytest.fixture(scope="session")
def own_rows():
    """`own_rows(data)`: the (inputs, targets) every client trains on."""

    def split(data):
        ends = np.cumsum(data.train.sizes)[:-1]
        return list(zip(np.split(data.train.inputs, ends), np.split(data.train.targets, ends), strict=True))

    return split


@pytest.fixture(scope="session")
def compilations():
    """`with compilations() as found`: the programs compiled in the block, be they in the persistent cache or not."""
    return counted_compilations


class Quadratics(NamedTuple):
    """The clients' losses w'Hw - 2r'w + constant, one row each; the gradient is 2(Hw - r)."""

    curvature: np.ndarray  # H_i = X'X/n
    target: np.ndarray  # r_i = X'y/n
    examples: np.ndarray

    def gradients(self, weight):
        """Every client's gradient at one point, or at a point each."""
        points = np.broadcast_to(weight, self.target.shape)
        return 2 * (np.einsum("ijk,ik->ij", self.curvature, points) - self.target)

    def descended(self, weight, step_size, steps):
        """Where each client's own gradient descent gets from `weight`: x* + (I - 2 step H)^steps (x - x*)."""
        optima = np.linalg.solve(self.curvature, self.target[..., None])[..., 0]
        shrink = np.linalg.matrix_power(np.eye(3) - 2 * step_size * self.curvature, steps)
        return optima + np.einsum("ijk,ik->ij", shrink, weight - optima)

    def mean(self, weights=None):
        """The one quadratic that is the (weighted) mean of all."""
        curvature, target = (np.average(part, axis=0, weights=weights)[None] for part in self[:2])
        return Quadratics(curvature, target, self.examples.sum(keepdims=True))

    @property
    def optimum(self):
        return np.linalg.solve(self.curvature[0], self.target[0])


@pytest.fixture(scope="session")
def quadratics(numbers, own_rows):
    """What `least_squares` means to each client of `numbers`, in closed form."""
    pairs = own_rows(numbers)
    return Quadratics(np.array([x.T @ x / len(x) for x, _ in pairs]), np.array([x.T @ y / len(x) for x, y in pairs]),
                      np.array([len(x) for x, _ in pairs]))


@pytest.fixture(scope="session")
def played():
    """`played(problem, data, recipe, rounds)`: the state after some rounds on one device, nothing scored.

    The last sessions are kept: the very same recipe on the very same data is not traced and compiled again.
    """
    kept = OrderedDict()

    def session_of(problem, data, recipe, clock, engine, seed):
        given = problem, data, recipe, clock, engine  # kept beside the session, so that no other has their ids
        key = *map(id, given), seed, jnp.result_type(float)
        if key not in kept:
            algorithm = recipe.build(problem, data.population)
            known = () if data.clients.groups is None else (None, data.clients.groups)
            clock = (clock or ct.rounds()).build(data.population, *known)
            kept[key] = given, start(engine or ct.Local(devices=1), problem, algorithm, clock, data, data.central, seed)
        kept.move_to_end(key)
        if len(kept) > 8:
            kept.popitem(last=False)
        return kept[key][1]

    def play(problem, data, recipe, rounds, clock=None, engine=None, initial=None, seed=0):
        session = session_of(problem, data, recipe, clock, engine, seed)
        return jax.device_get(session.advance(session.begin(initial), rounds))

    return play


@pytest.fixture(scope="session")
def plain_loop():
    """`plain_loop(problem, data, recipe)`: rounds as cantons.protocol writes them, without an engine."""
    return PlainLoop


class PlainLoop:
    """Federated rounds in plain Python, one client after another: what every engine has to agree with."""

    def __init__(self, problem, data, recipe, seed=0):
        self.algorithm = recipe.build(problem, data.population)
        self.population = data.population
        self.train = jax.tree.map(_default_precision, data.train)
        self.central = jax.tree.map(_default_precision, data.central)
        self.start_key, self.run_key, _ = jax.random.split(jax.random.key(seed), 3)
        self.begin(problem.init(self.start_key))
        self._act = jax.jit(self._acted)
        self._serve = jax.jit(self._served)
        self._broadcast = jax.jit(lambda key, server, *given: self.algorithm.broadcast(
            key, server, self._datacenter(*given)))

    def begin(self, parts):
        """Everybody starts from the same (shared, private)."""
        self.start = jax.tree.map(jnp.asarray, parts)
        self.server = self.algorithm.init_server(self.start_key, *self.start)
        self.clients = [self.algorithm.init_client(jax.random.fold_in(self.start_key, index), *self.start)
                        for index in range(self.population)]
        self.done, self.unheard, self.uploads = 0, set(), {}
        return self

    @property
    def weight(self):
        """The shared weights of a linear model with one output."""
        return np.asarray(self.server.shared["layer0"]["weight"][:, 0])

    def play(self, rounds, cohort=None, lost=()):
        """Some rounds with the clients in `cohort`, of whom those in `lost` are cut off while they upload."""
        for _ in range(rounds):
            self._round(range(self.population) if cohort is None else cohort, lost)
        return self

    def _round(self, cohort, lost):
        key = jax.random.fold_in(self.run_key, self.done)
        _, broadcast_key, client_key, *server_keys = jax.random.split(key, 5)
        given = self.train, self.central, jax.random.fold_in(key, 5)
        self.message = self._broadcast(broadcast_key, self.server, *given)
        self.uploads = {}
        for index in cohort:
            receipt = Receipt(jnp.array(True), jnp.array(index in self.unheard))
            heard = self.algorithm.receive(self.message, receipt, self.clients[index])
            upload, moved = self._act(jax.random.fold_in(client_key, index), self.message, heard, self.train, index)
            self.clients[index] = heard if index in lost else moved
            if index not in lost:
                self.uploads[index] = upload
        self.unheard = (self.unheard - set(cohort)) | set(self.uploads)
        if self.uploads:
            self.server = self._serve(server_keys, self.server, self.uploads, self.message, *given)
        self.done += 1

    def _acted(self, key, message, client, train, index):
        data = train.client(index)
        sent = self.algorithm.select(message, self.algorithm.request(key, client, data))
        return self.algorithm.client_update(key, sent, client, data)

    def _datacenter(self, train, central, key):
        return Datacenter(None if central is None else central.client(0), key,
                          train.pooled() if self.algorithm.needs.pooled else None)

    def _served(self, keys, server, uploads, message, *given):
        rule = aggregation_of(self.algorithm.aggregate)
        carried = [dense(rule.carry((), upload, message)) for upload in uploads.values()]
        joined = jax.tree.map(lambda *leaves: sum(leaves) if rule.adds else jnp.stack(leaves), *carried)
        ids, counts = jnp.array(list(uploads)), jnp.ones(len(uploads), jnp.int32)
        aggregate, _, _ = rule.close(keys[0], (), joined, ids, counts, self.population)
        return self.algorithm.server_update(keys[1], server, aggregate, self._datacenter(*given))


def _default_precision(leaf):
    return jnp.asarray(leaf, float) if np.issubdtype(leaf.dtype, np.floating) else jnp.asarray(leaf)
