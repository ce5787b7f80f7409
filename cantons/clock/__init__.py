"""Owns: who takes part when. May import: protocol, shuffle, recipe, ranges, memory, errors."""

from collections.abc import Callable

from cantons.clock.asynchronous import asynchronous
from cantons.clock.online import online
from cantons.clock.replay import replay
from cantons.clock.rounds import rounds
from cantons.protocol import Recipe

CLOCKS: dict[str, Callable[..., Recipe]] = {"asynchronous": asynchronous, "online": online, "replay": replay,
                                              "rounds": rounds}

__all__ = ["CLOCKS", "asynchronous", "online", "replay", "rounds"]
