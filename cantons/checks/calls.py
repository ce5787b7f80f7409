"""Errors inside an algorithm's own functions: which function of the protocol was called, and where it broke."""

from __future__ import annotations

import functools
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cantons.protocol import Algorithm, Averages, Stack, Sum

PACKAGE = Path(__file__).parents[1]
# Files whose lines are nobody's algorithm: ours, those of installed packages, and Python's own.
OTHERS = tuple(str(PACKAGE / part) for part in (
    "checks", "data", "engine", "models", "problem", "study", "protocol", "recipe.py", "shuffle.py")) + tuple(
    sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
FUNCTIONS = ("init_server", "init_client", "broadcast", "client_update", "server_update", "model", "receive", "request",
             "select", "note", "score", "idle_upload", "adopt")
# What to do about mistakes that JAX names by their kind.
ADVICE = {
    "TracerBoolConversionError": "a value that is computed cannot decide an `if` or a `while`: use jnp.where or "
                                 "jax.lax.cond",
    "TracerArrayConversionError": "a value that is computed cannot go through NumPy: use jax.numpy",
    "TracerIntegerConversionError": "a value that is computed cannot be a Python index or length: use jax.numpy, or "
                                    "jax.lax.dynamic_slice",
    "ConcretizationTypeError": "a value that is computed cannot be a plain Python number or a shape: keep it an array",
    "UnexpectedTracerError": "a value of one call was kept for another: put it into a state",
}


class CallError(Exception):
    """A function of the algorithm raised an error of its own."""


def name_calls(algorithm: Algorithm) -> Algorithm:
    """The same algorithm, whose errors say which of its functions was called and where it broke."""
    named: dict[str, Any] = {name: _named(name, getattr(algorithm, name)) for name in FUNCTIONS
             if getattr(algorithm, name) is not None}
    return algorithm._replace(aggregate=_named_aggregate(algorithm.aggregate), **named)


def _named_aggregate(aggregator: Any) -> Any:
    if isinstance(aggregator, Sum):
        return Sum(_named("aggregate.lift", aggregator.lift), _named("aggregate.finish", aggregator.finish))
    if isinstance(aggregator, Stack):
        return Stack(_named("aggregate.reduce", aggregator.reduce))
    if isinstance(aggregator, Averages):
        return aggregator._replace(read=_named("aggregate.read", aggregator.read))
    return aggregator


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any) -> Any:
        try:
            return function(*given)
        except CallError:
            raise
        except Exception as error:
            raise CallError(describe_error(f"`{name}`", error, function)) from error

    return call


def describe_error(who: str, error: Exception, function: Callable[..., Any] | None = None) -> str:
    """Who raised what, where in the user's files, and what to do."""
    said = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else "no word of explanation"
    place = _place(error, function)
    advice = next((ADVICE[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in ADVICE), "mend that line")
    return f"{who} raised {type(error).__name__}{f' at {place}' if place else ''}: {said}; {advice}."


def _place(error: Exception, function: Callable[..., Any] | None) -> str:
    """file:line of the innermost line that is the user's; else where the function begins."""
    code = getattr(function, "__code__", None)
    own = code.co_filename if code is not None else None
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, own)]
    if frames:
        return f"{_short(frames[-1].filename)}:{frames[-1].lineno}"
    return f"{_short(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def _is_users(file: str, own: str | None) -> bool:
    return file == own or not (file.startswith(("<", *OTHERS)))


def _short(file: str) -> str:
    """A path as short as it can be said from here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
