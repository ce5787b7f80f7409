"""What a user sees of runs on their way: a bar in a terminal, a line in a notebook, elsewhere a line a minute."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Any, NamedTuple, Protocol

from cantons.display import score
from cantons.metrics import UPWARDS
from cantons.phases import EVALUATING, FITTING, TRAINING, listening
from cantons.study.callbacks import Callback

EVERY = 60.0  # seconds between two lines, where there is neither a terminal nor a notebook
FRAME = 0.2  # seconds between two pictures in a notebook


class Standing(NamedTuple):
    """How far a run is."""

    name: str = ""
    phase: str = ""
    round: int = 0
    rounds: int | None = None  # None: nothing is known about it yet
    scores: str = ""
    left: float | None = None  # seconds

    def __str__(self) -> str:
        """
        >>> print(Standing("fedavg", "evaluating", 120, 400, "accuracy 0.931", 200.0))
        fedavg: round 120 of 400, accuracy 0.931, evaluating, about 3 min left
        """
        where = [] if self.rounds is None else [f"round {self.round} of {self.rounds}"]
        left = [] if self.left is None else [f"about {duration(self.left)} left"]
        words = [*where, self.scores, "" if self.phase == TRAINING else self.phase, *left]
        return ": ".join(filter(None, [self.name, ", ".join(filter(None, words))]))


class Screen(Protocol):
    """Where it is shown."""

    def show(self, standing: Standing) -> None:
        """How far the run is now."""

    def close(self) -> None:
        """Nothing more will come."""


class Watcher(Callback):
    """Follows one run after the other, and shows each on a screen; sentences go to standard error."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic):
        self._screen, self._clock = screen, clock
        self._standing = Standing()
        self._advised: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        self._since = self._clock()  # when the phase began
        self._spent = {TRAINING: 0.0, EVALUATING: 0.0}
        self._every, self._evaluations = 1, 0
        self._first: int | None = None  # the round after the first block: time is taken from there
        self._evaluated: int | None = None

    def entered(self, phase: str) -> None:
        self._show(phase=phase)

    def started(self, study: Mapping[str, Any]) -> None:
        self._forget()
        self._every = study["evaluate_every"]
        self._show(name=study["name"], round=0, rounds=study["rounds"], scores="", left=None)

    def advanced(self, round: int, rounds: int) -> None:
        self._show(round=round, rounds=rounds)
        if self._first is None:
            self._first, self._spent[TRAINING] = round, 0.0

    def evaluated(self, record: Mapping[str, Any]) -> None:
        self._evaluations += 1
        self._evaluated = record["round"]
        self._show(round=record["round"], scores=scores_of(record), phase="")

    def noticed(self, sentence: str) -> None:
        print(sentence, file=sys.stderr)

    def advised(self, sentence: str) -> None:
        """Once, however many runs it is for."""
        if sentence not in self._advised:
            self._advised.add(sentence)
            self.noticed(sentence)

    def _show(self, **news: Any) -> None:
        """Count the time of the phase until now, and show what is new."""
        now, before = self._clock(), self._standing.phase
        kind = EVALUATING if before == FITTING else before
        if kind in self._spent:
            self._spent[kind] += now - self._since
        self._since = now
        self._standing = self._standing._replace(**news)
        if self._standing.rounds is not None:
            self._standing = self._standing._replace(left=self._left())
        self._screen.show(self._standing)

    def _left(self) -> float | None:
        """Seconds for the rounds to come and for their evaluations, each as long as they were so far on average."""
        _, _, round, rounds, *_ = self._standing
        if rounds is None or self._first is None or round <= self._first:
            return None
        each = self._spent[EVALUATING] / self._evaluations if self._evaluations else 0.0
        last = self._first if self._evaluated is None else self._evaluated
        return ((rounds - round) * self._spent[TRAINING] / (round - self._first)
                + evaluations_left(last, rounds, self._every) * each)


def evaluations_left(round: int, rounds: int, every: int) -> int:
    """How many come after `round`, of those after every so many rounds and the one at the end.

    >>> [evaluations_left(round, 10, 4) for round in (0, 3, 4, 8, 10)]
    [3, 3, 2, 1, 0]
    """
    return 0 if round >= rounds else (rounds - 1) // every - round // every + 1


