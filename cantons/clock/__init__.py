"""Owns: who takes part when. May import: protocol, shuffle, recipe, options, errors."""

from collections.abc import Callable

from cantons.clock.online import online
from cantons.clock.rounds import rounds
from cantons.protocol import Recipe

CLOCKS: dict[str, Callable[..., Recipe]] = {"online": online, "rounds": rounds}

__all__ = ["CLOCKS", "online", "rounds"]
