"""A clock: who takes part, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cantons.protocol.algorithm import Algorithm
from cantons.protocol.types import Array, Key, PyTree


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
