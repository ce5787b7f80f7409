"""An algorithm: who moves what, on which evidence."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cantons.protocol.aggregation import Aggregator
from cantons.protocol.examples import Data, Datacenter, Examples
from cantons.protocol.types import Aggregate, Array, Client, Key, Message, PyTree, Server, Upload

if TYPE_CHECKING:
    from cantons.protocol.engine import Parts


class Receipt(NamedTuple):
    """What a message tells a client about its own uploads. Where it tells of several, each has its own receipt."""

    new: Array  # did a message come since this client last acted?
    heard: Array  # does it contain the client's oldest open upload for the first time?
    note: PyTree = ()  # what the client noted when it made that upload


def keep(message: PyTree, receipt: Receipt, client: PyTree) -> PyTree:
    """The default `receive`: a message changes nothing until the client acts."""
    return client


def begin_alike(client: PyTree) -> PyTree:
    """The default `adopt`: a client is the same whether its private part was trained before or not."""
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


class PersonalModel(NamedTuple):
    """What a client predicts with, and how it came about; where nothing is to be said of that, a pair will do."""

    shared: PyTree
    private: PyTree
    numbers: Mapping[str, Array] = {}  # evaluations write them down as "clients.NAME"

    @property
    def parts(self) -> tuple[PyTree, PyTree]:
        return self.shared, self.private


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
    # (key, message, client, data) -> (shared, private) to predict with
    model: Callable[[Key, Message, Client, Data], tuple[PyTree, PyTree] | PersonalModel]
    receive: Callable[[Message, Receipt, Client], Client] = keep
    # What a client asks for before a round, with the key that `client_update` gets, and what it is sent. Nothing is
    # thinned out for `model`, `score` and `diagnostics`: a prediction may look at any row.
    request: Callable[[Key, Client, Data], PyTree] = no_request
    select: Callable[[Message, PyTree], Message] = everything
    note: Callable[[Key, Message, Client, Data], PyTree] = nothing_noted  # with an upload; `receive` gets it back
    score: Callable[[Key, Message, Client, Data], dict[str, Array]] | None = None  # online: what a step is charged
    idle_upload: Callable[[Message, Client], Upload] | None = None  # online: what a client without examples sends
    adopt: Callable[[Client], Client] = begin_alike  # of one that begins with a private part from an earlier run
    needs: Needs = Needs()
    theory: Theory | None = None  # for the regret to be measured in its set, and held against its bound
    diagnostics: Diagnostics = Diagnostics()
    # (the run, (shared, private) at its start) -> what the user should know before it begins, in sentences
    advice: Callable[[Parts, tuple[PyTree, PyTree]], Sequence[str]] = no_advice

    def personal_model(self, key: Key, message: Message, client: Client, data: Data) -> PersonalModel:
        """What `model` gives, in one form."""
        return PersonalModel(*self.model(key, message, client, data))


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
