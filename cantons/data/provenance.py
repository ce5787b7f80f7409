"""Data that remembers how it was made, so that a run folder can make it again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec

from cantons.data.federation import Federation

P = ParamSpec("P")


def recorded(make: Callable[P, Federation]) -> Callable[P, Federation]:
    """Fill `spec` with the maker's name and every option; paths are made absolute."""
    signature = inspect.signature(make)
    ours = make.__module__.startswith("cantons.")
    name = make.__name__ if ours else f"{make.__module__}:{make.__name__}"

    @functools.wraps(make)
    def made(*args: P.args, **options: P.kwargs) -> Federation:
        given = signature.bind(*args, **options)
        given.apply_defaults()
        data = make(*args, **options)
        plain = {option: str(Path(value).resolve()) if option == "path" else value
                 for option, value in given.arguments.items()}
        return replace(data, spec={"name": name, **plain})

    return made
