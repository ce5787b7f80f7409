"""Figure 3 of the FFGG paper with real delays: asynchronous FFGG on the processes of a Ray cluster.

    python studies/ffgg/real_delays.py [--quick] [--out DIR]

The setting is that of asynchronous.py, with shared targets. There durations are drawn and time is virtual; here every
job really takes its time, and the server moves on whatever arrives. A client's speed and the jitter of its jobs follow
the same law as there, and each job sleeps accordingly. Some processes share the clients, and a process does one job at
a time, so a job also waits for those of its process. Both step sizes are those that asynchronous.py finds the best of
25 pairs for drawn durations at tau = 50: events with real delays cannot be had a second time. Each run writes its
events; the local engine replays them to the same state, and the curves are those of the replay, held against closed
forms. Needs pip install 'cantons[ray]'.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import asynchronous as drawn_durations
import jax
import jax.numpy as jnp
import numpy as np
from asynchronous import COLOURS, Bench
from closed_forms import Quadratics
from matplotlib import pyplot
from paths import follow_events, in_parts

import cantons as ct
from cantons.clock.events import read_events
from cantons.protocol import Recipe, State
from cantons.study.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[1]))
import kit


class Settings(NamedTuple):
    setting: drawn_durations.Settings = drawn_durations.Settings(steps=(50,), epochs=30)
    factors: Mapping[str, tuple[float, float]] = {"drawn": (1.0, 4.0), "same": (1.0, 0.5), "buffer": (1.0, 4.0)}
    actors: int = 5
    seconds: float = 0.03  # the median over clients of how long a job sleeps


QUICK = Settings(drawn_durations.QUICK._replace(epochs=5), {name: (1.0, 0.5) for name in ("drawn", "same", "buffer")},
                 actors=2, seconds=0.002)
CLOCKS: Mapping[str, Mapping[str, Any]] = {"drawn": {}, "same": {"next": "same"}, "buffer": {"buffer": None}}


class Slow(NamedTuple):
    """A client's own state, and how much longer than others it takes."""

    own: Any
    factor: Any


def slow_down(recipe: Recipe, seconds: float, spread: float, jitter: float) -> Recipe:
    """The same algorithm on clients that take their time, log-normal between them and between their jobs.

    With 0 seconds nobody sleeps, and nothing else is changed.
    """

    def build(problem, population):
        base = recipe.build(problem, population)

        def init_client(key, shared, private):
            factor = jnp.exp(spread * jax.random.normal(jax.random.fold_in(key, 7)))
            return Slow(base.init_client(key, shared, private), factor)

        def client_update(key, message, client, data):
            upload, own = base.client_update(key, message, client.own, data)
            if seconds:
                asked = seconds * client.factor * jnp.exp(jitter * jax.random.normal(jax.random.fold_in(key, 7)))
                nothing = jax.pure_callback(sleep, jax.ShapeDtypeStruct((), np.float32), asked)
                upload = jax.tree.map(lambda leaf: leaf + nothing, upload)
            return upload, Slow(own, client.factor)

        return base._replace(
            init_client=init_client, client_update=client_update,
            model=lambda key, message, client, data: base.model(key, message, client.own, data),
            diagnostics=base.diagnostics._replace(
                client=lambda message, client, model, data: base.diagnostics.client(message, client.own, model, data)))

    return recipe._replace(build=build)


def sleep(seconds: Any) -> np.ndarray:
    """Take so long, and give 0."""
    time.sleep(float(seconds))
    return np.zeros((), np.float32)


class Real(NamedTuple):
    """A run with real delays, as its file has it."""

    event_seconds: float  # the median time between two events
    replay_apart: float  # how far the replay ends from the run, relative to the largest entry
    apart: float  # how far the library is from the closed form, in theta
    norms: list[float]  # |F| / |F at the start| after every M gradients
    simulated: list[float]  # |F| with drawn durations
    delays: list[float]  # of every event, in events; of a buffer's answers, the mean
    median_delay: float
    mean_delay: float
    longest: int
    jobs: list[int]  # of each client


