"""A small share of `make fuzz`: the same cases as its first ones, in this process."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fuzz import commands, studies, values
from fuzz.cases import KINDS, World, prepare_shared

from cantons.cli.main import cantons
from cantons.study.registry import REGISTRY

NUMBERS = range(8, 98)  # the first eight are trained, which `make fuzz` does


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    shared = tmp_path_factory.mktemp("shared")
    prepare_shared(shared)
    return World(shared, tmp_path_factory.mktemp("own"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_what_is_odd_works_or_is_refused_in_a_sentence(world, kind):
    verdicts = [world.play(0, number) for number in NUMBERS if KINDS[number % len(KINDS)] == kind]
    failed = [f"case {each.number}: {each.why}\n{each.case}" for each in verdicts if each.outcome == "failed"]
    assert not failed, f"{len(failed)} of {len(verdicts)}, see tests/fuzz/run.py --case N\n" + "\n".join(failed)


def test_the_same_number_is_the_same_case(world):
    assert [world.draw(3, number) for number in range(16)] == [world.draw(3, number) for number in range(16)]
    assert world.draw(3, 0) != world.draw(4, 0)


def test_every_part_is_tried(world):
    silent = {(kind, name) for kind, parts in REGISTRY.items() for name in parts}
    for number in range(0, 2000, 2):
        text = world.draw(0, number)
        silent = {(kind, name) for kind, name in silent if f'"{name}"' not in text}
        if not silent:
            break
    assert not silent, f"no study names {silent}"


def test_an_option_has_values_of_its_type():
    assert values.of_type(int | None, []).validate() is None
    assert studies.as_toml({"rounds": 2, "data": {"name": "a\"b", "x": [1.5, True]}}) == (
        'rounds = 2\n[data]\nname = "a\\"b"\nx = [1.5, true]\n')
    assert set(commands.by_kind) - {"kind"} <= {
        parameter.name for command in cantons.commands.values() for parameter in command.params} | {"kind"}
