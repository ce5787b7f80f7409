"""Owns: who takes part in a round, when, on which device. May import: protocol, errors."""

from cantons.engine.local import Local

__all__ = ["Local"]