def duration(seconds: float) -> str:
    """
    >>> duration(0.4), duration(50), duration(200), duration(9000)
    ('1 s', '50 s', '3 min', '2 h 30 min')
    """
    if seconds < 100:
        return f"{max(1, math.ceil(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def scores_of(record: Mapping[str, Any]) -> str:
    """The latest scores, after which round they were taken, and the speed."""
    scores = ", ".join(f"{metric} {score(record[key])}" for metric in ("loss", *UPWARDS)
                       if (key := _scored(record, metric)) in record)
    words = [f"{scores} (round {record['round']})"] if scores else []
    if speed := record.get("updates_per_second"):
        words.append(f"{speed:,.0f} clients/s" if speed < 1e4 else f"{speed / 1e3:,.0f}k clients/s")
    return ", ".join(words)


def _scored(record: Mapping[str, Any], metric: str) -> str:
    """The score on test rows; on a stream without any, that of the examples met so far."""
    tested, met = (f"{place}.personal.{metric}.mean" for place in ("test", "online"))
    there = record.get(tested)
    return met if met in record and (there is None or not math.isfinite(there)) else tested


class Quiet:
    """No screen at all."""

    def show(self, standing: Standing) -> None:
        pass

    def close(self) -> None:
        pass


class Lines:
    """A line a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._last = clock, clock()

    def show(self, standing: Standing) -> None:
        now = self._clock()
        if now - self._last >= EVERY:
            self._last = now
            print(standing, file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class Bar:
    """A bar in a terminal, which is gone at the end."""

    def __init__(self, console: Any):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column

        whole = Column(no_wrap=True)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(table_column=whole),
            TextColumn("{task.fields[left]}", table_column=whole), TextColumn("{task.fields[words]}", markup=False),
            console=console, transient=True)
        self._bar: Any = None
        self._progress.start()

    def show(self, standing: Standing) -> None:
        if self._bar is None:
            self._bar = self._progress.add_task("", total=None, left="", words="")
        words = ", ".join(filter(None, [standing.scores, "" if standing.phase == TRAINING else standing.phase]))
        self._progress.update(
            self._bar, description=standing.name, completed=standing.round, total=standing.rounds, words=words,
            left="" if standing.left is None else f"{duration(standing.left)} left")

    def close(self) -> None:
        self._progress.stop()


class Cell:
    """A line in a notebook's cell, which is written over; the last one stays."""

    def __init__(self, display: Callable[..., Any], clock: Callable[[], float] = time.monotonic):
        self._display, self._clock, self._handle, self._last = display, clock, None, -math.inf
        self._standing = Standing()

    def show(self, standing: Standing) -> None:
        self._standing = standing
        if self._clock() - self._last >= FRAME:
            self._draw()

    def close(self) -> None:
        self._standing = self._standing._replace(phase="", left=None)
        if self._handle is not None:
            self._draw()

    def _draw(self) -> None:
        standing = self._standing
        most = "" if standing.rounds is None else f' max="{standing.rounds}" value="{standing.round}"'
        shown = {"text/plain": str(standing), "text/html": f"<progress{most}></progress> {escape(str(standing))}"}
        self._last = self._clock()
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def choose_screen(progress: bool) -> Screen:
    """What suits the place this runs in."""
    if not progress:
        return Quiet()
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if hasattr(shell, "kernel"):  # a notebook: a terminal's shell has none
        from IPython.display import display

        return Cell(display)
    try:
        from rich.console import Console
        from rich.errors import LiveError
    except ImportError:
        return Lines()
    console = Console(stderr=True)
    if not console.is_terminal:
        return Lines()
    try:
        return Bar(console)
    except LiveError:  # the user has one of his own
        return Lines()


@contextmanager
def watching(progress: bool | None = True) -> Iterator[list[Callback]]:
    """Callbacks that show how runs get on in this block. False shows notices alone, None nothing at all."""
    if progress is None:
        yield []
        return
    screen = choose_screen(progress)
    watcher = Watcher(screen)
    try:
        with listening(watcher.entered):
            yield [watcher]
    finally:
        screen.close()
