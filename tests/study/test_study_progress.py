"""Progress: what is shown where, which phases have names, and a time left that counts evaluations."""

import io
import itertools
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cantons as ct
from cantons.phases import COMPILING, EVALUATING, FITTING, READING, TRAINING
from cantons.study import progress
from cantons.study.progress import Bar, Cell, Lines, Watcher, evaluations_left, watching
from cantons.study.read import read_study


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Screen:
    """Remembers what it is shown."""

    def __init__(self):
        self.shown = []

    def show(self, standing):
        self.shown.append(standing)

    def close(self):
        pass


def play(watcher, clock, rounds, every, block, round_takes, evaluation_takes, first=0):
    """A run of known costs, told as the loop tells it; (time, standing) after each block."""
    def evaluate(done):
        watcher.entered(EVALUATING)
        clock.now += evaluation_takes / 2
        watcher.entered(FITTING)
        clock.now += evaluation_takes / 2
        watcher.evaluated({"round": done, "test.personal.accuracy.mean": 0.5})

    watcher.started({"name": "run", "evaluate_every": every, "rounds": rounds})
    for phase in (READING, COMPILING):
        watcher.entered(phase)
        clock.now += 1000.0
    if not first:
        evaluate(0)
    watcher.entered(COMPILING)
    clock.now += 1000.0
    done, times = first, []
    while done < rounds:
        until = min(done + block, rounds, done + every - done % every)
        watcher.entered(TRAINING)
        clock.now += (until - done) * round_takes
        done = until
        watcher.advanced(done, rounds)
        times.append((clock.now, watcher._standing))
        if done % every == 0 or done == rounds:
            evaluate(done)
    return times


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 9), st.floats(0.01, 10), st.floats(0, 100))
def test_the_time_left_is_that_of_the_rounds_and_of_the_evaluations_to_come(rounds, every, block, one, evaluation):
    clock, screen = Clock(), Screen()
    for _ in range(2):  # the second run owes nothing to the first
        times = play(Watcher(screen, clock), clock, rounds, every, block, one, evaluation)
        assert times[0][1].left is None  # nothing is known yet
        for now, standing in times[1:]:
            assert standing.left == pytest.approx(clock.now - now, abs=1e-6 * clock.now)


def test_a_resumed_run_counts_the_rounds_of_this_sitting():
    clock = Clock()
    times = play(Watcher(Screen(), clock), clock, 100, 10, 4, 2.0, 30.0, first=50)
    for now, standing in times[3:]:  # the first evaluation has been seen
        assert standing.left == pytest.approx(clock.now - now)


@given(st.integers(1, 99), st.integers(1, 99), st.integers(0, 99))
def test_evaluations_left_are_those_after_so_many_rounds_and_the_last(rounds, every, done):
    after = {*range(0, rounds, every), rounds}
    assert evaluations_left(done, rounds, every) == sum(stop > done for stop in after)


def test_without_a_terminal_there_is_a_line_a_minute(capsys):
    clock = Clock()
    play(Watcher(Lines(clock), clock), clock, rounds=100, every=10, block=1, round_takes=7.0, evaluation_takes=20.0)
    lines = capsys.readouterr().err.splitlines()
    minutes = (100 * 7 + 10 * 20) / 60
    assert minutes - 3 <= len([line for line in lines if "round 0 " not in line]) <= minutes
    assert lines[-1].startswith("run: round ") and "accuracy 0.500 (round " in lines[-1] and "left" in lines[-1]


def test_a_notebook_has_one_line_that_is_written_over():
    clock, cells = Clock(), []

    class Handle:
        def update(self, shown, raw):
            cells[-1] = shown

    def display(shown, raw, display_id):
        cells.append(shown)
        return Handle()

    screen = Cell(display, clock)
    play(Watcher(screen, clock), clock, 5, 2, 1, 1.0, 1.0)
    screen.close()
    (cell,) = cells
    assert cell["text/plain"] == "run: round 5 of 5, accuracy 0.500 (round 5)"
    assert '<progress max="5" value="5">' in cell["text/html"]


def test_where_it_runs_decides_what_is_shown(monkeypatch):
    rich = pytest.importorskip("rich.console")
    kinds = {}
    for place, terminal, kernel in (("terminal", True, False), ("pipe", False, False), ("notebook", False, True)):
        shell = types.SimpleNamespace(kernel=1) if kernel else None
        modules = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        modules[0].get_ipython, modules[1].display = (lambda shell=shell: shell), print
        monkeypatch.setitem(sys.modules, "IPython", modules[0])
        monkeypatch.setitem(sys.modules, "IPython.display", modules[1])
        monkeypatch.setattr(rich, "Console", lambda terminal=terminal, **_: types.SimpleNamespace(is_terminal=terminal))
        monkeypatch.setattr(progress, "Bar", lambda console: "bar")
        kinds[place] = progress.choose_screen(True)
    assert kinds["terminal"] == "bar"
    assert isinstance(kinds["pipe"], Lines) and isinstance(kinds["notebook"], Cell)


def test_a_bar_shows_the_run_and_is_gone_at_the_end():
    from rich.console import Console

    clock, file = Clock(), io.StringIO()
    bar = Bar(Console(file=file, force_terminal=True, width=120))
    play(Watcher(bar, clock), clock, 5, 2, 1, 1.0, 1.0)
    assert [task.total for task in bar._progress.tasks] == [5] and bar._progress.finished
    bar.close()
    assert "accuracy 0.500" in file.getvalue()


def test_phases_have_names_and_functions_are_told_each_evaluation(capsys, tmp_path):
    """Of a run of a file with new clients; what the user should know is on standard error, unless it is silenced."""
    told = []

    class Listener(ct.Callback):
        def entered(self, phase):
            told.append(phase)

    (tmp_path / "study.toml").write_text(
        'rounds = 4\nevaluate_every = 2\ncohort = 3\nproblem = "logistic"\n'
        'data = { name = "digits", clients = 8, new = 2 }\nalgorithm = { name = "fedavg", step_size = 1e20 }\n')
    study = read_study(tmp_path / "study.toml")
    rows = []
    for shown in (False, None):
        told.clear()
        rows.clear()
        result = study.run(callbacks=[Listener(), rows.append], progress=shown)
        assert rows == result.history
        assert ("a smaller step_size" in capsys.readouterr().err) is (shown is False)
    phases = [phase for phase, _ in itertools.groupby(phase for phase in told if phase != COMPILING)]
    assert phases == [READING, EVALUATING, FITTING] + 2 * [TRAINING, EVALUATING, FITTING]
    assert told.index(COMPILING) < told.index(TRAINING)
    for wrong in (3, "print", ct.Callback):
        with pytest.raises(ct.InputError, match="give a function of an evaluation's row, or a Callback"):
            study.run(callbacks=[wrong])


def test_nothing_is_watched_where_somebody_else_watches():
    with watching(None) as watchers:
        assert watchers == []
