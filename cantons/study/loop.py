"""The one loop over rounds: evaluate, record, notice, save, be interrupted; for a single run or for many together."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from cantons.clock.events import as_arrays, events_of, recorded_events
from cantons.engine import seed_keys
from cantons.errors import InputError, listed
from cantons.memory import give_back
from cantons.phases import COMPILING, EVALUATING, TRAINING, enter, listening
from cantons.protocol import Evaluation, Progress, Session, Snapshot
from cantons.study.callbacks import Callbacks, Several
from cantons.study.checkpoint import Checkpoints
from cantons.study.fingerprint import Fingerprint, check_same, fingerprint
from cantons.study.folder import Folder, environment
from cantons.study.interrupt import Interruption
from cantons.study.kept import write_kept
from cantons.study.online_metrics import online_metrics
from cantons.study.patience import Patience
from cantons.study.plain import plain
from cantons.study.record import (
    Columns,
    Row,
    Seen,
    diagnostics_row,
    events_row,
    score_row,
    summary_of,
    traffic_of,
    traffic_row,
)
from cantons.study.resolve import Resolved

BLOCK_SECONDS = 1.0  # how long a block may take: Ctrl-C and progress wait for its end
GROWN = 1000  # a loss that is so many times what it was is told
CHECKPOINT_SECONDS = 10.0  # by default, evaluations at least this far apart leave a checkpoint


class Saving(NamedTuple):
    """Where a loop writes."""

    folders: Sequence[Folder]  # one for each run
    checkpoints: Checkpoints | None  # of all runs together while they are on their way; None: they cannot be saved
    again: str  # how the user goes on after an interruption
    resume: bool = True
    accept_changes: bool = False  # go on though versions or the engine are not those the run began with


class Finished(NamedTuple):
    """What one run leaves behind."""

    history: list[Row]
    columns: Columns
    summary: dict[str, Any]
    snapshot: Snapshot


def evaluation_rounds(rounds: int, every: int) -> range:
    """Before the first round and every so many; one after the last comes anyhow. No list: it might fill the memory.

    >>> list(evaluation_rounds(10, 4))
    [0, 4, 8]
    """
    return range(0, rounds, every)


class Loop:
    """Runs on their way, together: their state is passed along, this remembers what was written of each.

    Runs in one loop share a session, and agree in their number of rounds and in when they are evaluated and saved.
    """

    def __init__(self, session: Session, runs: Sequence[Resolved], callbacks: Callbacks = (),
                 saving: Saving | None = None, stops: Sequence[int] | None = None):
        self.session, self.runs, self.watcher, self.saving = session, runs, Several(callbacks), saving
        self.study = runs[0].study
        self.rounds = self.study["rounds"]
        # Runs together end together, so it is for a single one.
        self.patience = (Patience(self.study["patience"], runs[0].parts.problem)
                         if self.study.get("patience") and len(runs) == 1 else None)
        self.stops = evaluation_rounds(self.rounds, self.study["evaluate_every"]) if stops is None else stops
        self.logs = [_Log(run, saving.folders[index] if saving else None) for index, run in enumerate(runs)]
        self.seconds = 0.0  # spent in rounds, over all sittings
        self.timed = 0  # rounds in `since`
        self.since = 0.0  # seconds since the last evaluation
        self.block = 1  # rounds the next block may have
        self.saved_at = time.monotonic()
        self.changes: list[dict[str, Any]] = []  # after which rounds it went on with other versions or elsewhere

    def evaluates(self, done: int) -> bool:
        """Is there an evaluation after so many rounds?"""
        return done in self.stops or done == self.rounds

    def is_over(self, done: int) -> bool:
        """Are all rounds done, or has the validation score not improved for too long?"""
        return done >= self.rounds or (self.patience is not None and self.patience.is_over(self.logs[0].history))

    def play(self, initial: Any = None) -> list[Finished]:
        """Run to the end; `initial` is where to begin, if not with the problem's own."""
        try:
            with jax.enable_x64(self.study["precision"] == "float64"), listening(self.watcher.entered):
                return self._play(self.session.begin(initial))
        finally:
            self.session.close()
            give_back()

    def _play(self, state: Any) -> list[Finished]:
        for log, snapshot in zip(self.logs, self.session.whole(state), strict=True):
            log.begin(snapshot._replace(outside=None))
        state, done = self._restored(state)
        self.watcher.started(self.study if len(self.runs) == 1 else {
            **self.study, "name": f"{self.study['name']}, {len(self.runs)} runs"})
        if not done:
            self._advise()
        self.traffic = traffic_of(*self.session.travel(state))
        if self.evaluates(done) and any(log.lacks(done) for log in self.logs):
            self._evaluate(state)
        if not self.is_over(done):
            enter(COMPILING)
            self.session.prepare(state)
        with Interruption() as interruption:
            while not self.is_over(done):
                state, done = self._advance(state, done)
                if self.evaluates(done):
                    self._evaluate(state)
                if interruption.asked:
                    self._pause(state, done)
                self._maybe_save(state, done)
        return self._finish(state, done)

    def _advise(self) -> None:
        """Tell what the algorithms have to say before the first round: each sentence once, whichever runs it is of."""
        said = {f"{log.run.parts.recipe.name}: {sentence}": None for log in self.logs for sentence in log.advice()}
        for sentence in said:
            self.notice(sentence)

    def _restored(self, state: Any) -> tuple[Any, int]:
        """The newest sound checkpoint, or the beginning."""
        if self.saving is None:
            return state, 0
        for log in self.logs:
            for complaint in log.folder.complaints if log.folder is not None else ():
                self.notice(complaint)
        store, done = self.saving.checkpoints, 0
        found = None if store is None else store.newest(_packed([log.start for log in self.logs]))
        if found is None:
            if store is not None and self.saving.resume and self.logs[0].folder is not None and len(self.runs) == 1:
                self.notice(f"no checkpoint in {self.logs[0].folder.path} yet; starting from round 0.")
        else:
            restored, about, complaints = found
            for complaint in complaints:
                self.notice(complaint)
            snapshots = [snapshot._replace(outside=outside) for snapshot, outside in zip(
                _unpacked(restored), about.get("outside") or [None] * len(self.runs), strict=True)]
            done, self.seconds = int(snapshots[0].state.round), about.get("seconds", 0.0)
            if done > self.rounds:
                raise InputError(f"{self.saving.folders[0].path} has already run {done} rounds; "
                                 "ask for at least that many.")
            if done:
                self._compare(about, done)
                state = self.session.restore(snapshots)
        for log in self.logs:
            assert log.folder is not None
            log.folder.begin(log.run.study)
            write_kept(log.folder.path, log.run.data, log.run.study)
        if store is not None:
            store.drop_after(done)
        about, each = found[1] if found and done else {}, [None] * len(self.logs)
        for log, seen, wrote in zip(self.logs, about.get("seen") or each, about.get("history") or each, strict=True):
            # From the beginning, the evaluation before round 0 is made again too: it may be there that local models are
            # left out.
            log.rewind(done or -1, seen, wrote, self.notice)
        return state, done

    def _compare(self, about: Mapping[str, Any], done: int) -> None:
        """Refuse a checkpoint of other runs; remember what has changed since it was written, if that is accepted."""
        assert self.saving is not None
        folder, saved = self.saving.folders[0].path, about.get("fingerprints") or []
        if len(saved) != len(self.runs):
            raise InputError(f"the checkpoint of round {done} for {folder} does not say which runs it is of: it was "
                             "written by an older version of cantons, or for other runs; start anew in another folder.")
        changes: dict[str, None] = {}
        for one, log in zip(saved, self.logs, strict=True):
            changes |= dict.fromkeys(check_same(f"the checkpoint of round {done} for {log.label}", Fingerprint(**one),
                                                log.fingerprint(len(self.runs)), self.saving.accept_changes))
        self.changes = list(about.get("changes") or [])
        if changes:
            self.changes.append({"after_round": done, "changes": list(changes)})
            self.notice(f"goes on after round {done}, though {', '.join(changes)}.")

    def _advance(self, state: Any, done: int) -> tuple[Any, int]:
        """One block: up to the next evaluation or checkpoint, but not much longer than BLOCK_SECONDS."""
        stops = [self.rounds, done + self.block]
        stops += self.stops[bisect_right(self.stops, done):][:1]
        every = self.study["checkpoint_every"]
        if every is not None:
            stops.append(done + every - done % every)
        until = min(stops)
        enter(TRAINING)
        began = time.perf_counter()
        state = self.session.advance(state, until)
        took = time.perf_counter() - began
        self.since += took
        self.timed += until - done
        self.block = max(1, int(BLOCK_SECONDS * (until - done) / max(took, 1e-9)))
        self.watcher.advanced(until, self.rounds)
        return state, until

    def _evaluate(self, state: Any) -> None:
        """Score everybody, write the rows, tell who was left out."""
        enter(EVALUATING)
        began, share = time.perf_counter(), len(self.runs)
        found = self.session.evaluate(state)
        self.seconds += self.since
        took = self.since / share  # a run's part of the time of all
        for log, one in zip(self.logs, found, strict=True):
            row, columns = log.measured(one, self.traffic)
            updates = row["uploads"] - (log.history[-1]["uploads"] if log.history else 0)
            log.write({
                **row, "seconds": self.seconds / share,
                "seconds_per_round": took / self.timed if self.timed else None,
                "updates_per_second": updates / took if self.timed else None,
                "evaluation_seconds": (time.perf_counter() - began) / share,
            }, columns)
            for sentence in log.look_at(one.progress):
                self.notice(sentence if share == 1 else f"{log.label}: {sentence}")
        self.since, self.timed = 0.0, 0
        self.watcher.evaluated(self.logs[0].history[-1])

    def _maybe_save(self, state: Any, done: int) -> None:
        if self.saving is None or self.saving.checkpoints is None:
            return
        every = self.study["checkpoint_every"]
        at_evaluation = self.evaluates(done) and time.monotonic() - self.saved_at > CHECKPOINT_SECONDS
        last = self.is_over(done) and len(self.runs) == 1  # of many, each gets a last one of its own
        if last or (done % every == 0 if every is not None else at_evaluation):
            self._save(state, done)

    def _save(self, state: Any, done: int) -> None:
        assert self.saving is not None and self.saving.checkpoints is not None
        snapshots = self.session.whole(state)
        about = {"seconds": self.seconds + self.since, "seen": [log.seen._asdict() for log in self.logs],
                 "history": [log.wrote() for log in self.logs],
                 "outside": [snapshot.outside for snapshot in snapshots], **self._identity()}
        self.saving.checkpoints.save(done, _packed([one._replace(outside=None) for one in snapshots]), about)
        self.saved_at = time.monotonic()

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint says about the runs it is of."""
        return {"fingerprints": [log.fingerprint(len(self.runs))._asdict() for log in self.logs],
                "changes": self.changes}

    def _pause(self, state: Any, done: int) -> None:
        """Ctrl-C: save, say how to go on, and stop."""
        if self.saving is not None and self.saving.checkpoints is not None:
            self._save(state, done)
            self.notice(f"stopped after round {done}; {self.saving.again}")
        self.watcher.stopped(done)
        raise KeyboardInterrupt

    def _finish(self, state: Any, done: int) -> list[Finished]:
        ended = []
        for log, snapshot in zip(self.logs, self.session.whole(state), strict=True):
            study, more = log.run.study, {"changes": self.changes} if self.changes else {}
            if "byzantine" in study:
                more["liars"] = study["byzantine"]["clients"]
            if self.patience is not None:
                more |= {"stopped_early": done < self.rounds,
                         "best_round": log.history[self.patience.best(log.history)]["round"]}
            summary = summary_of(study, log.run.data, log.history, self.traffic, **self.session.about(), **more)
            if log.folder is not None:
                if len(self.runs) > 1:
                    own = Checkpoints(log.folder.path / "checkpoints", self.study["keep"])
                    own.drop_after(self.rounds - 1)  # one of an earlier call, whose checkpoint of the group is gone
                    own.save(self.rounds, snapshot, {
                        "seconds": self.seconds / len(self.runs), "seen": [log.seen._asdict()],
                        "history": [log.wrote()], "changes": self.changes,
                        "fingerprints": [log.fingerprint(len(self.runs))._asdict()]})
                if log.run.parts.clock.asynchronous is not None:
                    log.folder.events(log.events(done, snapshot.outside))
                log.folder.summary(summary)
            ended.append(Finished(log.history, log.columns, summary, snapshot))
            for sentence in log.remarks():
                self.notice(sentence if len(self.runs) == 1 else f"{log.label}: {sentence}")
        if self.patience is not None and done < self.rounds:
            self.notice(self.patience.told(self.logs[0].history))
        self.watcher.finished(ended[0].summary)
        return ended

    def notice(self, sentence: str) -> None:
        self.watcher.noticed(sentence)


class _Log:
    """What one run of a loop has written, and what it has complained about."""

    def __init__(self, run: Resolved, folder: Folder | None):
        self.run, self.folder = run, folder
        self.label = folder.path.name if folder is not None else run.study["name"]
        self.history: list[Row] = []
        self.columns: Columns = {}
        self.seen = Seen()
        self.diverged = False
        self.said = ""  # why there is no regret

    def begin(self, start: Snapshot) -> None:
        parts = self.run.parts
        self.start = start
        self.online = online_metrics(parts.problem, parts.algorithm, parts.clock, self.run.data,
                                     (start.state.server.shared, start.start_private), self.run.study["rounds"],
                                     self.run.liars)

    def advice(self) -> Sequence[str]:
        """What the algorithm would have the user know before the run begins."""
        parts = self.run.parts
        return parts.algorithm.advice(parts, (self.start.state.server.shared, self.start.start_private))

    def remarks(self) -> Sequence[str]:
        """What the algorithm would have the user know after the run."""
        numbers = {name.removeprefix("clients."): np.asarray(values) for name, values in self.columns.items()
                   if name.startswith("clients.")}
        return self.run.parts.algorithm.diagnostics.remarks(numbers, self.run.data.clients.names)

    def events(self, rounds: int, recorded: Mapping[str, Any] | None) -> Mapping[str, np.ndarray]:
        """Which jobs ended when: it follows from the seed, or the engine has `recorded` it."""
        parts, data = self.run.parts, self.run.data
        found = (events_of(parts.clock, seed_keys(parts.seed)[1], data.population, rounds) if recorded is None
                 else recorded_events(**recorded))
        return as_arrays(found, data.clients, data.validation)

    def fingerprint(self, together: int) -> Fingerprint:
        """Of this run, here and now."""
        return fingerprint(self.run.study, environment(), together)

    def wrote(self) -> dict[str, Any]:
        """What a checkpoint keeps of the evaluations before it: how many they are, and the last."""
        return {"rows": len(self.history), "last": plain(self.history[-1]) if self.history else None}

    def rewind(self, done: int, seen: Mapping[str, Any] | None, wrote: Mapping[str, Any] | None,
               notice: Callable[[str], None]) -> None:
        """Forget the evaluations after `done`: they will be made again; up to there the checkpoint `wrote` some."""
        assert self.folder is not None
        self.history = self.folder.rewind(done, notice)
        if wrote is not None:
            last = wrote["last"]
            if last is not None and (not self.history or self.history[-1]["round"] < last["round"]):
                self.history.append(last)  # the file has lost it
                self.folder.append(last)
            if len(self.history) < wrote["rows"]:
                notice(f"{self.folder.metrics_file} has {len(self.history)} of the {wrote['rows']} evaluations up to "
                       f"round {done}; the others are lost.")
        self.seen = Seen() if seen is None else Seen(**seen)

    def lacks(self, done: int) -> bool:
        """Whether the evaluation after `done` rounds is missing, or its table of clients."""
        missing = not self.history or self.history[-1]["round"] != done
        return missing or (self.folder is not None and not self.folder.clients_file.exists())

    def measured(self, found: Evaluation, traffic: Mapping[str, int]) -> tuple[Row, Columns]:
        run = self.run
        pairs = [score_row(run.parts.problem, run.data, found.scores, run.parts.scored, run.liars),
                 self.online(found.progress), events_row(found.progress, self.seen),
                 diagnostics_row(run.data, found, self.seen, run.parts.scored, run.liars),
                 traffic_row(run.data, found.progress, traffic), ({}, dict(found.columns))]
        row: Row = {"round": found.progress.round}
        if found.common_start:
            row["personal_models"] = "common start"
        columns: Columns = {}
        for more, by_client in pairs:
            row |= more
            columns |= by_client
        return row, columns

    def write(self, record: Row, columns: Columns) -> None:
        """Write an evaluation; of one that is there already, only the table of clients."""
        fresh = not self.history or self.history[-1]["round"] != record["round"]
        self.columns = columns
        if fresh:
            self.history.append(record)
        if self.folder is not None:
            if fresh:
                self.folder.append(record)
            self.folder.clients(columns)

    def look_at(self, progress: Progress) -> list[str]:
        """What went wrong since the evaluation before, in sentences."""
        before, record = self.seen, self.history[-1]
        # What a liar sends is not the step size's fault.
        rejections = progress.rejected if self.run.liars is None else np.where(self.run.liars, 0, progress.rejected)
        events = progress.events
        self.seen = Seen(int(rejections.sum()), progress.skipped, progress.reported, dict(progress.reports),
                         *((0, 0) if events is None else (events.arrivals, events.delays)))
        lost, skipped = self.seen.rejected - before.rejected, self.seen.skipped - before.skipped
        found = []
        if lost:
            rejected = [self.run.data.clients.names[index] for index in np.flatnonzero(rejections)]
            found.append(f"up to round {progress.round}: {lost} uploads were NaN or infinite and left out (clients "
                         f"{listed(rejected)}); a smaller step_size or clip_norm may help.")
        if skipped:
            found.append(f"up to round {progress.round}: {skipped} rounds were skipped, because nothing usable "
                         "arrived.")
        if progress.round and not lost and not self.diverged and not np.isfinite(record["train.personal.loss.mean"]):
            found.append(f"at round {progress.round} the training loss is not a number; a smaller step_size may help.")
            self.diverged = True
        loss, first = record["train.personal.loss.mean"], self.history[0]["train.personal.loss.mean"]
        if not lost and not self.diverged and loss > GROWN * max(1.0, abs(first)):
            found.append(f"at round {progress.round} the training loss is {loss:.3g}, and it was {first:.3g} at round "
                         f"{self.history[0]['round']}; a smaller step_size may help.")
            self.diverged = True
        if self.online.why_not and self.online.why_not != self.said:
            self.said = self.online.why_not
            found.append(self.said)
        return found


def _packed(snapshots: Sequence[Snapshot]) -> Any:
    """A single run's checkpoint is its snapshot: `load` reads it from the run folder."""
    return snapshots[0] if len(snapshots) == 1 else list(snapshots)


def _unpacked(found: Any) -> list[Snapshot]:
    return [found] if isinstance(found, Snapshot) else found
