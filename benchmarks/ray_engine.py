"""What the engine `ray` costs: messages of a round, memory, throughput, the death of an actor, and local models.

    python benchmarks/ray_engine.py [--rounds 300] [--only overhead]

Each number comes from a run of its own, on a Ray of its own.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import cantons as ct
from cantons.local_models.host import ProcessHost
from cantons.local_models.ray_host import RayHost
from cantons.local_models.server_side import server_problem
from cantons.local_models.session import LocalModels
from cantons.protocol import Algorithm, Parts, PyTree, Recipe, Sum


def session_of(engine, problem, data, recipe, cohort=None):
    algorithm, clock = recipe.build(problem, data.population), ct.rounds(cohort=cohort).build(data.population)
    return engine.start([Parts(problem, recipe, algorithm, clock, data, None, 0)], print)


def clients(count, rows, inputs, classes=10):
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(count), rows)
    return ct.federation(random.normal(size=(len(owner), inputs)).astype(np.float32),
                         random.integers(0, classes, len(owner)), owner, classes=classes, test=0.2)


def round_times(engine, problem, data, recipe, rounds):
    """Seconds of each round, one at a time, after ten to warm up."""
    session, found = session_of(engine, problem, data, recipe), []
    try:
        state = session.begin()
        session.prepare(state)
        for done in range(rounds + 10):
            began = time.perf_counter()
            state = session.advance(state, done + 1)
            found.append(time.perf_counter() - began)
    finally:
        session.close()
    return np.array(found[10:])


def overhead(rounds):
    """100 clients with a linear model of 10 inputs and 5 rows each: there is next to nothing to compute."""
    data = clients(100, 7, 10)
    problem, recipe = ct.logistic(data), ct.fedavg(batch_size=None)
    for name, engine in (("local, 1 device", ct.Local(devices=1)), ("ray, 2 actors", ct.Ray(actors=2))):
        took = 1e3 * round_times(engine, problem, data, recipe, rounds)
        print(f"a round of 100 small clients, {name}: median {np.median(took):.2f} ms, 95th percentile "
              f"{np.quantile(took, 0.95):.2f} ms")


def throughput(rounds):
    """20 clients with 50 rows of 784 numbers and two hidden layers of 200."""
    data = clients(20, 63, 784)
    problem, recipe = ct.classification(data, ct.mlp((200, 200))), ct.fedavg(batch_size=10)
    for name, engine in (("local, 1 device", ct.Local(devices=1)), ("local, 2 devices", ct.Local(devices=2)),
                         ("ray, 1 actor", ct.Ray(actors=1)), ("ray, 2 actors", ct.Ray(actors=2))):
        took = np.median(round_times(engine, problem, data, recipe, rounds))
        print(f"20 clients of an MLP, {name}: {20 / took:.0f} clients per second")


class Large(NamedTuple):
    shared: PyTree


def large_message(problem, population):
    """The message is a large array, and the upload one number."""
    return Algorithm(
        init_server=lambda key, shared, private: Large(shared),
        init_client=lambda key, shared, private: (),
        broadcast=lambda key, server, central: server.shared["large"],
        client_update=lambda key, message, client, data: (jnp.vdot(message, message), client),
        aggregate=Sum(lambda upload, message: upload, lambda key, total: total),
        server_update=lambda key, server, total, central: Large(
            {**server.shared, "large": server.shared["large"].at[0].add(1e-12 * total)}),
        model=lambda key, message, client, data: ({"large": message}, ()))


def memory(megabytes):
    """What a large message adds to the memory that an actor has to itself, beside a message of one number."""
    data = clients(4, 5, 3)
    base, large = (actor_memory(data, size) for size in (1, megabytes * 250_000))
    print(f"a message of {megabytes} MB: an actor has {large - base:.1f} MB more to itself than with one of 4 bytes "
          f"({base:.0f} MB)", flush=True)


def actor_memory(data, size):
    """The most that any actor has to itself after any of five rounds."""
    problem = ct.logistic(data)._replace(init=lambda key: ({"large": jnp.ones(size)}, ()))
    session, found = session_of(ct.Ray(actors=2), problem, data, Recipe("large", {}, large_message)), []
    try:
        state = session.begin()
        for done in range(5):
            state = session.advance(state, done + 1)
            found += [own_memory(pid) for pid in pids(session)]
    finally:
        session.close()
    return max(found)


def pids(session):
    return import_module("ray").get([actor.pid.remote() for actor in session._actors._alive])


def own_memory(pid):
    """MB of a process that are no file's and no shared memory's."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def recovery():
    """From the death of an actor to its shard's next answer."""
    data = clients(100, 7, 10)
    session = session_of(ct.Ray(actors=2), ct.logistic(data), data, ct.fedavg(batch_size=None))
    try:
        state = session.begin()
        session.prepare(state)
        state, found = session.advance(state, 5), []
        for number in range(3):
            pid, began = pids(session)[0], time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            state = session.advance(state, 6 + number)
            found.append(time.perf_counter() - began)
        print("an actor is killed: its clients have answered after "
              f"{', '.join(f'{seconds:.1f}' for seconds in found)} s")
    finally:
        session.close()


