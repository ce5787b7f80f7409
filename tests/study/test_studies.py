"""The studies under studies/: every script runs in its small sizes, and what it draws and writes is there.

All of them take two minutes: `make check-studies` runs them, `make test` runs one.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

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
    study = script(path)
    assert study.QUICK != study.Settings()
    study.main(["--quick", "--out", str(tmp_path / "out")])
    written = {kind: list((tmp_path / "out").rglob(f"*.{kind}")) for kind in ("png", "json", "md")}
    assert all(file.stat().st_size > 1000 for file in written["png"]) and written["png"]
    assert all(json.loads(file.read_text()) for file in written["json"]) and written["json"]
    assert all("| --- |" in file.read_text() for file in written["md"]) and written["md"]


def test_fedres_in_rounds_drifts_to_its_limits(script, tmp_path):
    study = script(STUDIES / "fedres" / "rounds.py")
    found = study.drift(study.QUICK._replace(local_steps=(50,), drift_rounds=60), tmp_path)
    for name in ("FedResNaive", "FedResAvg-I"):
        assert found[f"K=50 {name}"]["last"] == pytest.approx(found[f"K=50 {name}"]["limit"], rel=0.01)
    for name in ("FedResSGD", "FedResAvg-II"):
        assert found[f"K=50 {name}"]["last"] < 1e-6
