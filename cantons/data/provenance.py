"""Data that remembers how it was made, so that a run folder can make it again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from cantons.data.federation import Federation
from cantons.data.read.files import reading
from cantons.errors import InputError
from cantons.options import options_of
from cantons.recipe import mark


def recorded(make: Callable[..., Federation]) -> Callable[..., Federation]:
    """Mark a maker of data as a part that studies may name; its data remember its name and options in `spec`.

    Paths are made absolute. The fields of a group, such as `division: Flat[Division]`, are options of their own for
    whoever calls the maker.
    """
    options, own = options_of(make), inspect.signature(make)
    signature = inspect.Signature(options.parameters, return_annotation=Federation)
    ours = make.__module__.startswith("cantons.")
    name = make.__name__ if ours else f"{make.__module__}:{make.__name__}"

    @functools.wraps(make)
    def make_recorded(*args: Any, **chosen: Any) -> Federation:
        given = signature.bind(*args, **chosen)
        given.arguments.update(options.checked(given.arguments))
        given.apply_defaults()
        gathered = inspect.BoundArguments(own, options.gathered(given.arguments))
        with reading(given.arguments["path"]) if "path" in given.arguments else nullcontext():
            data = make(*gathered.args, **gathered.kwargs)
        if not isinstance(data, Federation):
            raise InputError(f"{name} returned a {type(data).__name__}; return a Federation.")
        plain = {option: str(Path(value).resolve()) if option == "path" else value
                 for option, value in given.arguments.items()}
        return replace(data, spec={"name": name, **plain})

    make_recorded.__signature__ = signature  # type: ignore[attr-defined]
    return mark("data", make_recorded)
