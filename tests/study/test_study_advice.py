"""What a user is told before the first round."""

import json
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cantons as ct
from cantons.study.advice import about_evaluations, about_inputs

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(60, 3)) * [1, 400, 2]
CLIENTS, LABELS = np.arange(60) % 3, RANDOM.integers(0, 2, 60)
ADVICE = "take much smaller steps than numbers around 1"


def federation(rows):
    return ct.federation(rows, LABELS, CLIENTS, classes=2, name="mine")


@pytest.mark.parametrize("rows, size", [
    (ROWS, np.sqrt(np.square(ROWS[:, 1]).mean())), (ROWS.astype(np.int32), None), (ROWS / 400, 0), (ROWS[:, [0, 2]], 0),
    (RANDOM.integers(0, 256, (60, 4, 4)).astype(np.uint8), None), (np.full((60, 2), 1e30), 1e30)])
def test_large_numbers_that_were_not_scaled_are_told_with_their_size(rows, size):
    data = federation(rows)
    found = about_inputs(ct.classification(data, ct.mlp()), data)
    assert len(found) == (size != 0)
    if size:
        assert float(found[0].partition("around ")[2].partition(",")[0]) == pytest.approx(size, rel=0.1)
    if found:
        assert found[0].startswith("inputs of mine have") and found[0].endswith("inputs that are scaled may help.")


def test_tokens_are_no_quantities():
    tokens = RANDOM.integers(0, 200, (60, 5)).astype(np.uint8)
    data = federation(tokens)
    assert about_inputs(ct.classification(data, ct.embedding(vocabulary=200)), data) == []
    assert len(about_inputs(ct.classification(data, ct.mlp()), data)) == 1
    problem = ct.logistic(data)._replace(spec=None)  # somebody's own model: it may take them for tokens
    assert about_inputs(problem, data) == []


def test_a_column_is_named_and_the_option_that_scales_it(tmp_path, capsys):
    table = tmp_path / "clinics.csv"
    lines = [f"{client},{tall},{wide},{label}"
             for client, (tall, wide, _), label in zip(CLIENTS, ROWS, LABELS, strict=True)]
    table.write_text("\n".join(["who,age,pressure,ill", *lines]) + "\n")
    raw, scaled = (ct.csv(table, client="who", targets="ill", scale=scale) for scale in ("none", "standard"))
    (sentence,) = about_inputs(ct.logistic(raw), raw)
    assert sentence.startswith("the column 'pressure' of clinics has numbers around ")
    assert 'scale = "standard" in [data]' in sentence
    assert about_inputs(ct.logistic(scaled), scaled) == []
    studies = [ct.Study(ct.logistic(raw), raw, recipe, rounds=1) for recipe in (ct.fedavg(), ct.fedprox())]
    ct.compare(*studies, seeds=2, out=tmp_path / "out")
    assert capsys.readouterr().err.count(ADVICE) == 1, "once for four runs"
    ct.run(ct.logistic(raw), raw, ct.fedavg(), rounds=1, progress=None)
    assert ADVICE not in capsys.readouterr().err


def test_a_callback_is_advised_by_a_notice_unless_it_says_otherwise(capsys):
    class Heard(ct.Callback):
        def __init__(self):
            self.sentences = []

        def noticed(self, sentence):
            self.sentences.append(sentence)

    heard, data = Heard(), federation(ROWS)
    ct.run(ct.logistic(data), data, ct.fedavg(), rounds=1, callbacks=[heard], progress=None)
    assert sum(ADVICE in sentence for sentence in heard.sentences) == 1


