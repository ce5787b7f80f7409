"""Values for the options of a part: fitting ones by type, default and docstring, and nonsense of every type."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from cantons.options import options_of
from cantons.study.describe import option_meanings
from cantons.study.read import TAKES_FIRST
from cantons.study.registry import REGISTRY


class Raw(str):
    """Text that stands in a study file as it is."""


NUMBERS = [0, -1, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 10**30, Raw("9" * 5000),
           Raw("0x7fffffffffffffff"), 0.0, -0.0, 0.5, 1.0, 1e-320, 1e-30, 1e30, 3.5e38, 1e308, float("inf"),
           -float("inf"),
           float("nan")]
WORDS = ["", " ", "none", "auto", "x", "0", "1e3", "nan", "\0", "a\0b", "é", "\u202e", "\U0001f600", "a\nb",
         "a" * 10000,
         "a/b", "../../outside/x", "/", ".", "..", "~", "%s", "{x}", "[bold]", "<script>", "²", "--help", "os:system",
         "os.path:join", "json:loads", "builtins:print", "builtins:exit", "math:pi", "sys:exit", ":", "::", ".x:y",
         "x:", ":y",
         "cantons:run", "cantons.study.run:run", "no_such_module:f", "cantons.algorithm:fedavg"]
DEEP = Raw("[" * 3000 + "]" * 3000)
NESTED = Raw("{a=" * 200 + "1" + "}" * 200)
THINGS = [True, False, [], [1], [0], [-1], [2**40], [1.5], [[1]], ["a"], [1, "a"], [{}], {}, {"name": "constant"},
          {"name": "constant", "value": "a"}, {"name": "constant", "value": 1e30}, {"name": "nope"}, {"name": 1},
          {"a": {"b": {"c": 1}}}, {"": 0}, {"probability": 2.0}, {"longest": 2**40}, DEEP, NESTED,
          Raw("1979-05-27"), Raw("1979-05-27T07:32:00Z"), Raw("07:32:00")]

nonsense = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.sampled_from(THINGS).map(copy.deepcopy))
small_counts = st.sampled_from([1, 2, 3, 4, 5, 8])
fractions = st.sampled_from([0.1, 0.2, 0.25, 0.5, 0.9, 1.0, 0.0, 2.0])


def parameters(kind: str, name: str) -> Sequence[inspect.Parameter]:
    """The options of a part of ours."""
    given = int(kind in TAKES_FIRST)  # the data, or the problem
    return [option for option in options_of(REGISTRY[kind][name], given).parameters
            if option.kind is not option.VAR_KEYWORD]


def fitting(option: inspect.Parameter, words: Sequence[str]) -> st.SearchStrategy[Any]:
    """Values that the type of an option asks for; `words` are those that its meaning quotes."""
    given = isinstance(option.default, str | int | float)
    return st.one_of(st.just(option.default), of_type(option.annotation, words)) if given else of_type(
        option.annotation, words)


def odd(hint: Any) -> st.SearchStrategy[Any]:
    """Mostly extreme values of the type that is asked for, and sometimes anything."""
    types = _types(hint)
    numbers = [value for value in NUMBERS if isinstance(value, Raw | (int if types <= {int,
                                                                                       type(None)} else int | float))]
    if types & {int, float}:
        return st.one_of(st.sampled_from(numbers), st.sampled_from(numbers), st.sampled_from(numbers), nonsense)
    return st.one_of(st.sampled_from(WORDS), nonsense) if str in types else nonsense


def _types(hint: Any) -> set[Any]:
    if get_origin(hint) is Annotated:
        return _types(get_args(hint)[0])
    if get_origin(hint) is Union or isinstance(hint, UnionType):
        return set().union(*map(_types, get_args(hint)))
    return {hint}


def of_type(hint: Any, words: Sequence[str]) -> st.SearchStrategy[Any]:
    """Fitting values of one type, as TOML can write them."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return of_type(inner[0], words)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is Union or isinstance(hint, UnionType):
        return st.one_of([of_type(each, words) for each in inner if get_origin(each) is not Callable])
    if hint is bool:
        return st.booleans()
    if hint is int:
        return small_counts
    if hint is float:
        return st.one_of(fractions, small_counts)
    if hint in (str, Path):
        return st.sampled_from(words or ["none", "all", "x"])
    if hint is type(None):
        return st.just("none")
    if hint is dict or origin in (dict, Mapping):
        return st.fixed_dictionaries({"name": st.sampled_from(words or ["constant"])}, optional={
            word: small_counts for word in words[:4] if word != "name"})
    if origin in (list, Sequence):
        return st.lists(of_type(inner[0], words), max_size=3)
    return st.one_of(small_counts, fractions)


def quoted_words(kind: str, name: str, option: str) -> list[str]:
    """What an option's meaning puts in quotes."""
    return re.findall(r'["`]([\w/*-]+)["`]', option_meanings(REGISTRY[kind][name]).get(option, ""))
