"""Actors that hold shards of clients. One that dies is replaced, and its shards go on from rows that live elsewhere.

An actor that fails in any way is ended: there is no half of it to be reckoned with. Its shards are opened again when
they are next asked for, from the rows the server has by then. A reply brings an upload and its row together, so what
was not replied has not happened.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from cantons.engine.ray_cluster import Cluster
from cantons.errors import InputError

BIRTH_SECONDS = 120.0  # how long a new actor may take to answer before its shards go to the others
ATTEMPTS = 5  # deaths over one job, after which the job is to blame


class Call(NamedTuple):
    """What a shard is asked."""

    ticket: int
    number: int  # of the shard
    method: str
    arguments: tuple
    deaths: int = 0  # actors that died over it


class Actors:
    """The actors of one session. A shard is `make(work, share(number))`: its share is as the server has it now."""

    def __init__(self, cluster: Cluster, count: int, gpus: float, make: Callable[[Any, Any], Any], work: Any,
                 share: Callable[[int], Any], notice: Callable[[str], None]):
        self._ray, self._cluster, self._count, self._gpus = cluster.ray, cluster, count, gpus
        self._make, self._share, self._notice = make, share, notice
        self._alive: list[Any] = []
        self._born: dict[Any, tuple[Any, float]] = {}  # {first answer: (actor, when to give it up)}
        self._homes: dict[int, Any] = {}  # {shard: actor}
        self._opened: dict[int, Any] = {}  # {shard: the reply when it was last opened}
        self._sent = 0
        self._waiting: dict[Any, tuple[Call, Any]] = {}  # {reply to come: (what was asked, whom)}
        self._replies: dict[int, Any] = {}  # {call: its reply}, in the order in which they came
        self.lost = 0
        try:
            self._work = self._ray.put(work)
        except Exception as error:  # whatever a user's objects raise when they are pickled
            raise InputError("a part of this study cannot be sent to actors, because it cannot be pickled: "
                             f"{str(error).splitlines()[0]}; define it without locks, files and other handles on this "
                             "process.") from error
        self._lost_errors = (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError,
                             self._ray.exceptions.OutOfMemoryError, self._ray.exceptions.NodeDiedError,
                             self._ray.exceptions.WorkerCrashedError)

    def put(self, value: Any) -> Any:
        """What all shards are sent goes through the object store once."""
        return self._ray.put(value)

    def ask(self, method: str, arguments: Sequence[tuple]) -> list[Any]:
        """What all shards reply, each to its own arguments. While one is replaced, the others work on."""
        tickets = [self.send(number, method, given) for number, given in enumerate(arguments)]
        while not self._replies.keys() >= set(tickets):
            self._wait()
        return [self._replies.pop(ticket) for ticket in tickets]

    def send(self, number: int, method: str, arguments: tuple) -> int:
        """Ask one shard, and wait for nothing; the reply comes under the number that is returned."""
        self._sent += 1
        self._dispatch(Call(self._sent, number, method, arguments))
        return self._sent

    def receive(self, tickets: Container[int]) -> list[tuple[int, Any]]:
        """The replies to some calls in the order in which they came: all that are here, and at least one."""
        while not (here := [ticket for ticket in self._replies if ticket in tickets]):
            self._wait()
        return [(ticket, self._replies.pop(ticket)) for ticket in here]

    def _wait(self) -> None:
        """Until something has happened."""
        done, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=1.0 if self._born else None)
        for reference in done:
            call, actor = self._waiting.pop(reference)
            try:
                self._replies[call.ticket] = self._ray.get(reference)
            except self._lost_errors as error:
                if call.deaths + 1 == ATTEMPTS:
                    raise InputError(f"{ATTEMPTS} actors died over the same work ({call.method}), the last with: "
                                     f"{' '.join(str(error).split())[:300]}") from error
                self._bury(actor)
                self._dispatch(call._replace(deaths=call.deaths + 1))
            except self._ray.exceptions.RayTaskError as error:
                raise self._cause(call.number, error) from error
        self._look_at_births()

    def forget(self) -> None:
        """Open every shard anew when it is next asked for: the server's rows are other ones. No reply is awaited."""
        self._homes.clear()
        self._waiting.clear()
        self._replies.clear()

    def close(self) -> None:
        for actor in self._alive:
            self._cluster.end_actor(actor)
        self._alive, self._homes, self._born = [], {}, {}

    def _dispatch(self, call: Call) -> None:
        number = call.number
        if number not in self._homes:
            actor = self._homes[number] = self._home()
            self._opened[number] = actor.open.remote(number, self._make, self._work, self._share(number))
        actor = self._homes[number]
        self._waiting[actor.call.remote(number, call.method, *call.arguments)] = call, actor

    def _home(self) -> Any:
        """A new actor, while there are fewer than were asked for; otherwise the one with the fewest shards."""
        if len(self._alive) < self._count and self._cluster.has_room(len(self._alive) + 1, self._gpus):
            actor = self._cluster.start_actor(self._gpus)
            self._alive.append(actor)
            self._born[actor.pid.remote()] = actor, time.monotonic() + BIRTH_SECONDS
            return actor
        if not self._alive:
            raise InputError("the Ray cluster has no room left for a single actor; the run goes on with --resume, here "
                             "or elsewhere.")
        held = Counter(self._homes.values())
        return min(self._alive, key=lambda actor: held[actor])

    def _bury(self, actor: Any) -> None:
        """End an actor for good. Its shards have no home until they are asked for."""
        if actor not in self._alive:
            return
        self._alive.remove(actor)
        self._cluster.end_actor(actor)
        self.lost += 1
        self._homes = {number: home for number, home in self._homes.items() if home is not actor}
        self._notice("an actor was lost; its clients go on elsewhere, from the server's rows.")

    def _cause(self, number: int, error: Any) -> Exception:
        """What went wrong in an actor; if the shard could not even be opened, then that."""
        try:
            self._ray.get(self._opened[number])
        except self._ray.exceptions.RayTaskError as first:
            error = first
        return error.cause if isinstance(error.cause, Exception) else error

    def _look_at_births(self) -> None:
        """Whoever has no room on the cluster, or takes too long, is given up, and not tried again."""
        if self._born:
            for reference in self._ray.wait(list(self._born), num_returns=len(self._born), timeout=0)[0]:
                del self._born[reference]
        for reference, (actor, until) in list(self._born.items()):
            if time.monotonic() > until or not self._cluster.has_room(len(self._alive), self._gpus):
                del self._born[reference]
                self._count = len(self._alive) - 1
                self._bury(actor)
