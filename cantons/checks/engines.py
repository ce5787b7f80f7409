"""One answer everywhere: an algorithm does not know how many clients are vectorised, or on how many devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from cantons.checks.case import Case, two_devices
from cantons.checks.compare import difference
from cantons.checks.finding import Failed
from cantons.engine import Local, Plain
from cantons.protocol import State


def blocks_of_any_length_compile_nothing_new(case: Case) -> None:
    stage = case.stage
    session = stage.session
    state = session.advance(stage.restored(stage.start), 1)
    session.evaluate(state)
    with compilations() as found:
        for until in (4, 11):  # blocks of three and of seven rounds
            state = session.advance(state, until)
            session.evaluate(state)
    if found:
        raise Failed(f"later rounds compiled {len(found)} more programs; let no shape and no Python value in a state "
                     "depend on the round.")


def every_way_to_run_a_round_gives_the_same_answer(case: Case) -> None:
    """The plain engine is held against one client after another, all at once, and by threes on two devices."""
    stage = case.stage
    cohorts = stage.everybody, (2, 3, 5), (0, 1, 2, 4, 5)
    plain = case.on(Plain(compile=True))
    expected = plain.play(plain.start, *cohorts, rounds=3)
    watched = stage.play(stage.start, *cohorts, rounds=3)
    _compare("one client after another", expected, watched._replace(clients=watched.clients.state), 1e-12)
    devices = two_devices()
    for words, engine in (("all clients at once", Local(mode="vmap", devices=1)),
                          (f"clients by threes on {devices} devices", Local(group=3, devices=devices))):
        other = case.on(engine)
        _compare(words, expected, other.play(other.start, *cohorts, rounds=3), 1e-12)


def every_way_to_run_a_step_gives_the_same_answer(case: Case) -> None:
    """One client after another is held against pairs of clients on two devices."""
    alone, pairs = (case.on(engine, case.clocks[0]) for engine in (
        Local(mode="scan"), Local(group=2, devices=two_devices())))
    _compare("clients in pairs", alone.advance(alone.start, 10), pairs.advance(pairs.start, 10), 1e-9)


def blocks_of_any_length_are_one_program_and_one_path(case: Case) -> None:
    for clock in case.clocks:
        stage = case.stage if clock is case.clocks[0] else case.on(Local(devices=1), clock)
        session = stage.session
        whole = stage.advance(stage.start, 12)
        state = stage.restored(stage.start)
        with compilations() as programs:
            for until in (1, 2, 5, 12):
                state = session.advance(state, until)
        if programs:
            raise Failed(f"later steps compiled {len(programs)} more programs; let no shape and no Python value in a "
                         "state depend on the step.")
        found = difference(whole, session.whole(state)[0].state)
        if found:
            raise Failed(f"twelve steps at once and in four blocks end differently: {found}; keep all that is "
                         "remembered in the states.")


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """The programs compiled in the block, be they in the persistent cache or not."""
    found: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def _compare(words: str, expected: State, found: State, digits: float) -> None:
    apart = difference(expected, found, digits)
    if apart:
        raise Failed(f"with {words} the result is another one: {apart}; treat one client in `client_update`, let "
                     "`lift` and `finish` follow from what they are given, and use no axis names.")
