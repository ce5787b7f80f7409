"""What is being done just now: those who do it say so, and whoever watches listens. Nobody has to do either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

READING, COMPILING, TRAINING = "reading", "compiling", "training"
EVALUATING, FITTING = "evaluating", "fitting new clients"  # these are fitted to be evaluated

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def enter(phase: str) -> None:
    """Say what comes now."""
    listener = _listener.get()
    if listener is not None:
        listener(phase)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Hear what is entered in this block.

    >>> heard = []
    >>> with listening(heard.append):
    ...     enter(COMPILING)
    >>> enter(TRAINING)
    >>> heard
    ['compiling']
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
