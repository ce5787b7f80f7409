"""The studies under studies/: every script runs in its small sizes, and what it draws and writes is there.

All of them take two minutes: `make check-studies` runs them, `make test` runs one.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from cantons.study.read import read_study

STUDIES = Path(__file__).parents[2] / "studies"
ALL = [path for path in sorted(STUDIES.glob("*/*.py")) if "def main(" in path.read_text()]
SCRIPTS = ALL if os.environ.get("STUDIES") == "all" else [
    path for path in ALL if path.stem == "figure1"]


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Import a script as if it were called, without the real data that may lie beside the repository."""

    def load(path):
        for folder in (STUDIES, path.parent):
            monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setitem(importlib.import_module("kit").FILES, "default", tmp_path / "no data")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in ("kit", "tables"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_study_runs_in_its_small_sizes(path, script, tmp_path):
    if path.stem == "real_delays":
        pytest.importorskip("ray", reason="make test-engines installs it")
    study = script(path)
    assert study.QUICK != study.Settings()
    study.main(["--quick", "--out", str(tmp_path / "out")])
    written = {kind: list((tmp_path / "out").rglob(f"*.{kind}")) for kind in ("png", "json", "md")}
    assert all(file.stat().st_size > 1000 for file in written["png"])
    assert bool(written["png"]) == ("save_figure(" in path.read_text())
    assert all(json.loads(file.read_text()) for file in written["json"]) and written["json"]
    assert all("| --- |" in file.read_text() for file in written["md"]) and written["md"]


@pytest.mark.parametrize(("name", "smaller"), [
    ("pipeline.toml", {"data.clients": 12, "stage.pretraining.rounds": 8}),
    ("pipeline_text.toml", {"data.min_examples": 100, "data.vocabulary": 100, "problem.model.width": 8,
                            "problem.model.blocks": 1, "problem.model.heads": 2, "cohort": 4,
                            "stage.pretraining.rounds": 10})], ids=["digits", "text"])
def test_the_pipeline_tunes_private_parts_of_what_it_trained(name, smaller):
    """The shipped studies in few rounds: three stages, of which the last one moves nothing but private parts."""
    result = read_study(STUDIES / "ffgg" / name, {**smaller, "stage.training.rounds": 3}).run(progress=None)
    stages = {**result.before, "tuning": result}
    assert list(stages) == ["pretraining", "training", "tuning"]
    loss = {name: stage.final["train.personal.loss.mean"] for name, stage in stages.items()}
    assert loss["tuning"] < loss["training"] < loss["pretraining"] < stages["pretraining"].history[0][
        "train.personal.loss.mean"]
    assert result.final["test.shared.loss.mean"] == pytest.approx(result.history[0]["test.shared.loss.mean"])


def test_the_pipeline_for_text_has_the_numbers_of_table_3_but_for_its_size():
    """Ten times fewer rounds, of server steps that are ten times as long."""
    stages = read_study(STUDIES / "ffgg" / "pipeline_text.toml").stages
    own = {name: stage.tables["algorithm"] for name, stage in stages.items()}
    first, second = ({**own[name], "rounds": stages[name].settings.rounds} for name in ("pretraining", "training"))
    assert [10 * each["rounds"] for each in (first, second)] == [1000, 500]
    assert [each["server_step_size"] / 10 for each in (first, second)] == pytest.approx([5e-4, 5e-5])
    assert (first["name"], second["server_optimizer"]) == ("fedadam", "adam")
    for peak, each, steps in ((1.0, first, [first]), (0.1, second, [second, second["tuner"]])):
        linear = {"name": "linear", "peak": peak, "rounds": each["rounds"], "warmup": each["rounds"] // 10}
        assert [one["step_size"] for one in steps] == [linear] * len(steps)
    last = own["tuning"]
    assert (last["epochs"], last["client_optimizer"], last["step_size"]) == (5, "sgd", 0.1)
    assert {each["clip_norm"] for each in (first, second, second["tuner"], last)} == {0.1}


def test_chapters_of_the_manual_share_no_line_with_the_next(script):
    """What a chapter trains with must be in no other one's test rows."""
    manual = script(STUDIES / "ffgg" / "python_manual.py")
    texts = manual.without_repetitions(manual.topics)
    lines = [line for text in texts.values() for line in set(text.splitlines()) if len(line) > manual.SHORT]
    assert texts.keys() == manual.topics.keys() and len(lines) == len(set(lines)) > 1000
    both = {"all": "The statement is one.\nThat is all.", "if": "The statement is one."}
    assert manual.without_repetitions(both) == {"if": "The statement is one.", "all": "That is all."}


def test_a_cell_is_computed_once_for_the_same_settings_and_none_when_time_is_up(script, tmp_path):
    study = script(STUDIES / "ffgg" / "attacks.py")
    calls = []

    def cell(settings=study.QUICK, minutes=None, **more):
        cells = study.kit.Cells(tmp_path / "cells", settings, study.kit.Watch(), minutes)
        return cells("sign flip, mean", lambda: calls.append(settings) or {"found": np.array([0.5, np.inf])}, **more)

    assert cell() == cell() == cell(minutes=0) == {"found": [0.5, np.inf]} and len(calls) == 1
    with pytest.raises(TimeoutError):
        cell(study.Settings(), minutes=0)
    assert cell(study.Settings()) and cell(study.Settings(), minutes=0) and len(calls) == 2
    for calls_then, recipe in ((3, "fedopt"), (3, "fedopt"), (4, "fedadam")):  # one of another recipe is stale
        assert cell(recipes=[recipe]) and len(calls) == calls_then


def test_a_row_of_table_2_is_of_its_recipe_and_of_that_of_the_row_it_begins_with(script, tmp_path):
    study = script(STUDIES / "ffgg" / "table2.py")
    methods = study.Methods(study.digits(tmp_path))
    tuned, averaged, first = (methods.recipes(name) for name in ("FedAvg to its end + tuning", "FedAvg", study.FIRST))
    assert tuned[-len(averaged):] == averaged and averaged[-1:] == first
    drawn, fixed = (methods.recipes(f"FFGG (output){how}") for how in (", drawn anew", ""))
    assert drawn != fixed and drawn[-1:] == fixed[-1:] == first
    assert methods.recipes("local")[-1].startswith("independent")


def test_attacks_and_rules_of_the_matrix(script):
    """All attacks there are, except `delay`, which has a table of its own; every rule bears the liars there are."""
    study = script(STUDIES / "ffgg" / "attacks.py")
    settings = study.Settings()
    tried = {name.replace(" ", "_") for name in study.attacks(1.0, 100)}
    assert tried - {"nobody_lies"} == study.ATTACKS.keys() - {"delay"} and len(tried) == settings.attacks
    made = study.rules(settings.liars, 1.0)
    assert len(made) == settings.rules
    limits = {name: rule.build().bears(settings.clients) for name, rule in made.items() if name not in (
        "mean", "norm bound")}
    assert min(limits.values()) == settings.liars == limits["median, buckets"]
    with pytest.raises(study.InputError, match="krum bears at most 9 liars in the 21 buckets"):
        study.ct.krum(f=10, bucket=2).build().bears(42)


def test_fedres_in_rounds_drifts_to_its_limits(script, tmp_path):
    study = script(STUDIES / "fedres" / "rounds.py")
    found = study.drift(study.QUICK._replace(local_steps=(50,), drift_rounds=60), tmp_path)
    for name in ("FedResNaive", "FedResAvg-I"):
        assert found[f"K=50 {name}"]["last"] == pytest.approx(found[f"K=50 {name}"]["limit"], rel=0.01)
    for name in ("FedResSGD", "FedResAvg-II"):
        assert found[f"K=50 {name}"]["last"] < 1e-6


@pytest.mark.parametrize("tokens, prose", [
    ("<eos> = = Early life = = <eos> <eos> He 's 1 @.@ 8 m ( 6 ft ) tall ; a well @-@ known <eos>",
     "Early life\nHe's 1.8 m (6 ft) tall; a well-known\n"),
    ('It is " new " , he said . It had <unk> . In 1985 – 86 , 3 @,@ 000 , or 50 % , came .',
     'It is "new", he said. In 1985–86, 3,000, or 50%, came.\n'),
    ('" Go ! We <unk> . " she said . " Stop . " Nobody did .', '"Stop." Nobody did.\n'),
    ("The players ' kit cost $ 5 and / or £ 3 ... <eos> = <unk> = <eos>", "The players' kit cost $5 and/or £3...\n"),
])
def test_wikitext_becomes_prose_without_sentences_that_lack_a_word(script, tokens, prose):
    assert script(STUDIES / "mixed" / "language.py").as_prose(tokens.split()) == prose


def test_the_language_study_keeps_curves_and_draws_them_again(script, tmp_path):
    study = script(STUDIES / "mixed" / "language.py")
    call = ["--quick", "--rounds", "2", "--every", "1", "--out", str(tmp_path), "--methods"]
    study.main([*call, "1-way", "--minutes", "10"])
    study.main([*call, "oracle"])
    found = json.loads((tmp_path / "figure1.json").read_text())
    assert list(found["methods"]) == ["1-way", "oracle"]
    for one in found["methods"].values():
        assert one["curve"]["round"] == [0, 1, 2] and len(one["curve"]["central"]["accuracy"]) == 3
    assert found["methods"]["1-way"]["options"]["central_batch_size"] == 4 * 4 * 4 // 2
    (tmp_path / "figure1.png").unlink()
    study.main(["--out", str(tmp_path), "--draw"])
    assert (tmp_path / "figure1.png").stat().st_size > 1000
    with pytest.raises(SystemExit, match="figure10.json is not there"):
        study.main(["--out", str(tmp_path), "--draw", "--figure", "10"])


def test_the_language_study_has_the_numbers_of_tables_8_and_9(script):
    study = script(STUDIES / "mixed" / "language.py")
    chosen = {name: method.recipe.options for name, method in study.methods(1, study.Settings()).items()}
    assert {name: own["step_size"] for name, own in chosen.items()} == {
        "only federated": 2.0, "parallel": 2.0, "1-way": 2.0, "2-way": 1.0, "2-way, merge 1/2": 2.0, "oracle": 2.0}
    assert {own["steps"] for own in chosen.values()} == {16}
    assert {name: own["central_batch_size"] for name, own in chosen.items() if "central_batch_size" in own} == {
        "parallel": 800, "1-way": 6400, "2-way": 800, "2-way, merge 1/2": 800}
    assert [chosen[name]["merge_step_size"] for name in ("parallel", "2-way", "2-way, merge 1/2")] == [1.0, 1.0, 0.5]
    assert all(chosen[name]["central_step_size"] == chosen[name]["step_size"] for name in ("parallel", "2-way"))


def test_the_movie_study_has_the_numbers_of_tables_10_and_11(script):
    study = script(STUDIES / "mixed" / "movies.py")
    settings = study.Settings()
    chosen = {name: recipe.options for name, recipe in study.methods(settings).items()}
    assert settings.cohort == 100 and study.WEIGHTS == (0.5, 0.5)
    assert {(own["step_size"], own["steps"], own["batch_size"]) for own in chosen.values()} == {(0.5, 10, 16)}
    for name in ("parallel", "2-way", "2-way, merge 1/2"):
        assert (chosen[name]["central_step_size"], chosen[name]["central_steps"]) == (0.5, 10)
    assert [chosen[name]["merge_step_size"] for name in ("parallel", "2-way", "2-way, merge 1/2")] == [1.0, 1.0, 0.5]
    adam = {name: recipe.options for name, recipe in study.methods(settings, adam=0.01).items()}
    assert all((adam[name]["server_optimizer"], adam[name]["server_step_size"]) == ("adam", 0.01)
               for name in ("1-way", "all on clients"))
    assert all((adam[name]["merge_optimizer"], adam[name]["merge_step_size"]) == ("adam", 0.01)
               for name in ("parallel", "2-way, merge 1/2"))


def test_users_of_the_movie_study_train_or_test_and_the_others_do_neither(script, tmp_path):
    study = script(STUDIES / "mixed" / "movies.py")
    settings = study.QUICK
    data, whole = study.movie_data(tmp_path, settings), study.made_up(settings, None)
    assert (data.population, whole.population) == (20, 35) and data.central is None
    assert len(data.sets["test"].targets) + len(data.train.targets) < len(whole.train.targets)
    few = study.movie_data(tmp_path, settings, most=5)
    assert max(few.train.sizes) == 5 and study.rows_looked_at(few, settings).max() <= 5 + settings.context


def test_the_movie_study_runs_a_cell_once_for_the_same_settings_and_none_when_time_is_up(script, tmp_path, monkeypatch):
    study = script(STUDIES / "mixed" / "movies.py")
    calls = []

    def rollouts(problem, data, recipes, rounds, **more):
        calls.append(recipes)
        row = {"round": rounds, "test.shared.recall": 0.1, "test.shared.loss": 0.2, "test.shared.loss.mean": 9.0,
               "train.shared.loss.mean": 9.0, "server.dissimilarity_G2": 0.3}
        return [[row] for _ in recipes]

    monkeypatch.setattr(study.ct, "rollouts", rollouts)
    recipe = study.methods(study.QUICK)["1-way"]

    def cell(minutes=None, **more):
        bench = study.Bench(tmp_path, study.QUICK, tmp_path, minutes, study.kit.Watch())
        return bench.cell("part", "1-way, a/b", recipe, 4, 2, **more), bench.left_out

    (found, _), (again, _) = cell(), cell()
    assert len(calls) == 1 and set(found.numbers) == {"recall", "loss", "G2"} and found.numbers["loss"].shape == (2, 1)
    np.testing.assert_array_equal(found.numbers["recall"], again.numbers["recall"])
    assert cell(minutes=0)[0] is not None, "a cell that is there needs no time"
    assert cell(minutes=0, strength=0.5) == (None, ["part, 1-way, a/b"]) and len(calls) == 1
    assert cell(strength=0.5)[0] is not None and len(calls) == 2
