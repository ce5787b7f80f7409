"""Memory is estimated before it is taken."""

import os
from pathlib import Path

import numpy as np
import pytest

from cantons import memory
from cantons.errors import InputError


def test_what_does_not_fit_is_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 24 * 2**30)
    memory.require(24 * 2**30, "a small thing")
    with pytest.raises(InputError, match="^data of 5 clients needs 48 GiB of memory, there are 24; make it smaller.$"):
        memory.require(48 * 2**30, "data of 5 clients")


def test_a_container_may_have_less_than_the_machine(monkeypatch, tmp_path):
    for name, text in (("max", "1000"), ("current", "700"), ("stat", "anon 500\ninactive_file 100\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.available() == 400
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available() > 2**20


def test_where_the_system_tells_nothing_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "_of_machine", lambda: None)
    monkeypatch.setattr(memory, "_of_container", lambda: None)
    memory.require(2**80, "anything")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell how much a process holds")
def test_what_was_freed_goes_back_to_the_system():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    held = [np.ones(6000) for _ in range(4000)]  # 183 MiB in pieces that the C library keeps for itself
    kept = held[::100] + held[-1:]
    del held
    before = resident()
    memory.give_back()
    assert resident() < before - 100 and all(piece.sum() == 6000 for piece in kept)
