"""The whole vocabulary between problems, algorithms and engines: the one door in the wall.

A problem says what is minimised, an algorithm says who moves what on which evidence, a clock says who
takes part when, and an engine runs them. Everything here is a value made of pure functions: what is not
in the server's or the client's state does not exist, so saving, replaying, `jit`, `vmap` and `scan` come
for free. One round, as every engine runs it:

    message = broadcast(key, server, central)
    for each client that hears:   client = receive(message, receipt, client)
    for each client that acts:    upload, client = client_update(key, message, client, data)
    for each client that counts:  upload enters the aggregate (unless it is not finite)
    if anything arrived:          server = server_update(key, server, aggregate, central)

Online, a round is one step of time in which every client meets new examples. It is scored on them before it learns
from them, messages reach it late, its uploads arrive late, and it is told of each when a message first contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

Array = jax.Array
PyTree = Any
Key = jax.Array


class Batch(NamedTuple):
    """Some examples of one client; `mask` is 1.0 for a real row and 0.0 for padding."""

    inputs: PyTree
    targets: PyTree
    mask: Array


class Data(Protocol):
    """A client's examples (or the datacenter's) as an algorithm sees them: a handle, not an array."""

    @property
    def size(self) -> Array | int:
        """How many examples there are."""

    def sample(self, key: Key, size: int) -> Batch:
        """`size` examples drawn uniformly with replacement."""

    def epoch(self, key: Key, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        """Fold `body` over one shuffled pass in batches of `size`; the last one may be partly masked."""

    def fold(self, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        """The same pass in storage order, without a key."""

    def full(self) -> Batch:
        """Every example at once, padded with masked rows to the longest client."""

    def now(self) -> Batch:
        """Online: the examples of this step, which are all there are. Offline data has no clock and refuses."""

    def hidden(self) -> Data:
        """The same without its examples: for one who is asked before it is told."""


class Residual(NamedTuple):
    """A joint prediction: the outputs of the shared model plus those of the private one.

    The server needs `seen`, a client's outputs and the targets, and nothing else of a client.
    """

    seen: Callable[[PyTree], PyTree]  # inputs -> the features the shared model looks at
    shared: Callable[[PyTree, PyTree], Array]  # (shared, seen) -> outputs
    private: Callable[[PyTree, PyTree], Array]  # (private, inputs) -> outputs
    loss: Callable[[Array, PyTree, Array], Array]  # (summed outputs, targets, mask) -> the mean over real rows
    wanted: Callable[[PyTree], Array] = lambda targets: targets  # targets -> the numbers that outputs should be
    quadratic: bool = False  # two linear models and the squared loss: least squares in the parameters
    blank: Callable[[int], Batch] | None = None  # so many empty rows, for one who wants to keep examples


class Convex(NamedTuple):
    """Losses that are convex in all parameters together, and how the best point for many of them is found."""

    curvature: float = 0.0  # the least second derivative of any example's loss, in any direction
    # "half_squared", "absolute" or "linear": the loss of x is |x - a|^2 / 2, |x - a|_1 or <x, a> for an input a,
    # and the best point is known by adding up. "smooth": any other, whose best point is searched for by gradients.
    form: str = "smooth"


class Problem(NamedTuple):
    """What is minimised: sum_i weight_i * loss_i(shared, private_i) + central_loss(shared)."""

    init: Callable[[Key], tuple[PyTree, PyTree]]  # key -> (shared, private); either may hold no arrays
    loss: Callable[[PyTree, PyTree, Batch], Array]  # the mean over the batch's unmasked rows
    predict: Callable[[PyTree, PyTree, PyTree], PyTree]  # (shared, private, inputs) -> outputs
    score: Callable[[PyTree, PyTree, Batch], dict[str, Array]]  # each metric's value per example
    maximise: tuple[str, ...] = ("accuracy",)  # the metrics of `score` that are better when larger
    central_loss: Callable[[PyTree, Batch], Array] | None = None
    spec: Mapping[str, Any] | None = None  # the named parts and options that rebuild this problem
    residual: Residual | None = None  # where predictions are joint, their two halves
    convex: Convex | None = None  # None: not known to be
    numeric_targets: bool = False  # targets are quantities: labels, numbered 0, 1, ..., will not do


class Receipt(NamedTuple):
    """What a message tells a client about its own uploads. Where it tells of several, each has its own receipt."""

    new: Array  # did a message come since this client last acted?
    heard: Array  # does it contain the client's oldest open upload for the first time?
    note: PyTree = ()  # what the client noted when it made that upload


class Sum(NamedTuple):
    """Aggregation by adding: can be chunked, reduced on workers, made secret or private."""

    lift: Callable[[PyTree, PyTree], PyTree]  # (upload, the message it answers) -> summand, on the receiving side
    finish: Callable[[Key, PyTree], PyTree]  # (key, sum) -> aggregate


class Stack(NamedTuple):
    """Aggregation of all uploads at once: medians, Krum, bucketing. Rows with `counts` 0 did not arrive."""

    reduce: Callable[[Key, PyTree, Array, Array], PyTree]  # (key, uploads, ids, counts) -> aggregate


Aggregator = Sum | Stack


def keep(message: PyTree, receipt: Receipt, client: PyTree) -> PyTree:
    """The default `receive`: a message changes nothing until the client acts."""
    return client


def everything(message: PyTree, request: PyTree) -> PyTree:
    """The default `select`: the client is sent the whole message."""
    return message


def nothing_noted(key: Key, message: PyTree, client: PyTree, data: Data) -> PyTree:
    """The default `note`: a client need not be reminded of anything."""
    return ()


def no_request(client: PyTree, data: Data) -> PyTree:
    """The default `request`: nothing is asked for in particular."""
    return ()


class Needs(NamedTuple):
    """What an algorithm cannot do without: a study that lacks it is refused in a sentence."""

    private: bool = False  # a problem with a private part
    shared: bool = True  # a problem with a shared part
    stream: bool = False  # a clock with a stream of examples: it learns from `data.now()`
    counts_once: bool = False  # a clock that never counts one upload several times
    central: str = ""  # "pooled": the examples of all clients in one place, as a datacenter's


class Theory(NamedTuple):
    """What is known about an algorithm that keeps the shared part in a convex set: the set, and its regret there."""

    within: Callable[[PyTree], PyTree] | None  # the nearest point of the set
    check_start: Callable[[PyTree], None]  # refuse a shared part to begin with
    corner: Callable[[PyTree], PyTree] | None  # direction -> the set's point furthest in it; None: the set has no end
    dual_norm: Callable[[PyTree], Array]  # of a gradient, in the norm in which the bound measures how steep losses are
    # (start, steepest gradient, curvature of the losses in l2, gap, steps) -> the most regret; None: nothing is proved
    regret_bound: Callable[[PyTree, float, float, int, int], float | None]


class Algorithm(NamedTuple):
    """A federated algorithm: a few pure functions over explicit state.

    The server's state has a field `shared`: the shared part the server would hand to a stranger.
    """

    init_server: Callable[[Key, PyTree, PyTree], PyTree]  # (key, shared, private) -> server
    init_client: Callable[[Key, PyTree, PyTree], PyTree]  # (key, shared, private) -> client
    broadcast: Callable[[Key, PyTree, Data | None], PyTree]  # (key, server, central) -> message
    client_update: Callable[[Key, PyTree, PyTree, Data], tuple[PyTree, PyTree]]  # -> (upload, client)
    aggregate: Aggregator
    server_update: Callable[[Key, PyTree, PyTree, Data | None], PyTree]  # (key, server, aggregate, central)
    model: Callable[[Key, PyTree, PyTree, Data], tuple[PyTree, PyTree]]  # (key, message, client, data)
    receive: Callable[[PyTree, Receipt, PyTree], PyTree] = keep
    request: Callable[[PyTree, Data], PyTree] = no_request
    select: Callable[[PyTree, PyTree], PyTree] = everything
    note: Callable[[Key, PyTree, PyTree, Data], PyTree] = nothing_noted  # with an upload; `receive` gets it back
    score: Callable[[Key, PyTree, PyTree, Data], dict[str, Array]] | None = None  # online: what a step is charged
    needs: Needs = Needs()
    theory: Theory | None = None  # for the regret to be measured in its set, and held against its bound


class Recipe(NamedTuple):
    """A named part with its options chosen, to be built when the rest is known: `ct.fedavg(step_size=0.1)`."""

    name: str
    options: Mapping[str, Any]
    build: Callable[..., Any]  # an algorithm: (problem, population) -> Algorithm; a clock: population -> Clock


class Plan(NamedTuple):
    """Who takes part in one round. Rows are slots in ascending client id; a spare slot has id `population`."""

    ids: Array  # int32[slots]
    acts: Array  # bool[slots]: runs `client_update`
    counts: Array  # [slots]: how often its upload enters the aggregate, or its weight there; 0 = not at all
    hears: Array  # bool[slots]: gets the message
    up: Array | None = None  # int32[slots], online: in how many steps this upload arrives
    down: Array | None = None  # int32[slots], online: how many steps old the message is that arrives now
    sends: Array | None = None  # bool, online: does a message go out before this step? None = before every step


class Online(NamedTuple):
    """What a clock of single steps adds: examples come in a stream, and messages take their time."""

    batch: int  # examples each client meets in a step
    order: str  # in which it meets its examples: "cycle", "shuffle" or "sample"
    longest_up: int  # no plan has a longer delay
    longest_down: int
    steady: bool  # delays never change: an upload arrives alone
    gap: int | None = 1  # the most steps between two messages, where that is known; 1 = before every step
    everyone: bool = False  # score every client's model on every client's examples too
    counted: int | None = None  # how many uploads are counted of those that could be; None = all
    label_delay: int = 0  # a client learns in one meeting from the examples it met so many meetings ago


class Clock(NamedTuple):
    """Who acts when. `arrays` enter compiled code as arguments; `plan` is pure."""

    slots: int  # how many clients a plan has room for
    full: bool  # every slot is always taken by a client that acts: nothing need be skipped
    arrays: PyTree
    plan: Callable[[PyTree, Key, Array], Plan]  # (arrays, key, round) -> plan
    repeats: bool = False  # a plan's counts may be above 1
    actors_hear: bool = False  # whoever acts has heard; else one who has not sees NaN in place of the message
    online: Online | None = None


class State(NamedTuple):
    """All that a run remembers; a checkpoint is this and nothing else."""

    server: PyTree
    clients: PyTree  # one row per client
    round: Array  # int32: rounds done
    skipped: Array  # int32: rounds in which nothing usable arrived
    ledger: Array  # int32[population, 4]: the four columns below, in one array so that a round reads and writes once
    transit: PyTree = ()  # online: what is on its way, and the scores so far

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


class Progress(NamedTuple):
    """How far one run is, on the host: what is written down about it besides its scores."""

    round: int  # rounds done
    skipped: int  # rounds in which nothing usable arrived
    downloads: np.ndarray  # per client: messages it got
    uploads: np.ndarray  # per client: its uploads, rejected ones too: they travelled
    rejected: np.ndarray  # per client: uploads left out because they were not finite
    met: np.ndarray | None = None  # online, per client: how often it has met new examples, abstaining or not
    charged: Mapping[str, np.ndarray] = {}  # online, per client: each metric, summed over the steps so far
