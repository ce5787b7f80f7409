"""Run a study: rounds in blocks, evaluations between them, checkpoints against the worst."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from cantons.clock import online
from cantons.clock import rounds as rounds_clock
from cantons.data import Federation, pooled, with_validation
from cantons.engine import Local
from cantons.errors import InputError, at_least, one_of
from cantons.protocol import Algorithm, Clock, Problem, PyTree, Recipe, Stack, State
from cantons.study.callbacks import Callback
from cantons.study.checkpoint import Checkpoints
from cantons.study.folder import Folder
from cantons.study.interrupt import Interruption
from cantons.study.online_metrics import online_metrics
from cantons.study.record import scored, sides, summary_of, traffic_of, travelled
from cantons.study.result import Result, Trained

BLOCK_SECONDS = 1.0  # how long a block may take: Ctrl-C and progress wait for its end
CHECKPOINT_SECONDS = 10.0  # by default, evaluations at least this far apart leave a checkpoint


def run(
    problem: Problem,
    data: Federation,
    algorithm: Recipe,
    *,
    rounds: int,
    cohort: int | None = None,
    clock: Recipe | None = None,
    seed: int = 0,
    evaluate_every: int | None = None,
    validation: float | None = None,
    precision: str = "float32",
    engine: Local | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    keep: int = 3,
    callbacks: Sequence[Callback] = (),
    initial: tuple[PyTree, PyTree] | None = None,
    name: str | None = None,
) -> Result:
    """Train `algorithm` on `data` for a number of rounds and score it along the way.

    `cohort` clients take part in each round (all by default), or whom `clock` says. Evaluations come every
    `evaluate_every` rounds, ten in all by default, and after the last. `validation` holds back that fraction of
    every client's training rows, to choose by. With `out`, everything is written to
    that folder, and `resume=True` goes on from its newest checkpoint to the same bits as if it had never
    stopped. `initial` replaces the problem's own (shared, private) starting point.
    """
    if resume and out is None:
        raise InputError("resume needs the folder of the run to go on with: give out.")
    engine = engine or Local()
    ready = settled(problem, data, algorithm, rounds=rounds, cohort=cohort, clock=clock, seed=seed,
                    evaluate_every=evaluate_every, validation=validation, precision=precision, engine=engine,
                    checkpoint_every=checkpoint_every, keep=keep, name=name)
    with jax.enable_x64(precision == "float64"):
        session = engine.start(problem, ready.algorithm, ready.clock, ready.data, ready.central, seed)
        state = session.begin(initial)
        check_parts(algorithm.name, ready.algorithm, state, session.start_private)
        return _Run(session, ready, callbacks, out, resume).play(state)


class Settled(NamedTuple):
    """Everything about a run that is known before it touches a device."""

    study: dict[str, Any]  # as it goes to the run folder, every default filled in
    problem: Problem
    data: Federation
    algorithm: Algorithm
    clock: Clock
    central: Any


def settled(problem: Problem, data: Federation, algorithm: Recipe, *, rounds: int, cohort: int | None,
            clock: Recipe | None, seed: int, evaluate_every: int | None, validation: float | None, precision: str,
            engine: Local, checkpoint_every: int | None, keep: int, name: str | None) -> Settled:
    """Check the settings and build the parts."""
    at_least("rounds", rounds, 1)
    every = max(1, rounds // 10) if evaluate_every is None else evaluate_every
    at_least("evaluate_every", every, 1)
    at_least("keep", keep, 1)
    if checkpoint_every is not None:
        at_least("checkpoint_every", checkpoint_every, 1)
    one_of("precision", precision, ("float32", "float64"))
    if clock is not None and cohort is not None:
        raise InputError("give cohort or clock, not both: the clock has a cohort of its own.")
    if clock is None:
        clock = rounds_clock(cohort=cohort)
    if validation is not None:
        data = with_validation(data, validation)
    study = {
        "name": name or algorithm.name, "seed": seed, "rounds": rounds, "evaluate_every": every,
        "validation": validation, "precision": precision, "data": described(data), "problem": problem.spec,
        "algorithm": {"name": algorithm.name, **algorithm.options},
        "clock": {"name": clock.name, **clock.options}, "engine": {"name": "local", **asdict(engine)},
        "checkpoint_every": checkpoint_every, "keep": keep,
    }
    built, ticking = settled_parts(problem, data, algorithm, clock)
    check_gap(ticking, rounds)
    central = pooled(data.train) if built.needs.central == "pooled" else data.central
    return Settled(study, problem, data, built, ticking, central)


def settled_parts(problem: Problem, data: Federation, algorithm: Recipe, clock: Recipe) -> tuple[Algorithm, Clock]:
    """Build the algorithm and the clock, and refuse a pair that makes no sense."""
    built, ticking = algorithm.build(problem, data.population), ticking_with(clock, data)
    if built.needs.stream and not ticking.online:
        raise InputError(f"{algorithm.name} learns from a stream of examples; give it the online clock: "
                         "clock=online(), or in a study file [clock] name = \"online\".")
    if ticking.online and ticking.online.label_delay and built.score is not None:
        raise InputError(f"{algorithm.name} is scored by what it does in a step and learns from that at once; use "
                         "label_delay = 0.")
    if ticking.online and isinstance(built.aggregate, Stack) and clock.options.get("weights") == "inverse":
        raise InputError(f"{algorithm.name} looks at uploads one by one and cannot weigh them; "
                         "use weights = \"equal\".")
    if built.needs.counts_once and ticking.repeats:
        raise InputError(f"{algorithm.name} breaks when one upload counts twice; sample without replacement.")
    return built, ticking


def ticking_with(clock: Recipe, data: Federation) -> Clock:
    """The online clock takes from the data who has examples when, unless it was told."""
    if clock.name == "online" and clock.options["active"] is None and data.arrivals is not None:
        clock = online(**{**clock.options, "active": data.arrivals})
    return clock.build(data.population)


def described(data: Federation) -> dict[str, Any]:
    """What identifies the data: how it was made, its size, and a checksum of its bytes."""
    sets: list[Any] = [data.train, data.test, data.central, data.validation, data.arrivals]
    if data.new is not None:
        sets += [data.new.train, data.new.test]
    checksum = 0
    for leaf in jax.tree.leaves(sets):
        checksum = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), checksum)
    return {"name": data.name, "made_by": data.spec, "population": data.population,
            "examples": int(data.train.sizes.sum()), "test_set": data.test_set, "checksum": checksum}


def check_gap(clock: Clock, rounds: int) -> None:
    """Refuse a clock whose clients would never meet."""
    if clock.online and clock.online.gap is not None and clock.online.gap > max(rounds, 1):
        raise InputError(f"sync is {clock.online.gap} but there are only {rounds} steps: clients would never meet.")


def check_parts(name: str, algorithm: Any, state: State, private: PyTree) -> None:
    """Refuse a split the algorithm cannot work with, or a start it cannot leave from."""
    if algorithm.theory is not None:
        algorithm.theory.check_start(jax.device_get(state.server.shared))
    if algorithm.needs.private and not jax.tree.leaves(private):
        raise InputError(f"{name} needs a private part and this problem has none; give the problem a split, such as "
                         "split = \"output\".")
    if algorithm.needs.shared and not jax.tree.leaves(state.server.shared):
        raise InputError(f"{name} needs a shared part and this problem has none; choose another split, or train every "
                         "client alone with the algorithm independent.")


class _Run:
    """One run on its way: the state is passed along, this remembers what is written where."""

    def __init__(self, session: Any, ready: Settled, callbacks: Sequence[Callback], out: str | Path | None,
                 resume: bool):
        self.session, self.problem, self.algorithm, self.data = session, ready.problem, ready.algorithm, ready.data
        self.study, self.callbacks, self.resume = ready.study, callbacks, resume
        self.rounds, self.every = self.study["rounds"], self.study["evaluate_every"]
        self.folder = None if out is None else Folder(Path(out))
        self.checkpoints: Checkpoints | None = None
        self.history: list[dict[str, Any]] = []
        self.columns: dict[str, Any] = {}
        self.seconds = 0.0  # spent in rounds, over all sittings
        self.timed = 0  # rounds in `since`
        self.since = 0.0  # seconds since the last evaluation
        self.block = 1  # rounds the next block may have
        self.saved_at = time.monotonic()
        self.seen = {"rejected": 0, "skipped": 0}
        self.diverged = False

    def play(self, state: State) -> Result:
        self.online_metrics = online_metrics(self.problem, self.algorithm, self.session.clock, self.data,
                                             (state.server.shared, self.session.start_private), self.rounds)
        if self.folder is not None:
            self.folder.open(self.study, self.resume)
            self.checkpoints = Checkpoints(self.folder.path / "checkpoints", self.study["keep"])
            state = self._restored(state)
        for callback in self.callbacks:
            callback.started(self.study)
        self.traffic = traffic_of(*self.session.message_and_upload(state))
        done = int(state.round)
        if done == 0 and not self.history:
            self._evaluate(state)
        if done < self.rounds:
            self.session.compile(state)
        with Interruption() as interruption:
            while done < self.rounds:
                state = self._advance(state, done)
                done = int(state.round)
                if done % self.every == 0 or done == self.rounds:
                    self._evaluate(state)
                if interruption.asked:
                    self._pause(state)
                self._maybe_save(state, done)
        summary = self._summary()
        trained = Trained(self.problem, self.algorithm, jax.device_get(state),
                          jax.device_get(self.session.start_private), self.data, self.study["seed"],
                          self.study["precision"])
        for callback in self.callbacks:
            callback.finished(summary)
        return Result(self.history, self.columns, summary, trained, self.folder.path if self.folder else None)

    def _restored(self, state: State) -> State:
        """The newest sound checkpoint, or the beginning."""
        assert self.folder is not None and self.checkpoints is not None
        found = self.checkpoints.newest((state, self.session.start_private))
        if found is None:
            if self.resume:
                self._notice(f"no checkpoint in {self.folder.path} yet; starting from round 0.")
        else:
            (restored, _), about, complaints = found
            for complaint in complaints:
                self._notice(complaint)
            state = self.session.place(jax.tree.map(np.array, restored))
            self.seconds = about.get("seconds", 0.0)
            if int(state.round) > self.rounds:
                raise InputError(f"{self.folder.path} has already run {int(state.round)} rounds; "
                                 "ask for at least that many.")
        self.checkpoints.drop_after(int(state.round))
        self.history = self.folder.rewind(int(state.round))
        self.seen = {"rejected": int(state.rejected.sum()), "skipped": int(state.skipped)}
        return state

    def _advance(self, state: State, done: int) -> State:
        """One block: up to the next evaluation or checkpoint, but not much longer than BLOCK_SECONDS."""
        stops = [self.rounds, done + self.every - done % self.every]
        if self.study["checkpoint_every"] is not None:
            stops.append(done + self.study["checkpoint_every"] - done % self.study["checkpoint_every"])
        until = min(*stops, done + self.block)
        began = time.perf_counter()
        state = jax.block_until_ready(self.session.advance(state, until))
        took = time.perf_counter() - began
        self.since += took
        self.timed += until - done
        self.block = max(1, int(BLOCK_SECONDS * (until - done) / max(took, 1e-9)))
        for callback in self.callbacks:
            callback.advanced(until, self.rounds)
        return state

    def _evaluate(self, state: State) -> None:
        """Score everybody, write the row, tell who was left out."""
        began = time.perf_counter()
        scores = {side: self.session.evaluate(state, side) for side in sides(self.data)}
        found, columns = scored(self.problem, self.data, scores)
        met, by_client = self.online_metrics(state)
        found, columns = found | met, columns | by_client
        moved, more_columns = travelled(self.data, state, self.traffic)
        updates = moved["uploads"] - (self.history[-1]["uploads"] if self.history else 0)
        self.seconds += self.since
        record = {
            "round": int(state.round), **found, **moved,
            "seconds": self.seconds,
            "seconds_per_round": self.since / self.timed if self.timed else None,
            "updates_per_second": updates / self.since if self.timed else None,
            "evaluation_seconds": time.perf_counter() - began,
        }
        self.since, self.timed = 0.0, 0
        self.columns = columns | more_columns
        self.history.append(record)
        if self.folder is not None:
            self.folder.append(record)
            self.folder.clients(self.columns)
        self._tell_losses(record)
        for callback in self.callbacks:
            callback.evaluated(record)

    def _tell_losses(self, record: Mapping[str, Any]) -> None:
        lost = record["rejected_uploads"] - self.seen["rejected"]
        skipped = record["skipped_rounds"] - self.seen["skipped"]
        if lost:
            names = ", ".join(record["rejected_clients"][:5])
            more = len(record["rejected_clients"]) - 5
            others = f" and {more} more" if more > 0 else ""
            self._notice(f"up to round {record['round']}: {lost} uploads were NaN or infinite and left out (clients "
                         f"{names}{others}); a smaller step_size or clip_norm may help.")
        if skipped:
            self._notice(f"up to round {record['round']}: {skipped} rounds were skipped, because nothing usable "
                         "arrived.")
        if record["round"] and not lost and not self.diverged and not np.isfinite(record["train.personal.loss.mean"]):
            self._notice(f"at round {record['round']} the training loss is not a number; a smaller step_size may help.")
            self.diverged = True
        self.seen = {"rejected": record["rejected_uploads"], "skipped": record["skipped_rounds"]}

    def _maybe_save(self, state: State, done: int) -> None:
        if self.checkpoints is None:
            return
        every = self.study["checkpoint_every"]
        at_evaluation = done % self.every == 0 and time.monotonic() - self.saved_at > CHECKPOINT_SECONDS
        if done == self.rounds or (done % every == 0 if every is not None else at_evaluation):
            self._save(state)

    def _save(self, state: State) -> None:
        assert self.checkpoints is not None
        whole = state, self.session.start_private
        self.checkpoints.save(int(state.round), whole, {"seconds": self.seconds + self.since})
        self.saved_at = time.monotonic()

    def _pause(self, state: State) -> None:
        """Ctrl-C: save, say how to go on, and stop."""
        if self.folder is not None:
            self._save(state)
            self._notice(f"stopped after round {int(state.round)}; go on with --resume --out {self.folder.path}"
                         " (in Python: run(..., out=..., resume=True)).")
        for callback in self.callbacks:
            callback.stopped(int(state.round))
        raise KeyboardInterrupt

    def _summary(self) -> dict[str, Any]:
        summary = summary_of(self.study, self.data, self.history, self.traffic, devices=self.session.mesh.size,
                             clients_at_once=self.session.group)
        if self.folder is not None:
            self.folder.summary(summary)
        return summary

    def _notice(self, sentence: str) -> None:
        for callback in self.callbacks:
            callback.noticed(sentence)
