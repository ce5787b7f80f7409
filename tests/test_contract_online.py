"""What every online algorithm must do, whoever wrote it: the registry is read, so a new file is covered at once.

The properties themselves are `cantons.checks`; here stands what exactly travels.
"""

import functools
import re

import pytest

from cantons.algorithm import ONLINE
from cantons.checks.case import fitting_case
from cantons.checks.contract import CHECKS, find, sentence_of
from cantons.metrics import leaves

pytestmark = pytest.mark.usefixtures("float64")

OPTIONS = {"fedres_bandit": {"every": 2}}

# What travels, down and up; {shared} and {private} stand for every array of that part of the model.
EXAMPLES = ["features", "outputs", "targets"]
TRAVELS = {
    "fedomd": (["{shared}"], ["{shared}"]),
    "fedres_bandit": (["{shared}"], ["used", "example/features", "example/outputs", "example/targets"]),
    "fedres_erm": (["{shared}"], ["features", "targets", "change"]),
    "fedres_online_sgd": (["{shared}"], EXAMPLES),
    "fictitious_play": (["{shared}"], EXAMPLES),
    "online_central": (["{shared}"], EXAMPLES),
    "online_independent": ([], []),
}

each_algorithm = pytest.mark.parametrize("name", sorted(ONLINE))


@functools.cache  # compiled once for all the checks that look at it
def case(name):
    return fitting_case(ONLINE[name](**OPTIONS.get(name, {})))[1]


@pytest.mark.parametrize("check", CHECKS["stream"], ids=sentence_of)
@each_algorithm
def test_every_check_passes(name, check):
    found = find(check, case(name))
    assert found.status == "ok", found.sentence


@each_algorithm
def test_only_what_is_listed_travels(name):
    session = case(name).stage.session
    state = session.begin()
    parts = {"shared": leaves(session._parts[0]), "private": leaves(session._parts[1])}
    for found, listed in zip(session.travel(state), TRAVELS[name], strict=True):
        wanted = [re.sub(r"\{(\w+)\}", path, line) for line in listed
                  for path, *_ in (parts[re.search(r"\{(\w+)\}", line)[1]] if "{" in line else [("",)])]
        assert sorted(path for path, *_ in leaves(found)) == sorted(wanted)
