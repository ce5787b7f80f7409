"""A state is all there is: saved and loaded, it goes on as if nothing had happened."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cantons.checks.case import Case
from cantons.checks.compare import difference
from cantons.checks.finding import Failed
from cantons.study.checkpoint import Checkpoints


def a_state_saved_and_loaded_goes_on_to_the_same_bits(case: Case) -> None:
    stage, warm = case.stage, case.warm
    with tempfile.TemporaryDirectory() as folder:
        Checkpoints(Path(folder)).save(int(warm.round), warm, {})
        saved = Checkpoints(Path(folder)).newest(stage.start)
    assert saved is not None
    loaded, _, complaints = saved
    if complaints:
        raise Failed(f"its state cannot be saved: {complaints[0]}; keep nothing but arrays and numbers in states.")
    found = difference(warm, loaded)
    if found:
        raise Failed(f"a state that was saved and loaded is another one: {found}; keep nothing but arrays and numbers "
                     "in states.")
    calm, resumed = (stage.advance(state, 7) if case.clocks else stage.play(state, (0, 3), stage.everybody, rounds=3)
                     for state in (warm, loaded))
    found = difference(calm, resumed)
    if found:
        raise Failed(f"a run that was saved and loaded ends differently: {found}; keep all that a run remembers in the "
                     "states of the server and of the clients.")
