"""`ct.compare`, `ct.sweep` and `ct.report` are the commands: the same options, the same runs, the same table."""

import inspect
import sys
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib import pyplot

import cantons as ct
import cantons.reporting.markup
from cantons.cli import main
from cantons.reporting import read_comparison
from cantons.study.sweep import Outcome

STUDY = """
rounds = 2
cohort = 3
[data]
name = "digits"
clients = 6
[problem]
name = "logistic"
[algorithm]
name = "fedavg"
step_size = 0.5
batch_size = 8
"""
SHELL = ["compare", "study.toml", "--algorithm", "fedavg", "--algorithm", "fedprox,mu=0.25", "--seeds", "1"]


@pytest.fixture(scope="module", autouse=True)
def no_drawings():
    """What a page looks like is looked at elsewhere, and drawing takes most of the time."""
    with mock.patch.object(cantons.reporting.markup, "svg", lambda draw, name: ""):
        yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def parts():
    data = ct.digits(clients=6)
    return ct.logistic(data), data


@pytest.fixture(scope="module")
def study(parts):
    return ct.Study(*parts, ct.fedavg(step_size=0.5, batch_size=8), rounds=2, cohort=3)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A folder in which the shell has compared and swept, and what it printed."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "study.toml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        said = [CliRunner().invoke(main.cantons, words, catch_exceptions=False).stdout for words in (
            SHELL, ["sweep", "study.toml", "--grid", "algorithm.step_size=0.125,0.5", "--seeds", "2"])]
    return folder, *said


@pytest.fixture
def there(shell, monkeypatch):
    monkeypatch.chdir(shell[0])
    return shell[0]


class Rounds(ct.Callback):
    """Counts what is computed."""

    count = 0

    def advanced(self, round, rounds):
        self.count += 1


@pytest.mark.parametrize("name", ["compare", "sweep", "report"])
def test_a_command_and_its_function_have_the_same_options_and_defaults(name):
    options = {word.removeprefix("--").replace("-", "_"): option for option in main.cantons.commands[name].params
               if option.param_type_name == "option" for word in option.opts}
    parameters = inspect.signature(getattr(ct, name)).parameters.values()
    keywords = {parameter.name: parameter.default for parameter in parameters
                if parameter.kind is parameter.KEYWORD_ONLY or parameter.name == "grid"}
    assert options.keys() == keywords.keys() - {"callbacks", "progress"}
    for key, option in options.items():
        default = keywords[key]
        if isinstance(default, int | str) and default is not False:
            assert str(option.default) == str(default), key


@pytest.mark.parametrize("made, algorithms", [("python", ["fedavg", "fedprox,mu=0.25"]), ("file", [
    ct.fedavg(step_size=0.5, batch_size=8), ct.fedprox(mu=0.25, step_size=0.5, batch_size=8)])])
def test_a_comparison_in_python_is_the_one_of_the_shell(shell, there, study, made, algorithms):
    """Its runs are those that are there, so nothing is computed, and its table is what was printed."""
    rounds = Rounds()
    found = ct.compare("study.toml" if made == "file" else study, algorithm=algorithms, seeds=1, callbacks=[rounds])
    assert rounds.count == 0
    lines = [line.rstrip() for line in shell[1].splitlines()]
    assert str(found).splitlines() == lines and lines[-1] == f"report: {found.report}"
    assert ct.report(*found.folders, out="other.html").rows == found.rows
    frame, axes = found.frame(), found.plot()
    assert list(frame["method"]) == ["fedavg", "fedprox, mu=0.25"]
    ends = [line.get_ydata()[-1] for line in axes.lines if len(line.get_ydata()) > 1]
    np.testing.assert_allclose(ends, frame["personal"])
    assert all(f"{value:.3f}" in found._repr_html_() for value in frame["personal"])
    with pytest.raises(ct.InputError, match=r"Did you mean 'test\.shared\.accuracy\.mean'"):
        found.plot("test.shared.acuracy.mean")


