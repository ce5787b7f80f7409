"""What Python users give to the maker of a problem in the place of data or of a model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from cantons.errors import InputError, shown, with_article
from cantons.models import ARCHITECTURES

Maker = TypeVar("Maker", bound=Callable[..., Any])


def made_for_data(make: Maker) -> Maker:
    """Decorate a maker of problems: what is no data, and a model that was named or not called, is refused."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def make_checked(*args: Any, **options: Any) -> Any:
        given = signature.bind_partial(*args, **options).arguments
        data = given.get("data")
        if "data" in given and not hasattr(type(data), "classes") and not hasattr(data, "classes"):
            raise InputError(f"{make.__name__} is made for data, and this is {_described(data)}; give "
                             f"{_call(data) if inspect.isfunction(data) else 'a federation, such as ct.digits()'}.")
        for name, value in given.items():
            if not name.endswith("model") or value is None:  # some may be left open
                continue
            if not callable(value) or value in ARCHITECTURES.values():
                instead = _call(value) if callable(value) else f"ct.{value if value in ARCHITECTURES else 'mlp'}()"
                raise InputError(f"{name} is {_described(value)}; give {instead}.")
        return make(*args, **options)

    return make_checked  # type: ignore[return-value]


def _described(value: Any) -> str:
    if inspect.isfunction(value):
        return f"the function {value.__name__} itself"
    return f"the text {shown(value)}" if isinstance(value, str) else with_article(type(value).__name__)


def _call(function: Callable[..., Any]) -> str:
    return f"what it makes: {function.__name__}(...)"
