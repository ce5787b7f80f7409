"""Owns: who takes part when. May import: protocol, shuffle, recipe, errors."""

from cantons.clock.rounds import rounds

CLOCKS = {"rounds": rounds}

__all__ = ["CLOCKS", "rounds"]
