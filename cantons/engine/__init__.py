"""Owns: running rounds and steps, and where. May import: protocol, errors."""

from collections.abc import Callable

from cantons.engine.batched import Batched
from cantons.engine.local import Local
from cantons.engine.plain import Plain
from cantons.protocol import Engine

# The engines a study can name.
ENGINES: dict[str, Callable[..., Engine]] = {engine.name: engine for engine in (Local, Plain)}

__all__ = ["ENGINES", "Batched", "Local", "Plain"]
