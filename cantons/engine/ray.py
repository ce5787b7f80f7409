"""The engine on a Ray cluster: the server is here, the clients are dealt out to actors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cantons.engine.ray_cluster import ray_package
from cantons.engine.ray_events import RayEvents
from cantons.engine.ray_session import RaySession
from cantons.errors import InputError, amount
from cantons.protocol import Engine, Parts
from cantons.ranges import Count, Part, check_fields


@dataclass(frozen=True)
class Ray:
    """Actors on a Ray cluster, which share the clients; for rounds, and for events with real delays.

    actors: how many processes share the clients. Each computes on one core, or on its share of a GPU.
    address: HOST:PORT of a Ray cluster; none starts a Ray on this machine, and stops it in the end.
    gpus: the part of a GPU that each actor takes, such as 0.5; with 0 they compute on cores.
    """

    actors: Count = 2
    address: str | None = None
    gpus: Part = 0.0

    name = "ray"

    def __post_init__(self) -> None:
        check_fields(self)

    def options(self) -> dict[str, Any]:
        return {"actors": self.actors, "gpus": self.gpus}  # where the cluster is makes no other numbers

    def refuses(self, run: Parts) -> str:
        if run.clock.online is not None:
            return "runs rounds; online steps are too short to be worth a message each: use the engine local."
        if run.clock.asynchronous is not None and run.clock.asynchronous.end is None:
            return ("takes as long as it takes; use the clock asynchronous without durations, or the engine local for "
                    "durations and replays.")
        if self.actors > run.population:
            return (f"has {self.actors} actors for {amount(run.population, 'client')}; use at most as many actors as "
                    "clients.")
        try:
            ray_package()
        except InputError as error:
            return str(error).removeprefix("the engine ray ")
        return ""

    def start(self, runs: Sequence[Parts], notice: Callable[[str], None] = lambda sentence: None) -> RaySession:
        (run,) = runs
        kind = RaySession if run.clock.asynchronous is None else RayEvents
        return kind(self, run, notice)

    def together(self) -> Engine | None:
        return None
