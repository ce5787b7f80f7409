"""Every option of every part has a range, declared where the option is, and what is outside is refused when read."""

import math
from collections.abc import Mapping, Sequence
from typing import get_args, get_origin

import pytest

import cantons as ct
from cantons.options import options_of
from cantons.ranges import HUGE, INT32, TINY, Named, Range, alternatives, note
from cantons.study.describe import describe_part
from cantons.study.read import TAKES_FIRST, check_part
from cantons.study.registry import REGISTRY

NEEDED = {"path": "x", "targets": "y", "inputs": "x", "client": "who", "time": "when", "clients": 2, "vocabulary": 2,
          "source": {"name": "digits"}, "model": "linear", "fraction": 0.5, "labels": [0],
          "names": ["a", "b"], "attack": {"name": "sign_flip"}}
OF_GROUPS = {"labels": {"a": [0], "b": [1]}, "clients": {"a": ["x"], "b": ["y"]}}
PARTS = [(kind, name) for kind, known in REGISTRY.items() for name in known]


def options(kind, name):
    return options_of(REGISTRY[kind][name], given=int(kind in TAKES_FIRST)).parameters


def numbers(hint):
    """Every kind of number that an option may be, with the words that make an option of it: (type, wrap)."""
    for choice in alternatives(hint):
        named = note(choice, Named)
        if get_origin(choice) in (list, Sequence):
            yield from ((inner, lambda value, wrap=wrap: [wrap(value)]) for inner, wrap in numbers(get_args(choice)[0]))
        elif get_origin(choice) in (dict, Mapping):
            yield from ((inner, lambda value, wrap=wrap: {"a": wrap(value)}) for inner, wrap in numbers(
                get_args(choice)[1]))
        elif named is not None:
            for each, build in named.known.items():
                own = options_of(build).parameters
                rest = {option.name: 1.5 for option in own if option.default is option.empty}
                for option in own:
                    yield from ((inner, lambda value, each=each, rest=rest, option=option, wrap=wrap: {
                        **rest, "name": each, option.name: wrap(value)}) for inner, wrap in numbers(option.annotation))
        elif choice in (int, float) or note(choice, Range) is not None:
            yield choice, lambda value: value


def ranged(kind, name):
    """Every ranged number among a part's options: (option, type, range, wrap)."""
    for option in options(kind, name):
        for choice, wrap in numbers(option.annotation):
            yield option.name, get_args(choice)[0], note(choice, Range), wrap


def outside(kind, span):
    if kind is int:
        return [span.least - 1, span.most + 1, 2**63, 10**400]
    return [math.nan, span.least if span.above else math.nextafter(span.least, -math.inf), 1e-320,
            *([] if span.most == math.inf else [math.inf, span.most if span.below else 1.01 * span.most, 10**400])]


def inside(kind, span):
    if kind is int:
        return [span.least, span.most]
    small = max(span.least * 1.01, TINY) if span.above else span.least
    return [small, 0.99 * span.most if span.below else min(span.most, HUGE)]


def table(kind, name, **chosen):
    known = {**NEEDED, **(OF_GROUPS if kind == "groups" else {})}
    needed = {option.name: known[option.name] for option in options(kind, name) if option.default is option.empty}
    return {"name": name, **needed, **chosen}


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_every_number_has_a_range(kind, name):
    for option in options(kind, name):
        for choice, _ in numbers(option.annotation):
            assert note(choice, Range) is not None, f"{option.name} of {name} is {choice}; give it a type of ranges.py"


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_what_is_outside_is_refused_when_read_and_what_is_inside_is_not(kind, name):
    for option, number, span, wrap in ranged(kind, name):
        for value in outside(number, span):
            with pytest.raises(ct.InputError, match=rf"^s.toml: {kind}.{option}.*; give "):
                check_part("s.toml", kind, table(kind, name, **{option: wrap(value)}))
    for option, number, span, wrap in ranged(kind, name):
        if not isinstance(wrap(1), dict):  # the options of a table may be at odds with each other
            for value in inside(number, span):
                check_part("s.toml", kind, table(kind, name, **{option: wrap(value)}))


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_what_is_outside_is_refused_in_python_too(kind, name):
    for option, number, span, wrap in ranged(kind, name):
        chosen = {key: value for key, value in table(kind, name).items() if key not in ("name", "model")}
        given = [None] * (kind in TAKES_FIRST) + [None] * ("model" in table(kind, name))
        for value in outside(number, span):
            with pytest.raises(ct.InputError, match=rf"{option}.* is .*; give "):
                REGISTRY[kind][name](*given, **{**chosen, option: wrap(value)})


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in PARTS if kind in ("algorithm", "clock")])
def test_whole_numbers_of_any_length_may_stand_for_real_ones(kind, name):
    for option, number, span, wrap in ranged(kind, name):
        if number is float and span.most > 2**40 and wrap(1) == 1:
            for value in (3, 2**31, 2**40):
                chosen = REGISTRY[kind][name](**{option: value}).options[option]
                assert chosen == value and (isinstance(chosen, float) or value == 3), f"{option} of {name}"


