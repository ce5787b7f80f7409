"""What one run on its way has measured and written, and what it has to complain about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from cantons.clock.events import as_arrays, events_of, recorded_events
from cantons.engine import seed_keys
from cantons.errors import amount, listed
from cantons.protocol import Evaluation, Progress, Snapshot
from cantons.study.fingerprint import Fingerprint, fingerprint
from cantons.study.folder import Folder, environment
from cantons.study.online_metrics import online_metrics
from cantons.study.plain import plain
from cantons.study.reading import as_columns, read_clients, read_new_clients
from cantons.study.record import Columns, Row, Seen, diagnostics_row, events_row, score_row, traffic_row
from cantons.study.resolve import Resolved

GROWN = 1000  # a loss that is so many times what it was is told


class Log:
    """What one run of a loop has written, and what it has complained about."""

    def __init__(self, run: Resolved, folder: Folder | None):
        self.run, self.folder = run, folder
        self.label = folder.path.name if folder is not None else run.study["name"]
        self.history: list[Row] = []
        self.columns: Columns = {}
        self.new_columns: Columns = {}
        self.seen = Seen()
        self.diverged = False
        self.said = ""  # why there is no regret

    def begin(self, start: Snapshot) -> None:
        parts = self.run.parts
        self.start = start
        self.online = online_metrics(parts.problem, parts.algorithm, parts.clock, self.run.data,
                                     (start.state.server.shared, start.start_private), self.run.study["rounds"],
                                     self.run.liars)

    @cached_property
    def advice(self) -> Sequence[str]:
        """What the algorithm would have the user know before the run begins."""
        parts = self.run.parts
        return parts.algorithm.advice(parts, (self.start.state.server.shared, self.start.start_private))

    def remarks(self) -> Sequence[str]:
        """What the algorithm would have the user know after the run."""
        remarks, data = self.run.parts.algorithm.diagnostics.remarks, self.run.data
        said = list(remarks(numbers_of(self.columns), data.clients.names))
        if data.new is not None:
            said += [f"new clients: {sentence}" for sentence in remarks(numbers_of(self.new_columns), data.new.names)]
        return said

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
        if self.history:
            self.columns = as_columns(read_clients(self.folder.path))
            self.new_columns = as_columns(read_new_clients(self.folder.path))

    def lacks(self, done: int) -> bool:
        """Whether the evaluation after `done` rounds is missing, or one of its tables of clients."""
        if not self.history or self.history[-1]["round"] != done:
            return True
        if self.folder is None:
            return False
        new = [] if self.run.data.new is None else [self.folder.new_clients_file]
        return not all(file.exists() for file in (self.folder.clients_file, *new))

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

    def write(self, record: Row, columns: Columns, new_columns: Columns) -> None:
        """Write an evaluation; of one that is there already, only the tables of clients."""
        fresh = not self.history or self.history[-1]["round"] != record["round"]
        self.columns, self.new_columns = columns, new_columns
        if fresh:
            self.history.append(record)
        if self.folder is not None:
            if fresh:
                self.folder.append(record)
            self.folder.clients(columns)
            if new_columns:
                self.folder.new_clients(new_columns)

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
            found.append(f"up to round {progress.round}: {amount(lost, 'upload')} left out, NaN or infinite (clients "
                         f"{listed(rejected)}); a smaller step_size or clip_norm may help.")
        if skipped:
            found.append(f"up to round {progress.round}: {amount(skipped, 'round')} skipped, because nothing usable "
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


def numbers_of(columns: Columns) -> dict[str, np.ndarray]:
    """The diagnostics among the columns of a table of clients."""
    return {name.removeprefix("clients."): np.asarray(values) for name, values in columns.items()
            if name.startswith("clients.")}
