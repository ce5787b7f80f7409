"""The studies under studies/: a small part of each, to see that it still runs."""

import importlib.util
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "studies"


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fedres_in_rounds_draws_its_first_figure(tmp_path):
    study = script(STUDIES / "fedres" / "rounds.py")
    found = study.drift(study.QUICK._replace(local_steps=(50,), drift_rounds=60), tmp_path)
    assert (tmp_path / "drift.png").stat().st_size > 1000
    for name in ("FedResNaive", "FedResAvg-I"):
        assert found[f"K=50 {name}"]["last"] == pytest.approx(found[f"K=50 {name}"]["limit"], rel=0.01)
    for name in ("FedResSGD", "FedResAvg-II"):
        assert found[f"K=50 {name}"]["last"] < 1e-6