@pytest.mark.parametrize(("value", "sentence"), [
    ({"name": "constant", "value": "a"}, "algorithm.step_size.value = 'a'; give a number above 0"),
    ({"name": "constant", "value": -1}, "algorithm.step_size.value = -1; give a number above 0"),
    ({"name": "linear", "peak": 1.0, "rounds": 2**31}, f"step_size.rounds = {2**31}; give 1 or more, up to {INT32}"),
    ({"name": "constant"}, "algorithm.step_size: constant needs the option value"),
    ({"nam": "constant"}, "algorithm.step_size: step_size has no name; say which schedule it is"),
    ({"name": 3}, "algorithm.step_size: unknown schedule '3'"),
])
def test_a_schedule_is_a_table_of_its_own(value, sentence):
    with pytest.raises(ct.InputError) as error:
        check_part("s.toml", "algorithm", {"name": "fedavg", "step_size": value})
    assert sentence in str(error.value)


@pytest.mark.parametrize(("chosen", "sentence"), [
    ({"mirror": {"name": "quadratic", "matrix": "a"}}, "algorithm.mirror.matrix = 'a'; give a finite number"),
    ({"mirror": {"name": "quadratic", "matrix": [[1.0], [2.0, 3.0]]}}, "algorithm.mirror.matrix"),
    ({"within": {"name": "box", "low": "a", "high": 1}}, "algorithm.within.low = 'a'; give a number"),
    ({"within": {"name": "ball", "radius": 1, "norm": "l4"}}, "algorithm.within.norm = 'l4'; give one of 'l1'"),
])
def test_maps_and_sets_are_tables_of_their_own(chosen, sentence):
    with pytest.raises(ct.InputError) as error:
        check_part("s.toml", "algorithm", {"name": "fedomd", **chosen})
    assert sentence in str(error.value)


def test_data_made_from_other_data_is_checked_to_the_bottom():
    with pytest.raises(ct.InputError, match=r"data.source.clients = 0; give 1 or more"):
        check_part("s.toml", "data", {"name": "classification_bandit", "source": {"name": "digits", "clients": 0}})


def test_describe_shows_the_range():
    (described,) = describe_part("drifting_targets")
    shown = {option.name: option.type for option in described.options}
    assert shown["clients"] == "int, 1 or more" and shown["spread"] == "float, above 0"
    assert shown["kind"] == "'alternating', 'drifting', 'switching', 'iid'"


@pytest.mark.parametrize(("options", "sentence"), [
    ({"rounds": 2**31}, f"rounds is {2**31}; give 1 or more, up to {INT32}"),
    ({"rounds": 1, "seed": 2**32}, f"seed is {2**32}; give a number from 0 to {2**32 - 1}"),
    ({"rounds": 1, "keep": 1.5}, "keep is 1.5; give a whole number, 1 or more"),
])
def test_settings_have_ranges_in_python_too(numbers, least_squares, options, sentence):
    with pytest.raises(ct.InputError, match=sentence):
        ct.run(least_squares, numbers, ct.fedavg(), **options)
