"""A study on Ray is a study: every number of its evaluations, its folder, its model, and how it goes on."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from ray_processes import ray_processes, wait_until
from starting import enlarged

import cantons as ct
from cantons.attack import sign_flip
from cantons.data import with_central
from cantons.engine.ray_cluster import Cluster
from cantons.engine.ray_worker import Worker
from cantons.problem import with_central_loss
from cantons.study.read import read_study

ROOT = Path(__file__).resolve().parents[2]
SECONDS = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")
STUDY = """
rounds = 4
cohort = 3
evaluate_every = 2
checkpoint_every = 2

[data]
name = "synthetic"
clients = 5
features = 4
largest = 40

[problem]
name = "logistic"
split = "*bias"

[algorithm]
name = "scaffold"
batch_size = 8
"""


def close(one, other, digits=1e-11):
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, rtol=digits, atol=digits), one, other)


def numbers_in(row):
    return {key: value for key, value in row.items() if isinstance(value, int | float) and key not in SECONDS}


@pytest.fixture(scope="module")
def mixed():
    """Clients and newcomers of two classes, and a datacenter with test sets of several portions."""
    random = np.random.default_rng(3)

    def rows(count, shift):
        labels = random.integers(0, 2, count)
        return random.normal(size=(count, 4)) + shift + labels[:, None], labels

    clients = ct.from_clients({f"c{number}": rows(8 + 3 * number, number / 9) for number in range(7)}, classes=2,
                              test=0.4, new=2)
    return with_central(clients, ct.from_clients({"centre": rows(400, -1.0)}, classes=2, test=0.6))


@pytest.mark.usefixtures("kept_actors")
def test_every_number_of_every_evaluation_is_that_of_the_local_engine(mixed):
    """Clients, newcomers, test sets, a probe of the cohort, traffic, a sample of clients, validation rows."""
    problem = with_central_loss(ct.classification(mixed, ct.mlp(hidden=[6])), "same", [0.3, 0.7])
    recipe = ct.two_way_transfer(steps=2, batch_size=3, central_batch_size=5)
    runs = [ct.run(problem, mixed, recipe, rounds=4, cohort=3, precision="float64", evaluate_every=2, validation=0.2,
                   evaluate_clients=4, engine=engine) for engine in (ct.Local(devices=1), ct.Ray(actors=3))]
    for left, right in zip(*(run.history for run in runs), strict=True):
        assert numbers_in(left).keys() == numbers_in(right).keys()
        assert {"server.dissimilarity_G2", "inference.shared.auc", "new_test.personal.loss.mean"} <= left.keys()
        close(numbers_in(left), numbers_in(right))
    one, other = (run.clients for run in runs)
    assert one.keys() == other.keys()
    close({key: np.asarray(one[key], float) for key in one if key.startswith(("train", "test", "val"))},
          {key: np.asarray(other[key], float) for key in one if key.startswith(("train", "test", "val"))})
    close(runs[0].outputs(mixed.test.inputs, client=2), runs[1].outputs(mixed.test.inputs, client=2))


@pytest.mark.usefixtures("kept_actors")
@pytest.mark.parametrize("clock", [ct.rounds(cohort=5, replace=True), ct.rounds(),
                                   ct.rounds(cohort=4, available=np.eye(7, dtype=bool)[:5])],
                         ids=["replace", "everybody", "trace"])
def test_spare_slots_clients_drawn_twice_and_full_rounds_are_the_same_there(clock, labels):
    problem = ct.logistic(labels, split="*/bias")
    close(*(ct.run(problem, labels, ct.fedrep(batch_size=2), rounds=4, clock=clock, precision="float64",
                   engine=engine).model.state for engine in (ct.Local(devices=1), ct.Ray(actors=2))))


@pytest.mark.usefixtures("kept_actors")
def test_groups_and_liars_are_the_same_there(labels):
    data = ct.at_random(labels, names=["left", "right"])
    problem = ct.with_group_losses(ct.logistic(data), data, weights={"left": 2.0, "right": 1.0})
    options = dict(rounds=3, precision="float64", aggregate=ct.median(),
                   byzantine=ct.byzantine(attack=sign_flip(), count=2))
    close(*(ct.run(problem, data, ct.fedavg(), engine=engine, **options).model.state
            for engine in (ct.Local(devices=1), ct.Ray(actors=2))))


@pytest.mark.usefixtures("kept_actors")
def test_an_upload_that_is_lost_on_an_actor_leaves_the_row_as_it_was(numbers):
    """One client's numbers are too large: its upload is left out, and its row is kept, as with the local engine."""
    data = enlarged(numbers, np.where(np.arange(7) == 2, 1e200, 1.0))
    problem = ct.regression(data, ct.linear(bias=False))
    runs = [ct.run(problem, data, ct.scaffold(batch_size=2), rounds=3, precision="float64", engine=engine)
            for engine in (ct.Local(devices=1), ct.Ray(actors=2))]
    close(*(run.model.state for run in runs))
    assert runs[1].model.state.rejected.tolist() == runs[0].model.state.rejected.tolist()
    assert runs[1].model.state.rejected[2] == 3


