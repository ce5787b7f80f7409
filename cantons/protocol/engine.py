"""An engine: where all this runs, what it keeps, and what it tells a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cantons.protocol.algorithm import Algorithm, Recipe
from cantons.protocol.clock import Clock
from cantons.protocol.examples import CentralExamples, Federated
from cantons.protocol.problem import Problem
from cantons.protocol.types import Array, Message, PyTree, Server, Upload


class State(NamedTuple):
    """All that a run remembers between two rounds."""

    server: Server
    clients: PyTree  # one row per client
    round: Array  # int32: rounds done
    skipped: Array  # int32: rounds in which nothing usable arrived
    ledger: Array  # int32[population, 5]: the five columns below, in one array so that a round reads and writes once
    in_flight: PyTree = ()  # what is on its way, where messages or uploads are late; known to the clock's step alone
    rule: PyTree = ()  # the aggregation rule's state
    reports: Mapping[str, Array] = {}  # what the rule reported, as means over the rounds in which it did
    reported: Any = ()  # int32: how many rounds those were; nothing, where nothing is reported

    @property
    def acknowledged(self) -> Array:
        """Has the client been told of its latest upload?"""
        return self.ledger[:, 0] > 0

    @property
    def downloads(self) -> Array:
        """Messages each client got."""
        return self.ledger[:, 1]

    @property
    def uploads(self) -> Array:
        """Uploads of each client, rejected ones too: they travelled."""
        return self.ledger[:, 2]

    @property
    def rejected(self) -> Array:
        """Uploads left out because they were not finite."""
        return self.ledger[:, 3]

    @property
    def outvoted(self) -> Array:
        """Uploads that the aggregation rule set aside."""
        return self.ledger[:, 4]


class Start(NamedTuple):
    """Where a run begins."""

    shared: PyTree
    private: PyTree  # of the clients, and of new ones
    privates: PyTree = None  # or one row for each client; new ones have `private`
    own: Any = None  # [clients], bool: whose row is what an earlier run learned for it; None: everyone's


class Snapshot(NamedTuple):
    """One run on the host, with every client's row: a checkpoint is this and nothing else."""

    state: State
    start_private: PyTree  # the private part that every client began with
    outside: Any = None  # what is kept outside the state, as JSON has it: clients' own local models, say


class EventCounts(NamedTuple):
    """What an asynchronous run has seen so far."""

    time: float  # virtual
    arrivals: int  # jobs that ended
    delays: int  # the sum of their delays: how many events there were between a job's beginning and its own
    longest: int  # the longest of them


class Progress(NamedTuple):
    """How far one run is, on the host: what is written down about it besides its scores."""

    round: int  # rounds done
    skipped: int  # rounds in which nothing usable arrived
    downloads: np.ndarray  # per client: messages it got
    uploads: np.ndarray  # per client: its uploads, rejected ones too: they travelled
    rejected: np.ndarray  # per client: uploads left out because they were not finite
    met: np.ndarray | None = None  # online, per client: how often it has met new examples, abstaining or not
    charged: Mapping[str, np.ndarray] = {}  # online, per client: each metric, summed over the steps so far
    outvoted: np.ndarray | None = None  # per client: uploads that the aggregation rule set aside
    reports: Mapping[str, float] = {}  # what the rule reported, as means over `reported` rounds
    reported: int = 0
    events: EventCounts | None = None  # asynchronous: what has passed since the start
    left_out: np.ndarray | None = None  # per client: does the engine go on without it? It has told why


# {set: {"shared" | "personal": {metric: one number per client}}}; sets are "train", "test" and "validation".
# Clients that are not scored, because a sample is enough, have NaN.
Scores = Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]


class Evaluation(NamedTuple):
    """Everything that is measured at one moment of one run."""

    progress: Progress
    scores: Mapping[str, Scores]  # of the "clients", and of the "new" ones if there are any
    server: Mapping[str, float] = {}  # diagnostics of the server's state
    clients: Mapping[str, Mapping[str, np.ndarray]] = {}  # diagnostics of clients, by side as the scores are
    columns: Mapping[str, Sequence[Any]] = {}  # whatever else is to be said of each client
    sets: Mapping[str, Mapping[str, float]] = {}  # of the shared model, on test sets that are nobody's in particular
    # Before round 0: clients that will keep a model of their own have none yet, and are scored with the one that all
    # begin with; to fit one for each would take longer than many rounds, and would be thrown away.
    common_start: bool = False


class Parts(NamedTuple):
    """What an engine is given about one run."""

    problem: Problem
    recipe: Recipe  # the algorithm as it was chosen
    algorithm: Algorithm  # and as it was built
    clock: Clock
    data: Federated
    central: CentralExamples | None
    seed: int
    scored: Mapping[str, np.ndarray] = {}  # whom evaluations score of the "clients", and of the "new" ones; else all

    @property
    def population(self) -> int:
        return self.data.clients.train.population


class Session(Protocol):
    """One or several runs on their way, on an engine. Its state is its own business; a `Snapshot` is everybody's."""

    def begin(self, initial: Start | tuple[PyTree, PyTree] | None = None) -> Any:
        """The state before round 0, from `problem.init` or from the given start."""

    def restore(self, snapshots: Sequence[Snapshot]) -> Any:
        """The state in which `whole` gave these, one for each run."""

    def prepare(self, state: Any) -> None:
        """Do now what is done once, such as compiling, so that rounds can be timed."""

    def advance(self, state: Any, until: int) -> Any:
        """Run rounds until `until` of them are done. The old state is used up."""

    def evaluate(self, state: Any) -> list[Evaluation]:
        """Score every client of every run, or those in `Parts.scored`."""

    def whole(self, state: Any) -> list[Snapshot]:
        """Every run on the host, each with every client's row."""

    def travel(self, state: Any) -> tuple[Message, Upload]:
        """The message to and the upload from one client, as shapes."""

    def about(self) -> dict[str, Any]:
        """Facts for the summary: devices, groups, workers."""

    def close(self) -> None:
        """Give back what it holds. A closed session is of no use."""


class Engine(Protocol):
    """Where runs take place."""

    @property
    def name(self) -> str:
        """As a study names it: a word of ours, or module:function."""

    def options(self) -> dict[str, Any]:
        """What was chosen, as a study writes it down."""

    def refuses(self, run: Parts) -> str:
        """Why it cannot run this, as a sentence that goes on from "the engine NAME"; empty if it can."""

    def start(self, runs: Sequence[Parts], notice: Callable[[str], None]) -> Session:
        """Begin work on runs of the same shapes; `notice` is told what the user should know."""

    def together(self) -> Engine | None:
        """The engine that runs several runs as one program with these options; None if they go one by one."""
