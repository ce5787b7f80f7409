"""Which tests `make test` leaves to `make test-all`: the slowest, which take most of the time.

    pytest --quick         without the tests that slow.txt names; one that it does not know yet is run
    pytest --find-slow     with all tests, and slow.txt is written anew
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")
QUICK = 0.3  # of the time of all tests, for those that `make test` runs

spent: Counter[str] = Counter()  # seconds of each test


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="leave out the tests that tests/slow.txt names")
    parser.addoption("--find-slow", action="store_true", help="write tests/slow.txt anew; run all tests with it")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--quick"):
        slow = set(LIST.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in slow])
        items[:] = [item for item in items if item.nodeid not in slow]


def pytest_runtest_logreport(report):
    spent[report.nodeid] += report.duration


def pytest_sessionfinish(session):
    if session.config.getoption("--find-slow") and not hasattr(session.config, "workerinput"):
        LIST.write_text("\n".join(sorted(slowest(spent))) + "\n")


def slowest(spent: Counter[str]) -> list[str]:
    """The fewest tests without which the others take their part of the time.

    >>> slowest(Counter(docs=50.0, kills=10.0, files=20.0, names=1.0))
    ['docs', 'files']
    """
    left, found = sum(spent.values()) * (1 - QUICK), []
    for test, seconds in spent.most_common():
        if left <= 0:
            break
        found.append(test)
        left -= seconds
    return found