def play_for_real(settings: Settings, bench: Bench, name: str, tau: int, folder: Path) -> Mapping[str, Any]:
    """Run one method on actors, replay what happened, and follow it by closed forms too."""
    given, method, rows = settings.setting, bench.methods[name], settings.setting.rows
    inner, outer = settings.factors[name]
    count = len(method.events.client)
    problem = in_parts(bench.data, given.shared)
    recipe = ct.ffgg(step_size=outer * bench.base[1] * method.answers / given.clients,
                     tuner={"name": "gd", "steps": tau, "step_size": inner * bench.base[0]})
    slowed = partial(slow_down, recipe, spread=given.spread, jitter=given.jitter)
    clock = ct.asynchronous(**{key: given.buffer if value is None else value for key, value in CLOCKS[name].items()})
    result = ct.run(problem, bench.data, slowed(settings.seconds), rounds=count, clock=clock, precision="float64",
                    engine=ct.Ray(actors=settings.actors), evaluate_every=count, out=folder, overwrite=True,
                    progress=False)
    file = folder / "events.npz"
    events = read_events(str(file), given.clients, bench.data.clients)
    looks = range(0, count + 1, count // given.epochs)
    path, last = replay(bench, slowed(0.0), file, looks)
    G, h = bench.known.tuned_operators(inner / bench.known.constants.of_private, tau)
    size = outer * bench.base[1] * method.answers / given.clients
    real = method._replace(events=events)
    expected = real.of(follow_events(G / rows, h / rows, events, [size])[:, 0], given.epochs)
    norms, simulated = bench.known.norms(path), bench.known.norms(bench.paths(method, tau, inner, [outer])[:, 0])
    there = events.client < given.clients
    delays = events.delays[there]
    return Real(float(np.median(events.elapsed)), distance(result.model.state, last), largest(path, expected),
                norms / norms[0], simulated / simulated[0], events.delays.mean(axis=1), float(np.median(delays)),
                float(delays.mean()), int(delays.max()),
                np.bincount(events.client[there], minlength=given.clients))._asdict()


def replay(bench: Bench, recipe: Recipe, events: Path, looks: Sequence[int]) -> tuple[np.ndarray, State]:
    """On the local engine: theta after so many events, and the last state."""
    engine, shared, found = ct.Local(devices=1), bench.settings.shared, []
    with jax.enable_x64(True):
        session = engine.start([resolve(in_parts(bench.data, shared), bench.data, recipe, rounds=looks[-1],
                                        clock=ct.replay(path=str(events)), precision="float64", engine=engine).parts])
        state = session.begin()
        for until in looks:
            state = session.advance(state, until) if until else state
            (snapshot,) = session.whole(state)
            found.append(snapshot.state.server.shared["layer0"]["weight"][:shared, 0])
        session.close()
    return np.array(found), snapshot.state


def distance(one: State, other: State) -> float:
    """The largest difference of two states, in any entry, relative to the largest entry of its array."""
    pairs = zip(jax.tree.leaves(one._replace(in_flight=())), jax.tree.leaves(other._replace(in_flight=())), strict=True)
    return max((largest(left, right) for left, right in pairs if np.size(left)), default=0.0)


def largest(one: Any, other: Any) -> float:
    left, right = np.asarray(one, float), np.asarray(other, float)
    return float(np.abs(left - right).max() / max(np.abs(right).max(), 1e-300))


def draw(settings: Settings, found: Mapping[int, Mapping[str, Real]], path: Path) -> None:
    """Curves, the simulated ones dashed, and the real delays beside them; a row for each tau."""
    figure, rows = pyplot.subplots(len(found), 2, figsize=(10, 4.5 * len(found)), squeeze=False, layout="constrained")
    epochs = np.arange(settings.setting.epochs + 1)
    for (tau, each), (left, right) in zip(found.items(), rows, strict=True):
        for name, real in each.items():
            left.semilogy(epochs, real.norms, color=COLOURS[name], label=f"{name}, real delays")
            left.semilogy(epochs, real.simulated, "--", color=COLOURS[name], label=f"{name}, drawn durations")
            right.semilogy(np.linspace(0, epochs[-1], len(real.delays)), np.array(real.delays) + 1, ".", markersize=2,
                           color=COLOURS[name])
        left.set(title=f"tau = {tau}", xlabel="M gradients", ylabel="|F| over |F| at the start")
        right.set(title="real delays", xlabel="M gradients", ylabel="delay in events, + 1")
    figure.legend(*rows[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    kit.save_figure(figure, path, shades=64)


def main(arguments: Sequence[str] | None = None) -> None:
    given = kit.read_arguments(__doc__, "results/ffgg/real_delays", arguments)
    settings, watch = QUICK if given.quick else Settings(), kit.Watch()
    setting = settings.setting
    data = ct.synthetic_least_squares(setting.clients, rows=setting.rows, shared=setting.shared,
                                      private=setting.private, heterogeneity=setting.zeta, targets="shared")
    bench = Bench(setting, data, Quadratics(data, setting.shared, setting.rows),
                  drawn_durations.methods(setting, setting.epochs))
    cells = kit.Cells(given.out / "curves", settings, watch)
    found: dict[int, dict[str, Real]] = {}
    lines = []
    for tau in setting.steps:
        found[tau] = {}
        for name in CLOCKS:
            real = found[tau][name] = Real(**cells(f"{tau}, {name}", partial(
                play_for_real, settings, bench, name, tau, given.out / "runs" / f"{tau}-{name}")))
            lines.append([str(tau), name, f"{1e3 * real.event_seconds:.0f}", f"{real.median_delay:.0f}",
                          f"{real.mean_delay:.1f}", str(real.longest), f"{min(real.jobs)} to {max(real.jobs)}",
                          f"{real.norms[-1]:.1e}",
                          f"{real.simulated[-1]:.1e}", f"{real.replay_apart:.0e}", f"{real.apart:.0e}"])
            watch(" ".join(lines[-1]))
    draw(settings, found, given.out / "real_delays.png")
    page = kit.table(["tau", "method", "ms from event to event", "median delay", "mean", "longest", "jobs of a client",
                      "abs(F), relative", "with drawn durations", "replay against run", "replay against closed form"],
                     lines)
    (given.out / "real_delays.md").write_text(page + "\n")
    kit.save_numbers(given.out / "real_delays.json", {
        "settings": {**settings._asdict(), "setting": setting._asdict()}, "load": os.getloadavg()[0],
        "found": {f"{tau}, {name}": real._asdict() for tau, each in found.items() for name, real in each.items()}})
    print(page)


if __name__ == "__main__":
    main()
