"""Data that remembers how it was made, so that a run folder can make it again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, get_origin

from cantons.data.federation import Federation
from cantons.data.read.files import is_pattern, map_paths, reading
from cantons.errors import InputError, bind
from cantons.options import options_of
from cantons.ranges import alternatives
from cantons.recipe import mark


def recorded(make: Callable[..., Federation]) -> Callable[..., Federation]:
    """Mark a maker of data as a part that studies may name; its data remember its name and options in `spec`.

    Paths are made absolute. The fields of a group, such as `division: Flat[Division]`, are options of their own for
    whoever calls the maker.
    """
    options, own = options_of(make), inspect.signature(make)
    signature = inspect.Signature(options.parameters, return_annotation=Federation)
    several = any(get_origin(choice) is list for option in options.parameters if option.name == "path"
                  for choice in alternatives(option.annotation))
    ours = make.__module__.startswith("cantons.")
    name = make.__name__ if ours else f"{make.__module__}:{make.__name__}"

    @functools.wraps(make)
    def make_recorded(*args: Any, **chosen: Any) -> Federation:
        given = bind(signature, name, args, chosen)
        given.arguments.update(options.checked(given.arguments))
        given.apply_defaults()
        gathered = inspect.BoundArguments(own, options.gathered(given.arguments))
        path = given.arguments.get("path")
        # Of several files, each is named by whoever reads it.
        one = path is not None and not (several and (isinstance(path, list | tuple) or is_pattern(path)))
        with reading(path) if one else nullcontext():  # type: ignore[arg-type]
            data = make(*gathered.args, **gathered.kwargs)
        if not isinstance(data, Federation):
            raise InputError(f"{name} returned a {type(data).__name__}; return a Federation.")
        plain = {option: map_paths(lambda each: str(Path(each).resolve()), value) if option == "path" else value
                 for option, value in given.arguments.items()}
        return replace(data, spec={"name": name, **plain})

    make_recorded.__signature__ = signature  # type: ignore[attr-defined]
    return mark("data", make_recorded)
