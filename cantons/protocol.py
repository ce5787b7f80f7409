"""The whole vocabulary between problems, algorithms, engines and studies.

A problem says what is minimised, an algorithm says who moves what on which evidence, a clock says who takes part when,
a rule says how uploads become one, an engine says where all this runs, and a study puts them together. Problems,
algorithms, clocks and rules are values made of pure functions: what is not in the server's, the client's or the rule's
state does not exist, so saving, replaying, `jit`, `vmap` and `scan` come for free. One round, as every engine runs it:

    message = broadcast(key, server, central)
    for each client there is:     message = select(message, request(key, client, data)), by default all of it
    for each client that hears:   client = receive(message, receipt, client)
    for each client that acts:    upload, client = client_update(key, message, client, data)
    for each client that counts:  upload enters the aggregate (unless it is not finite)
    if anything arrived:          server = server_update(key, server, aggregate, central)

Online, a round is one step of time in which every client meets new examples. It is scored on them before it learns
from them, messages reach it late, its uploads arrive late, and it is told of each when a message first contains it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

Array = jax.Array
PyTree = Any
Key = jax.Array
# What an algorithm chooses for itself: the two states, and what travels between them.
Server = Any
Client = Any
Message = Any
Upload = Any
Aggregate = Any


class Batch(NamedTuple):
    """Some examples of one client; `mask` is 1.0 for a real row and 0.0 for padding."""

    inputs: PyTree
    targets: PyTree
    mask: Array
    group: Array | tuple[()] = ()  # the number of the client's group, where clients are of several
    key: Key | tuple[()] = ()  # what dropout draws from: in batches to train with, where the problem draws

    def again(self, number: Array | int) -> Batch:
        """The same examples for another step: with another key, if there is one."""
        return self if isinstance(self.key, tuple) else self._replace(key=jax.random.fold_in(self.key, number))


class Data(Protocol):
    """A client's examples (or the datacenter's) as an algorithm sees them: a handle, not an array."""

    @property
    def size(self) -> Array | int:
        """How many examples there are."""

    @property
    def group(self) -> Array | tuple[()]:
        """The number of the client's group, where clients are of several; otherwise nothing."""

    @property
    def liar(self) -> Array | tuple[()]:
        """Does the client lie? For attacks alone, in runs that have liars; otherwise nothing."""

    def sample(self, key: Key, size: int) -> Batch:
        """`size` examples drawn uniformly with replacement."""

    def epoch(self, key: Key, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        """Fold `body` over one shuffled pass in batches of `size`; the last one may be partly masked."""

    def fold(self, size: int, body: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        """The same pass in storage order, without a key."""

    def full(self, key: Key | None = None) -> Batch:
        """Every example at once, padded with masked rows to the longest client; a key is for training with them."""

    def now(self) -> Batch:
        """Online: the examples of this step, which are all there are. Offline data has no clock and refuses."""

    def hidden(self) -> Data:
        """The same handle with every row masked: for a model that must predict before labels are revealed."""

    def at(self, key: Key, meeting: Array, size: int, order: str) -> Data:
        """One moment of a stream: the `size` examples a client meets for the `meeting`-th time, from 0."""


class Examples(Protocol):
    """The examples of many clients; `client(id)` is a handle on those of one, also where the id is traced."""

    @property
    def population(self) -> int: ...

    @property
    def sizes(self) -> Any:
        """How many examples each client has."""

    @property
    def longest(self) -> int:
        """The largest size: known before compiling."""

    @property
    def uniform(self) -> bool:
        """Do all clients have as many?"""

    def client(self, index: Array | int) -> Data: ...

    def pooled(self) -> Data:
        """A handle on the examples of all clients together."""

    def some(self, places: np.ndarray, clients: int, rows: int) -> Examples:
        """The examples of the clients in these places, filled up to so many clients and rows, which are nobody's."""

    def divided(self, size: int) -> Examples:
        """The same examples in the same order, dealt out anew: `size` to each owner, and the rest to the last."""


class CentralData(Protocol):
    """A handle on the datacenter's examples: of one kind, and batches are `Batch`, or of several, and {name: Batch}."""

    def sample(self, key: Key, size: int) -> Any: ...

    def full(self, key: Key | None = None) -> Any: ...


class CentralExamples(Protocol):
    """What the datacenter has: `Examples` of one owner, or several kinds of them."""

    @property
    def longest(self) -> int: ...

    def client(self, index: Array | int) -> CentralData: ...


class Datacenter(NamedTuple):
    """What the server may use besides its state: examples of its own, and the key of a round to draw them with."""

    examples: CentralData | None  # None: it has none
    key: Key
    pooled: Data | None = None  # those of all clients, for references that ask for them (`Needs.pooled`)

    def batch(self, step: Array | int, size: int) -> Any:
        """The batch of a central step: it follows from the seed, the round and the step, whoever draws it."""
        return None if self.examples is None else self.examples.sample(jax.random.fold_in(self.key, step), size)


class Groups(NamedTuple):
    """Which of several populations each client is of."""

    names: tuple[str, ...]
    numbers: np.ndarray  # int32[clients]: the place of its group among the names


class Population(Protocol):
    """Some clients: the examples each trains on, and those it is judged by."""

    @property
    def train(self) -> Examples: ...

    @property
    def test(self) -> Examples: ...

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def groups(self) -> Groups | None:
        """None: all clients are of one kind."""


class Federated(Protocol):
    """The data of a study, as engines see it."""

    @property
    def clients(self) -> Population: ...

    @property
    def new(self) -> Population | None:
        """Clients that take no part in training, and are scored as newcomers."""

    @property
    def validation(self) -> Examples | None:
        """Rows of the clients that are held back to choose by."""

    @property
    def sets(self) -> Mapping[str, Examples]:
        """More test sets, for the shared model: of nobody in particular."""


class Residual(NamedTuple):
    """A joint prediction: the outputs of the shared model plus those of the private one.

    The server needs `features`, a client's outputs and the targets, and nothing else of a client.
    """

    features: Callable[[PyTree], PyTree]  # inputs -> the features the shared model looks at
    shared: Callable[[PyTree, PyTree], Array]  # (shared, features) -> outputs
    private: Callable[[PyTree, PyTree], Array]  # (private, inputs) -> outputs
    loss: Callable[[Array, PyTree, Array], Array]  # (summed outputs, targets, mask) -> the mean over real rows
    as_outputs: Callable[[PyTree], Array] = lambda targets: targets  # targets -> the numbers that outputs should be
    quadratic: bool = False  # two linear models and the squared loss: least squares in the parameters
    empty_batch: Callable[[int], Batch] | None = None  # n -> a masked batch of n rows, to allocate memory with
    # Two more for private models that are no part of the problem; None: it cannot do without its own.
    private_features: Callable[[PyTree], PyTree] | None = None  # inputs -> the features the private model looks at
    score: Callable[[Array, PyTree], dict[str, Array]] | None = None  # (summed outputs, targets) -> as Problem.score


class Convex(NamedTuple):
    """Losses that are convex in all parameters together, and how the best point for many of them is found."""

    curvature: float = 0.0  # the least second derivative of any example's loss, in any direction
    # "half_squared", "absolute" or "linear": the loss of x is |x - a|^2 / 2, |x - a|_1 or <x, a> for an input a,
    # and the best point is known by adding up. "smooth": any other, whose best point is searched for by gradients.
    form: str = "smooth"


class SetMetric(NamedTuple):
    """A metric of a whole set, such as the area under the ROC curve: no mean over its examples."""

    collect: Callable[[PyTree, PyTree, Batch], PyTree]  # (shared, private, batch) -> arrays with one row per example
    finish: Callable[[PyTree], float]  # these arrays, for all examples and on the host -> the metric


class CentralTerm(NamedTuple):
    """One of several losses of a datacenter."""

    name: str
    loss: Callable[[PyTree, PyTree, Any], Array]  # (shared, private, the centre's batch), its weight inside
    weight: float


class CentralLoss(NamedTuple):
    """The loss of the datacenter, f_c."""

    loss: Callable[[PyTree, PyTree, Any], Array]  # (shared, private, batch)
    needs_data: bool = True  # False: it looks at no examples, and its batch is None
    weights: tuple[float, float] = (1.0, 1.0)  # (w_f, w_c), which the clients' loss and this one have inside
    terms: tuple[CentralTerm, ...] = ()  # where it is the sum of several
    kinds: tuple[str, ...] = ()  # the names of the examples that these look at, where each has its own


class GroupLoss(NamedTuple):
    """One of several populations of clients, in a problem where each has a loss of its own."""

    name: str
    weight: float  # which its loss has inside


class Tables(NamedTuple):
    """Arrays of the shared part of which a batch looks at some rows only, such as the vectors of words.

    All of them have as many rows, and one numbering serves all.
    """

    paths: tuple[str, ...]  # where they are in the shared part, as in "layer0/weight"
    size: int  # how many rows they have
    rows: Callable[[Batch], Array]  # the numbers of the rows that the loss of a batch looks at, and -1 for none
    renumber: Callable[[Batch, Callable[[Array], Array]], Batch]  # (batch, old numbers -> new) -> the batch in new ones


class Dense(NamedTuple):
    """A network inside a model: layers "layer0", ... of weights, perhaps with biases, and relu between them."""

    params: Mapping[str, Mapping[str, Array]]
    columns: Array | None = None  # the inputs that it looks at; None: all


class Problem(NamedTuple):
    """What is minimised: sum_i weight_i * loss_i(shared, private_i) + central.loss(shared)."""

    init: Callable[[Key], tuple[PyTree, PyTree]]  # key -> (shared, private); either may hold no arrays
    loss: Callable[[PyTree, PyTree, Batch], Array]  # the mean over the batch's unmasked rows
    predict: Callable[[PyTree, PyTree, PyTree], PyTree]  # (shared, private, inputs) -> outputs
    score: Callable[[PyTree, PyTree, Batch], dict[str, Array]]  # each metric's value per example
    maximise: tuple[str, ...] = ("accuracy",)  # the metrics of `score` that are better when larger
    central: CentralLoss | None = None  # the datacenter's loss, where it has one
    spec: Mapping[str, Any] | None = None  # the named parts and options that rebuild this problem
    residual: Residual | None = None  # where predictions are joint, their two halves
    convex: Convex | None = None  # None: not known to be
    set_metrics: Mapping[str, SetMetric] = {}  # of whole test sets, beside the means of what `score` gives
    numeric_targets: bool = False  # targets are quantities: labels, numbered 0, 1, ..., will not do
    every_label: bool = False  # targets are labels, and none of several to an example may be missing, as -1
    check_inputs: Callable[[PyTree], None] = lambda inputs: None  # refuses those from which nothing can be predicted
    tables: Tables | None = None  # arrays of which a client needs some rows only, where there are any
    draws: bool = False  # `loss` draws at random, as dropout does, where a batch has a key
    groups: tuple[GroupLoss, ...] = ()  # in the order of the data's, where `loss` asks a batch for its group
    # (shared, private) -> the parameters of the whole model, where the two are parts of one
    join: Callable[[PyTree, PyTree], PyTree] | None = None
    # What `predict` gives: "numbers"; for every class "logits", or "scores" that are no logits; or for two classes one
    # number, the "log_odds" of the second or its "sign" alone.
    outputs: str = "numbers"
    # (shared, private) -> networks whose outputs are summed; None: it is not made of such
    dense: Callable[[PyTree, PyTree], list[Dense]] | None = None

    def __repr__(self) -> str:
        """Its name and options, as a study has them, and no functions."""
        if self.spec is None:
            return "<a problem written in Python>"
        options = (f"{name}={value!r}" for name, value in self.spec.items() if name != "name")
        return f"{self.spec['name']}({', '.join(options)})"


class Receipt(NamedTuple):
    """What a message tells a client about its own uploads. Where it tells of several, each has its own receipt."""

    new: Array  # did a message come since this client last acted?
    heard: Array  # does it contain the client's oldest open upload for the first time?
    note: PyTree = ()  # what the client noted when it made that upload


@partial(jax.tree_util.register_dataclass, data_fields=["ids", "values"], meta_fields=["size"])
@dataclass(frozen=True)
class TableRows:
    """In a summand: some rows of a table whose other rows are zero. The sum has a table of `size` rows in its place.

    Engines scatter the rows of all clients into one table; a client's own is never made.
    """

    ids: Array  # int[n]: one that comes twice counts twice, and one that is `size` or more does not count
    values: Array  # [n, ...]
    size: int


class Sum(NamedTuple):
    """An algorithm's own aggregation by adding: can be chunked, reduced on workers, made secret or private."""

    # (upload, the message it answers, as it was sent) -> summand, on the receiving side; arrays, or `TableRows`
    lift: Callable[[Upload, Message], PyTree]
    finish: Callable[[Key, PyTree], Aggregate]  # (key, sum) -> aggregate


class Stack(NamedTuple):
    """An algorithm's own aggregation of all uploads at once. Rows with `counts` 0 did not arrive."""

    reduce: Callable[[Key, PyTree, Array, Array], Aggregate]  # (key, uploads, ids, counts) -> aggregate


class Average(NamedTuple):
    """A value and the weight behind it: one upload's, or that of all of them together."""

    value: PyTree
    weight: Array


class Report(NamedTuple):
    """What a rule has to say about one round."""

    numbers: Mapping[str, Array] = {}  # written down as "rule.NAME", as means over the rounds between two evaluations
    rejected: Array | None = None  # bool, one for each row of a stack: whose upload was set aside


def stateless(value: PyTree) -> PyTree:
    """The default `init` of a rule: it remembers nothing."""
    return ()


class SumRule(NamedTuple):
    """A rule that adds: `expected` is the size of a full cohort, for those that divide by it whoever comes."""

    lift: Callable[[PyTree, Average], PyTree]  # (state, one upload) -> summand
    finish: Callable[[Key, PyTree, PyTree, float], tuple[Average, PyTree, Report]]  # (key, state, sum, expected)
    init: Callable[[PyTree], PyTree] = stateless  # a value, all zeros -> the rule's state
    reports: tuple[str, ...] = ()  # the names of the numbers it reports
    every_round: bool = False  # finish also where nothing arrived
    on_client: bool = False  # lift before sending: the summand is what travels, and the state travels down


class StackRule(NamedTuple):
    """A rule that must see every upload: medians, Krum, bucketing. A row with weight 0 did not arrive."""

    # (key, state, uploads stacked in ascending id, ids, expected) -> (the average, state, report)
    reduce: Callable[[Key, PyTree, Average, Array, float], tuple[Average, PyTree, Report]]
    init: Callable[[PyTree], PyTree] = stateless
    reports: tuple[str, ...] = ()
    every_round: bool = False
    # (the size of a full cohort) -> how many liars it bears there; refuses a cohort that does not suit it
    bears: Callable[[float], int] | None = None


Rule = SumRule | StackRule


class Averages(NamedTuple):
    """Aggregation of uploads that are averages: the rule is the user's choice, and the server gets an `Average`."""

    read: Callable[[Upload], Average]  # what the rule is shown of an upload
    rule: Rule  # unless the user chooses another
    only: str = ""  # why no other rule will do; empty where any may be chosen


Aggregator = Sum | Stack | Averages


class Attack(NamedTuple):
    """What liars do in place of what the algorithm asks of them; an attack has one of these."""

    upload: Callable[[Key, Average], Average] | None = None  # (key, its honest upload) -> what it sends
    # (key, the values of all uploads, stacked; which are honest, and which are liars') -> the value every liar sends
    together: Callable[[Key, PyTree, Array, Array], PyTree] | None = None
    targets: Callable[[int | None, PyTree], PyTree] | None = None  # (how many labels, targets) -> what it learns from
    silent: bool = False  # it sends nothing
    slower: float | None = None  # its jobs take so many times as long: for clocks on which they take their time


def adds(aggregator: Aggregator) -> bool:
    """Is a sum of uploads enough for it? An engine that can only sum refuses the others."""
    return isinstance(aggregator, Sum) or (isinstance(aggregator, Averages) and isinstance(aggregator.rule, SumRule))


def keep(message: PyTree, receipt: Receipt, client: PyTree) -> PyTree:
    """The default `receive`: a message changes nothing until the client acts."""
    return client


def everything(message: PyTree, request: PyTree) -> PyTree:
    """The default `select`: the client is sent the whole message."""
    return message


def nothing_noted(key: Key, message: PyTree, client: PyTree, data: Data) -> PyTree:
    """The default `note`: a client need not be reminded of anything."""
    return ()


def no_request(key: Key, client: PyTree, data: Data) -> PyTree:
    """The default `request`: nothing is asked for in particular."""
    return ()


def no_remarks(numbers: Mapping[str, np.ndarray], names: Sequence[str]) -> Sequence[str]:
    """The default `remarks`: the numbers speak for themselves."""
    return ()


def no_advice(parts: Parts, start: tuple[PyTree, PyTree]) -> Sequence[str]:
    """The default `advice`: there is nothing to be said."""
    return ()


class Needs(NamedTuple):
    """What an algorithm cannot do without: a study that lacks it is refused in a sentence."""

    private: bool = False  # a problem with a private part
    shared: bool = True  # a problem with a shared part
    stream: bool = False  # a clock with a stream of examples: it learns from `data.now()`
    counts_once: bool = False  # a clock that never counts one upload several times
    pooled: bool = False  # the examples of all clients in one place: only a reference may ask for that
    central: str = ""  # of the datacenter: "loss", and the examples which that loss wants, or "data"
    together: str = ""  # why uploads of one round must come together, from one message; empty where they need not
    central_rows: int = 0  # how many examples the datacenter has at least: the largest batch that is drawn
    examples: Callable[[Examples], None] = lambda train: None  # refuse training examples that it has no room for


class Theory(NamedTuple):
    """What is known about an algorithm that keeps the shared part in a convex set: the set, and its regret there."""

    within: Callable[[PyTree], PyTree] | None  # the nearest point of the set
    check_start: Callable[[PyTree], None]  # refuse a shared part to begin with
    corner: Callable[[PyTree], PyTree] | None  # direction -> the set's point furthest in it; None: the set has no end
    dual_norm: Callable[[PyTree], Array]  # of a gradient, in the norm in which the bound measures how steep losses are
    # (start, steepest gradient, curvature of the losses in l2, gap, steps) -> the most regret; None: nothing is proved
    regret_bound: Callable[[PyTree, float, float, int, int], float | None]


class Probe(NamedTuple):
    """A measurement that asks a cohort, and is neither part of the algorithm nor traffic."""

    client: Callable[[Key, Server, Client, Data], PyTree]  # (key, server, client, data) -> what is averaged, all alike
    finish: Callable[[Server, PyTree, Datacenter], Mapping[str, Array]]  # (server, the mean, central) -> numbers


class Diagnostics(NamedTuple):
    """Numbers of interest at an evaluation; they are written down as "server.NAME" and "clients.NAME"."""

    server: Callable[[Server], Mapping[str, Array]] = lambda server: {}
    # of each client: (message, client, the (shared, private) that `model` gave it to predict with, training examples)
    client: Callable[[Message, Client, tuple[PyTree, PyTree], Data], Mapping[str, Array]] = (
        lambda message, client, model, data: {})
    probe: Probe | None = None  # of the cohort that the next round would have; its numbers are the server's
    # (the clients' last numbers by name, the clients' names) -> what the user should know after a run, in sentences
    remarks: Callable[[Mapping[str, np.ndarray], Sequence[str]], Sequence[str]] = no_remarks


class Algorithm(NamedTuple):
    """A federated algorithm: a few pure functions over explicit state.

    The server's state has a field `shared`: the shared part the server would hand to a new client.
    """

    init_server: Callable[[Key, PyTree, PyTree], Server]  # (key, shared, private) -> server
    init_client: Callable[[Key, PyTree, PyTree], Client]  # (key, shared, private) -> client
    broadcast: Callable[[Key, Server, Datacenter], Message]  # (key, server, central) -> message
    client_update: Callable[[Key, Message, Client, Data], tuple[Upload, Client]]
    aggregate: Aggregator
    server_update: Callable[[Key, Server, Aggregate, Datacenter], Server]  # (key, server, aggregate, central)
    model: Callable[[Key, Message, Client, Data], tuple[PyTree, PyTree]]  # -> (shared, private), to predict with
    receive: Callable[[Message, Receipt, Client], Client] = keep
    # What a client asks for before a round, with the key that `client_update` gets, and what it is sent. Nothing is
    # thinned out for `model`, `score` and `diagnostics`: a prediction may look at any row.
    request: Callable[[Key, Client, Data], PyTree] = no_request
    select: Callable[[Message, PyTree], Message] = everything
    note: Callable[[Key, Message, Client, Data], PyTree] = nothing_noted  # with an upload; `receive` gets it back
    score: Callable[[Key, Message, Client, Data], dict[str, Array]] | None = None  # online: what a step is charged
    idle_upload: Callable[[Message, Client], Upload] | None = None  # online: what a client without examples sends
    needs: Needs = Needs()
    theory: Theory | None = None  # for the regret to be measured in its set, and held against its bound
    diagnostics: Diagnostics = Diagnostics()
    # (the run, (shared, private) at its start) -> what the user should know before it begins, in sentences
    advice: Callable[[Parts, tuple[PyTree, PyTree]], Sequence[str]] = no_advice


class Recipe(NamedTuple):
    """A named part with its options chosen, to be built when the rest is known: `ct.fedavg(step_size=0.1)`."""

    name: str
    options: Mapping[str, Any]
    build: Callable[..., Any]  # (problem, population) -> Algorithm; (population, ...) -> Clock; () -> Rule
    again: Callable[..., Recipe] | None = None  # options -> the same part with these options
    kind: str = "algorithm"  # or "clock", "aggregate" or "attack"

    def table(self) -> dict[str, Any]:
        """As a study file writes it; an option that is a recipe itself is a table in the table."""
        return {"name": self.name, **{name: value.table() if isinstance(value, Recipe) else value
                                      for name, value in self.options.items()}}

    def __repr__(self) -> str:
        """As one writes it: without options that have their default."""
        known = {} if self.again is None else inspect.signature(self.again).parameters
        chosen = (f"{name}={value!r}" for name, value in self.options.items()
                  if name not in known or repr(value) != repr(known[name].default))
        return f"{self.name}({', '.join(chosen)})"


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
    fixed_delays: bool  # delays never change: an upload arrives alone
    max_gap: int | None = 1  # the most steps between two messages, where that is known; 1 = before every step
    cross_score: bool = False  # score every client's model on every client's examples too
    participants: int | None = None  # how many uploads are counted of those that could be; None = all
    label_delay: int = 0  # a client learns in one meeting from the examples it met so many meetings ago


class Event(NamedTuple):
    """Some jobs end: whose they are, and where the messages are kept that they began with. Rows are as in a `Plan`."""

    ids: Array  # int32[slots], ascending; a spare slot has id `population`
    job: Array  # int32[slots]: the number of the job among its client's, from 0
    version: Array  # int32[slots]: how many events there had been when the job began
    place: Array  # int32[slots]: of the message it began with
    free: Array  # int32: where the message that follows this event is to be kept; past the last place: nowhere
    begins: Array  # int32[...]: the clients of the jobs that begin with that message; `population` for none
    elapsed: Array  # float32: virtual time since the event before
    counts: Array | None = None  # int32[slots]: how often its upload enters the aggregate; None = once


class Job(NamedTuple):
    """A job under way."""

    client: Array  # int32; `population`: there is none
    number: Array  # int32: among its client's, from 0
    version: Array  # int32: how many events there had been when it began
    place: Array  # int32: of the message it began with
    left: Array  # float32: the virtual time until it ends, after the last event


class Asynchronous(NamedTuple):
    """What a clock of events adds: jobs that begin with one message and end while others are under way.

    Which jobs end when does not depend on what is learned. `jobs` is the clock's own: what it knows of those under way.
    """

    places: int  # how many messages are kept at most
    begin: Callable[[PyTree, Key], tuple[PyTree, Array]]  # (arrays, key of the run) -> (jobs, whose they are)
    next: Callable[[PyTree, Key, PyTree, Array], tuple[Event, PyTree]]  # (arrays, key, jobs, round) -> (event, jobs)
    # delay -> what the value of an upload is multiplied by; None: nothing. (A weight would cancel in the mean of one.)
    staleness: Callable[[Array], Array] | None = None
    # Two more for engines on which time is real; None: this clock has a time of its own.
    under_way: Callable[[PyTree], Job] | None = None  # jobs -> one row for each
    # (arrays, key, jobs, round, the rows that end, in ascending client, and the time since) -> (event, jobs)
    end: Callable[[PyTree, Key, PyTree, Array, Array, Array], tuple[Event, PyTree]] | None = None
    # (arrays, a factor for each client) -> arrays under which its jobs take so many times as long; None: they cannot
    slow: Callable[[PyTree, np.ndarray], PyTree] | None = None


class Clock(NamedTuple):
    """Who acts when. `arrays` enter compiled code as arguments; `plan` is pure."""

    slots: int  # how many clients a plan has room for
    full: bool  # every slot is always taken by a client that acts: nothing need be skipped
    arrays: PyTree
    plan: Callable[[PyTree, Key, Array], Plan]  # (arrays, key, round) -> plan
    repeats: bool = False  # a plan's counts may be above 1
    actors_hear: bool = False  # whoever acts has heard; else one who has not sees NaN in place of the message
    online: Online | None = None
    asynchronous: Asynchronous | None = None
    probed: Callable[[PyTree, Key, Array], Plan] | None = None  # whom a probe asks; None: those of the plan
    expected: float | None = None  # how many uploads a full cohort sends; None = one for each slot
    check: Callable[[Algorithm, int], None] = lambda algorithm, rounds: None  # refuse what makes no sense with it

    @property
    def cohort(self) -> float:
        """How many uploads a full cohort sends."""
        return self.slots if self.expected is None else self.expected


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
    clients: Mapping[str, np.ndarray] = {}  # diagnostics of each client
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
