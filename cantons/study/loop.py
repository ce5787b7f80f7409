"""The one loop over rounds: evaluate, record, notice, save, be interrupted; for a single run or for many together."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax

from cantons.errors import InputError, amount
from cantons.memory import give_back
from cantons.phases import COMPILING, EVALUATING, TRAINING, enter, listening
from cantons.protocol import Session, Snapshot
from cantons.study.advice import about_evaluations, about_inputs
from cantons.study.callbacks import Callbacks, Several
from cantons.study.checkpoint import Checkpoints
from cantons.study.fingerprint import Fingerprint, check_same
from cantons.study.folder import Folder
from cantons.study.interrupt import Interruption
from cantons.study.kept import write_kept
from cantons.study.log import Log
from cantons.study.patience import Patience
from cantons.study.record import Columns, Row, new_client_columns, summary_of, traffic_of
from cantons.study.resolve import Resolved

BLOCK_SECONDS = 1.0  # how long a block may take: Ctrl-C and progress wait for its end
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
    new_columns: Columns
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
        self.logs = [Log(run, saving.folders[index] if saving else None) for index, run in enumerate(runs)]
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
        state, begun = self._restored(state)
        done, before = begun, len(self.logs[0].history)
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
        if done > begun:
            for sentence in about_evaluations(self.logs[0].history[before:]):
                self.notice(sentence)
        return self._finish(state, done)

    def _advise(self) -> None:
        """Tell what is to be said before the first round: each sentence once, whichever runs it is of."""
        said = dict.fromkeys(self.about_data)
        said |= {f"{log.run.study['name']}: {sentence}": None for log in self.logs for sentence in log.advice}
        for sentence in said:
            self.watcher.advised(sentence)

    @cached_property
    def about_data(self) -> list[str]:
        """What the user should know about the data before the first round."""
        return about_inputs(self.runs[0].parts.problem, self.runs[0].data)

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
                raise InputError(f"{self.saving.folders[0].path} has already run {amount(done, 'round')}; "
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
            }, columns, new_client_columns(log.run.data, one))
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
            study = log.run.study
            more: dict[str, Any] = {"changes": self.changes} if self.changes else {}
            if advice := [*self.about_data, *log.advice]:
                more["advice"] = advice
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
            ended.append(Finished(log.history, log.columns, log.new_columns, summary, snapshot))
            for sentence in log.remarks():
                self.notice(sentence if len(self.runs) == 1 else f"{log.label}: {sentence}")
        if self.patience is not None and done < self.rounds:
            self.notice(self.patience.told(self.logs[0].history))
        self.watcher.finished(ended[0].summary)
        return ended

    def notice(self, sentence: str) -> None:
        self.watcher.noticed(sentence)


def _packed(snapshots: Sequence[Snapshot]) -> Any:
    """A single run's checkpoint is its snapshot: `load` reads it from the run folder."""
    return snapshots[0] if len(snapshots) == 1 else list(snapshots)


def _unpacked(found: Any) -> list[Snapshot]:
    return [found] if isinstance(found, Snapshot) else found
