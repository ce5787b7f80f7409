"""Owns: regret, what it is held against, and its bounds. May import: data, mirror, solve, protocol, errors."""

from cantons.regret.measure import Regret, regret_of

__all__ = ["Regret", "regret_of"]