class Working:
    """A local model that takes 5 ms to predict and to learn: it waits, as for another program, or it computes."""

    def __init__(self, waits):
        self.waits = waits

    def predict(self, x):
        self.work()
        return np.zeros(len(x))

    def update(self, x, y, shared_prediction):
        self.work()

    def work(self):
        if self.waits:
            time.sleep(0.005)
        else:
            until = time.process_time() + 0.005
            while time.process_time() < until:
                pass


def models(steps):
    """An online step of 20 clients with local models of their own, in one process and on two actors."""
    data = clients(20, 10, 6, classes=2)
    problem = server_problem(ct.residual(data, shared_features=[0, 1, 2], private_features=[3, 4, 5], loss="squared",
                                         labels="sign"))
    for kind, waits in (("wait", True), ("compute", False)):
        for name, make in (("one process", lambda models, names: ProcessHost(dict(enumerate(models)), names)),
                           ("2 actors", lambda models, names: RayHost(ct.Ray(actors=2), models, names))):
            host = make([Working(waits) for _ in range(20)], data.clients.names)
            try:
                took = np.median(step_times(host, problem, data, steps))
            finally:
                host.close()
            print(f"a step of 20 local models that {kind} for 5 ms twice, {name}: {1e3 * took:.0f} ms", flush=True)


def step_times(host, problem, data, steps):
    """Seconds of each online step, after two to warm up."""
    recipe = ct.fedres_online_sgd(alignment="paired")
    algorithm, clock = recipe.build(problem, data.population), ct.online().build(data.population)
    session = LocalModels(host).start([Parts(problem, recipe, algorithm, clock, data, None, 0)])
    state, found = session.begin(), []
    session.prepare(state)
    for done in range(steps + 2):
        began = time.perf_counter()
        state = session.advance(state, done + 1)
        found.append(time.perf_counter() - began)
    session.close()
    return np.array(found[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--only", nargs="*", default=["overhead", "memory", "throughput", "recovery", "models"])
    asked = parser.parse_args()
    print(f"JAX {jax.__version__}, Ray {import_module('ray').__version__}, {os.cpu_count()} cores, load "
          f"{os.getloadavg()[0]:.1f}", flush=True)
    if "overhead" in asked.only:
        overhead(asked.rounds)
    if "memory" in asked.only:
        memory(100)
    if "throughput" in asked.only:
        throughput(max(5, asked.rounds // 10))
    if "recovery" in asked.only:
        recovery()
    if "models" in asked.only:
        models(max(5, asked.rounds // 10))
    return 0


if __name__ == "__main__":
    sys.exit(main())