def test_text_is_text_in_a_notebook_too(monkeypatch):
    """There rich shows what it is told to print, beside what the cell shows."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    found = ct.Sweep([Outcome({"algorithm.x": 1}, 3.0, 0.1, 0.5, "")], "validation", "loss", 2, None)
    with mock.patch("rich.jupyter.display") as shown:
        assert "3.000" in str(found)
    shown.assert_not_called()


@pytest.mark.parametrize("made", ["file", "python"])
def test_a_sweep_in_python_is_the_one_of_the_shell(shell, there, study, made):
    rounds = Rounds()
    found = ct.sweep("study.toml" if made == "file" else study, {"algorithm.step_size": np.array([0.125, 0.5])},
                     seeds=2, out="results/sweep-study", callbacks=[rounds])
    assert rounds.count == 0
    lines = [line.rstrip() for line in shell[2].splitlines()]
    assert str(found).splitlines() == lines[:-2]
    assert lines[-2] == f"best: --set algorithm.step_size={found.best['algorithm.step_size']}"
    frame, axes = found.frame(), found.plot()
    assert dict(frame.iloc[0][["algorithm.step_size"]]) == found.best
    drawn = dict(zip(*axes.lines[0].get_data(), strict=True))
    assert drawn == dict(zip(frame["algorithm.step_size"], frame["validation"], strict=True))


@pytest.mark.parametrize("values", [[0.5, 0.01, 0.1], ["b", "c", "a"], [True, False, 3]])
def test_a_plot_of_a_sweep_has_each_points_score_at_its_value(values):
    """Points without a number are left out, and said below the table."""
    points = [Outcome({"algorithm.x": value}, score, 0.1, 0.5, "") for value, score in zip(values, (3.0, 2.0, 1.0),
                                                                                          strict=True)]
    found = ct.Sweep([*points, Outcome({"algorithm.x": 9.0}, np.nan, np.nan, np.nan, "failed")], "validation", "loss",
                     2, None)
    axes = found.plot()
    across, up = axes.lines[0].get_data()
    if values[0] == 0.5:
        assert dict(zip(across, up, strict=True)) == {0.5: 3.0, 0.01: 2.0, 0.1: 1.0}
        assert list(across) == sorted(across) and axes.get_xscale() == "log"
    else:
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert [(names[place], score) for score, place in zip(across, up, strict=True)] == [
            (f"x={value}", score) for value, score in zip(values, (3.0, 2.0, 1.0), strict=True)]
    assert str(found).endswith("{'algorithm.x': 9.0}: failed") and "failed" in found._repr_html_()


@pytest.mark.parametrize("values, told", [
    ([0.5, 0.1, 0.2], True), ([0.1, 0.2, 0.5], True), ([0.2, 0.1, 0.5], False),
    ([0.5, 0.1], False), ([True, False, True], False), (["c", "a", "b"], False)])
def test_a_sweep_says_when_the_best_value_is_at_the_edge_of_what_was_tried(values, told):
    """Of two values each is at an edge, and names have no order: nothing is said of either."""
    found = ct.Sweep([Outcome({"algorithm.x": value}, 3.0 - place, 0.1, 0.5, "") for place, value in enumerate(values)],
                     "validation", "accuracy", 2, None)
    sentence = f"The best algorithm.x, {values[0]}, is at the edge of what was tried: values beyond might be better."
    assert found.edges == ([sentence] if told else [])
    assert (sentence in str(found)) is told and (sentence in found._repr_html_()) is told


def test_methods_may_have_problems_of_their_own_and_go_by_their_names(parts, tmp_path):
    """What two studies have in common is their data; a result of either can be reported on."""
    one, other = (ct.Study(problem, parts[1], ct.fedavg(), rounds=1, name=name) for name, problem in (
        ("plain", parts[0]), ("regularised", ct.logistic(parts[1], l2=0.5))))
    found = ct.compare(one, other, seeds=1, out=tmp_path / "out")
    assert [row["method"] for row in found.rows] == ["plain", "regularised"]
    changed = one.changed({"algorithm.step_size": 0.5}), other
    with pytest.raises(ct.InputError, match=r"holds another study: its algorithm\.step_size is 0\.1, here it is 0\.5"):
        ct.compare(*changed, seeds=1, out=tmp_path / "out")
    anew = ct.compare(*changed, seeds=1, out=tmp_path / "out", overwrite=True)
    assert anew.groups[0].study["algorithm"]["step_size"] == 0.5 and anew.rows[0] != found.rows[0]
    assert anew.rows[1] == found.rows[1]  # its times, too: it was not run again
    result, found = changed[0].run(out=found.folders[0], resume=True), anew
    alone = ct.report(result)
    assert alone.report == found.folders[0] / "report.html"
    assert alone.rows[0]["personal"] == found.rows[0]["personal"] == result.final["test.personal.accuracy.mean"]


def test_a_changed_study_is_the_study_made_with_that_value(study, parts):
    changed = study.changed({"algorithm.step_size": 0.25, "rounds": 3, "name": "x"})
    made = ct.Study(*parts, ct.fedavg(step_size=0.25, batch_size=8), rounds=3, cohort=3, name="x")
    assert changed.resolved().study == made.resolved().study
    assert study.resolved().study["algorithm"]["step_size"] == 0.5  # it is as it was


@pytest.mark.parametrize("attempt, words", [
    (lambda study: ct.compare(), "no study was given"),
    (lambda study: ct.compare(3), "a study is an int; give the path of a study file"),
    (lambda study: ct.compare(study, study), "two of the methods are called 'fedavg'"),
    (lambda study: ct.compare(study, study, algorithm=["fedavg"]), "give a single study"),
    (lambda study: ct.compare(study, algorithm=["fedavgg"]), "Did you mean 'fedavg'"),
    (lambda study: ct.compare(study, algorithm=[3]), "algorithm is an int; give names"),
    (lambda study: ct.compare(study, set={"seed": 3}), "in Python: seeds=3"),
    (lambda study: ct.compare(study, set={"data.clients": 3}), "the data of a study made in Python is fixed"),
    (lambda study: ct.compare(study, set={"algorithm.stepsize": 3}), "Did you mean 'step_size'"),
    (lambda study: ct.compare(study, set={"cohorts": 3}), "Did you mean 'cohort'"),
    (lambda study: ct.compare(study, set={"aggregate.f": 3}), "the study has no aggregate with options"),
    (lambda study: ct.compare(study, seeds=0), "seeds is 0; give"),
    (lambda study: ct.sweep(study, {}), "give a list of values for each key"),
    (lambda study: ct.sweep(study, {"cohort": 3}), "grid has cohort = 3; give a list of values"),
    (lambda study: ct.sweep(study, {"algorithm.step_size": "0.1,0.2"}), "give a list of values"),
    (lambda study: ct.Study(study.problem, study.data, study.recipe, rounds=1, cohrt=3), "Did you mean 'cohort'"),
    (lambda study: ct.report(), "no run folder was given"),
    (lambda study: ct.report(ct.Result([], {}, {}, None)), "run it with out="),
])
def test_what_cannot_be_compared_is_refused_in_a_sentence(study, attempt, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ct.InputError, match=words):
        attempt(study)
    assert not list(tmp_path.iterdir())


def test_what_is_not_installed_is_named(there, monkeypatch):
    found = read_comparison(["results/compare/fedavg-0"])
    for package, attempt in (("pandas", found.frame), ("matplotlib", found.plot)):
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ct.InputError, match=f"needs {package}, which is not installed: pip install"):
            attempt()
