"""Owns: regret, what it is held against, and its bounds. May import: data, mirror, solve, protocol, errors."""

from cantons.regret.measure import regret_of

__all__ = ["regret_of"]