def test_advice_is_kept_with_the_run_also_after_a_resume(tmp_path):
    data = federation(ROWS)
    study = ct.Study(ct.logistic(data, split="*bias"), data, ct.ditto(), rounds=2)
    study.changed({"rounds": 1}).run(out=tmp_path / "run", progress=None)
    summary = study.run(out=tmp_path / "run", resume=True, progress=None).summary
    assert [ADVICE in summary["advice"][0], "ditto personalises whole models" in summary["advice"][1]] == [True, True]
    assert len(summary["advice"]) == 2
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["advice"] == summary["advice"]
    scaled = federation(ROWS / 400)
    assert "advice" not in ct.run(ct.logistic(scaled), scaled, ct.fedavg(), rounds=1, progress=None).summary


def test_advice_names_the_run_it_is_of_and_in_a_comparison_the_method(tmp_path, capsys):
    data = federation(ROWS / 400)
    study = ct.Study(ct.logistic(data, split="*bias"), data, ct.ditto(), rounds=1)
    study.run(progress=None, callbacks=[printed := Printed()])
    assert [sentence.partition(":")[0] for sentence in printed.sentences] == ["ditto"]
    methods = [{"name": "near"}, {"name": "far", "algorithm.penalty": 0.01}]
    ct.compare(study, method=methods, seeds=2, out=tmp_path / "out")
    told = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines() if "whole models" in line]
    assert told == ["near", "far"], "once for all seeds"


class Printed(ct.Callback):
    def __init__(self):
        self.sentences = []

    def advised(self, sentence):
        self.sentences.append(sentence)


def rows_of(evaluating, training):
    """The evaluations of a sitting, each after so many seconds of rounds."""
    return [{"evaluation_seconds": took, "seconds": training * place} for place, took in enumerate(evaluating)]


def test_a_run_that_did_little_but_evaluate_says_so():
    (said,) = about_evaluations(rows_of([90.0, 90.0, 30.0, 30.0], training=1.0))
    assert said.startswith("2 evaluations after the first two took 60 s, and the rounds meanwhile 2 s; evaluate less")
    (said,) = about_evaluations(rows_of([0.0, 0.0, 30.0], training=1.0))
    assert said.startswith("1 evaluation after the first two took 30 s")
    assert about_evaluations([{"seconds": 1.0}] * 4) == []  # an older version has not measured it
    for fine in (([1.0, 1.0, 5.0], 0.1), ([1.0, 40.0, 40.0], 30.0)):
        assert about_evaluations(rows_of(*fine)) == []


@given(st.lists(st.floats(0, 1e6), max_size=2), st.floats(0, 1))
def test_evaluations_that_were_compiled_are_not_blamed(evaluating, training):
    assert about_evaluations(rows_of(evaluating, training)) == []


def test_a_sitting_is_judged_by_its_own_evaluations(tmp_path):
    problem = ct.logistic(data := ct.digits(clients=3))
    sentences = []

    class Heard(ct.Callback):
        def noticed(self, sentence):
            sentences.append(sentence)

    for long in (0.0, 1e9):
        with mock.patch("cantons.study.advice.LONG", long), mock.patch("cantons.study.advice.MOSTLY", 0.0):
            ct.run(problem, data, ct.fedavg(), rounds=3, callbacks=[Heard()], progress=None)
    assert sum("evaluate less often" in sentence for sentence in sentences) == 1
    with mock.patch("cantons.study.advice.LONG", 0.0), mock.patch("cantons.study.advice.MOSTLY", 0.0):
        for _ in range(2):  # the second time there is nothing to do
            ct.run(problem, data, ct.fedavg(), rounds=3, callbacks=[Heard()], progress=None, out=tmp_path / "run",
                   resume=True)
        for rounds in (5, 9):  # the first two of a sitting are compiled anew
            assert sum("evaluate less often" in sentence for sentence in sentences) == 2
            ct.run(problem, data, ct.fedavg(), rounds=rounds, callbacks=[Heard()], progress=None, out=tmp_path / "run",
                   resume=True, evaluate_every=1)
        assert "2 evaluations after the first two took" in sentences[-1]
    assert sum("evaluate less often" in sentence for sentence in sentences) == 3