@pytest.mark.usefixtures("kept_actors")
def test_a_run_begun_on_one_engine_goes_on_on_the_other(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text("precision = \"float64\"\n" + STUDY)
    whole = read_study(path, {"rounds": 6}).run(out=tmp_path / "whole")
    for name, first, second in (("there", "local", "ray"), ("back", "ray", "local")):
        out = tmp_path / name
        read_study(path, {"engine": first}).run(out=out)
        with pytest.raises(ct.InputError, match="--accept-changes"):
            read_study(path, {"engine": second, "rounds": 6}).run(out=out, resume=True)
        found = read_study(path, {"engine": second, "rounds": 6}).run(out=out, resume=True, accept_changes=True)
        close(whole.model.state, found.model.state)
        assert [row["round"] for row in found.history] == [0, 2, 4, 6]
        assert "engine" in json.dumps(found.summary["changes"])


@pytest.mark.usefixtures("kept_actors")
def test_rollouts_run_one_after_another_on_the_actors(labels):
    problem, options = ct.logistic(labels), dict(rounds=2, seed=[3, 4], precision="float64")
    both = [ct.rollouts(problem, labels, ct.fedavg(), engine=engine, **options) for engine in (ct.Local(), ct.Ray())]
    for one, other in zip(*both, strict=True):
        for left, right in zip(one, other, strict=True):
            close(numbers_in(left), numbers_in(right))


def test_an_actor_computes_on_one_core(connected, monkeypatch):
    """However many there are: with one device, one thread, and no accelerator."""

    class Busy(Worker):
        def burn(self):
            square = jax.numpy.ones((1500, 1500))
            (square @ square).block_until_ready()
            began, used = time.perf_counter(), time.process_time()
            for _ in range(5):
                (square @ square).block_until_ready()
            return jax.local_device_count(), jax.default_backend(), (
                time.process_time() - used) / (time.perf_counter() - began)

    monkeypatch.setattr("cantons.engine.ray_cluster.Worker", Busy)
    actor = Cluster(None, 1, 0.0).start_actor(0.0)
    devices, backend, cores = connected.get(actor.burn.remote())
    connected.kill(actor)
    assert (devices, backend) == (1, "cpu") and cores < 1.2


def command(*arguments, cwd, **environment):
    return subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-m", "cantons.cli.main", *arguments],
                          cwd=cwd, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT), **environment})


def test_a_command_starts_a_ray_of_its_own_and_leaves_nothing_of_it(tmp_path, nothing_is_left):
    """With a part of the current folder, and with report, export and prediction as after a local run."""
    (tmp_path / "study.toml").write_text(STUDY.replace('"scaffold"\nbatch_size = 8', '"mine:shifted"'))
    (tmp_path / "mine.py").write_text(
        "from helper import double\n"
        "import cantons as ct\n"
        "from cantons.recipe import algorithm\n\n\n"
        "@algorithm\n"
        "def shifted(problem, population, *, step_size: float = 0.1):\n"
        "    base = ct.fedavg(step_size=step_size).build(problem, population)\n\n"
        "    def client_update(key, message, client, data):\n"
        "        upload, client = base.client_update(key, message, client, data)\n"
        "        return upload._replace(weight=double(upload.weight)), client\n\n"
        "    return base._replace(client_update=client_update)\n")
    (tmp_path / "helper.py").write_text("def double(number):\n    return 2 * number\n")
    before = ray_processes()
    done = command("run", "study.toml", "--engine", "ray", "--set", "engine.actors=3", "--out", "ray", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert wait_until(lambda: not ray_processes().keys() - before.keys())
    assert json.loads((tmp_path / "ray" / "study.json").read_text())["engine"] == {
        "name": "ray", "actors": 3, "gpus": 0.0}
    assert command("run", "study.toml", "--out", "local", cwd=tmp_path).returncode == 0
    rows = [[json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
            for name in ("ray", "local")]
    for left, right in zip(*rows, strict=True):
        close(numbers_in(left), numbers_in(right), 1e-5)
    assert command("report", "ray", "local", cwd=tmp_path).returncode == 0
    assert command("export", "--run", "ray", "--trust", cwd=tmp_path).returncode == 0
