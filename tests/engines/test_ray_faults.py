"""Actors, nodes and drivers that die: an upload and the row that belongs to it count together or not at all."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import ray
from ray_processes import ray_processes, wait_until

import cantons as ct
from cantons.engine.ray_cluster import Cluster
from cantons.engine.ray_worker import Worker

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data():
    return ct.digits(clients=9)


class Notices(ct.Callback):
    def __init__(self):
        self.sentences = []

    def noticed(self, sentence):
        self.sentences.append(sentence)


def play(data, callbacks=(), rounds=6, actors=2, **options):
    """SCAFFOLD with a private part: rows that remember every round, and a server that remembers their sum."""
    problem = ct.classification(data, ct.mlp(hidden=(4,)), split="output")
    return ct.run(problem, data, ct.scaffold(batch_size=8), rounds=rounds, cohort=6, evaluate_every=2,
                  engine=ct.Ray(actors=actors), callbacks=callbacks, **options)


def same_bits(one, other):
    jax.tree.map(np.testing.assert_array_equal, one.model.state, other.model.state)
    seconds = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")
    for left, right in zip(one.history, other.history, strict=True):
        assert {key: left[key] for key in left.keys() - seconds} == {key: right[key] for key in left.keys() - seconds}


@pytest.fixture(scope="module")
def undisturbed(data, connected):
    return play(data)


def mortal(monkeypatch, tmp_path, die, moment, method="turns", number=4):
    """Workers of which the one that is first to be asked for the `number`-th time dies, before or after its work."""

    class Mortal(Worker):
        def call(self, shard, asked, *arguments):
            def dies():
                if asked != method:
                    return
                self.count = getattr(self, "count", 0) + 1
                if self.count != number:
                    return
                try:
                    (tmp_path / "died").touch(exist_ok=False)
                except FileExistsError:
                    return
                die()

            if moment == "before":
                dies()
            reply = super().call(shard, asked, *arguments)
            if moment == "after":
                dies()
            return reply

    monkeypatch.setattr("cantons.engine.ray_cluster.Worker", Mortal)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("die", [lambda: os._exit(1), lambda: os.kill(os.getpid(), signal.SIGKILL)],
                         ids=["exit", "kill -9"])
def test_an_actor_that_dies_before_or_after_its_work_leaves_no_trace(data, undisturbed, monkeypatch, tmp_path, die,
                                                                     moment):
    """After its work the actor's own rows are a round ahead of the server's, and the reply is lost."""
    mortal(monkeypatch, tmp_path, die, moment)
    heard = Notices()
    result = play(data, [heard])
    assert (tmp_path / "died").exists() and result.summary["actors_lost"] == 1
    assert any("an actor was lost" in sentence for sentence in heard.sentences)
    same_bits(result, undisturbed)
    assert result.model.state.uploads.sum() == 6 * 6  # no job counts twice


def test_an_actor_that_dies_in_an_evaluation_leaves_no_trace(data, undisturbed, monkeypatch, tmp_path):
    mortal(monkeypatch, tmp_path, lambda: os._exit(1), "after", method="evaluate", number=2)
    result = play(data)
    assert result.summary["actors_lost"] == 1
    same_bits(result, undisturbed)


def test_actors_killed_between_rounds_are_replaced(data, undisturbed, monkeypatch):
    """`ray.kill`, of every actor at once."""
    started = []

    class Remembering(Cluster):
        def start_actor(self, gpus):
            started.append(super().start_actor(gpus))
            return started[-1]

    class Kills(ct.Callback):
        def evaluated(self, record):
            if record["round"] == 2:
                for actor in started:
                    ray.kill(actor)

    monkeypatch.setattr("cantons.engine.ray_session.Cluster", Remembering)
    result = play(data, [Kills()])
    assert len(started) == 4 and result.summary["actors_lost"] == 2
    same_bits(result, undisturbed)


def test_an_actor_that_dies_in_the_middle_of_its_work_keeps_nobody_waiting(data, undisturbed, monkeypatch, tmp_path):
    """Killed by somebody else; the others' answers are there before it is replaced."""

    class Slow(Worker):
        def call(self, shard, asked, *arguments):
            if asked == "turns" and shard == 0 and not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
                time.sleep(10)
            reply = super().call(shard, asked, *arguments)
            with (tmp_path / f"{shard}").open("a") as file:
                file.write(f"{asked} {time.time()}\n")
            return reply

    monkeypatch.setattr("cantons.engine.ray_cluster.Worker", Slow)
    result = play(data)
    first = [next(float(line.split()[1]) for line in (tmp_path / str(shard)).read_text().splitlines()
              if line.startswith("turns")) for shard in (0, 1)]
    assert first[1] < first[0]
    assert result.summary["actors_lost"] == 1
    same_bits(result, undisturbed)


def test_work_that_kills_every_actor_is_given_up_in_a_sentence(data, connected, monkeypatch):
    class Doomed(Worker):
        def call(self, shard, asked, *arguments):
            os._exit(3)

    monkeypatch.setattr("cantons.engine.ray_cluster.Worker", Doomed)
    monkeypatch.setattr("cantons.engine.ray_actors.ATTEMPTS", 2)
    with pytest.raises(ct.InputError, match="2 actors died over the same work"):
        play(data, actors=1)


# The driver


DRIVER = """
import sys
import cantons as ct


class Dies(ct.Callback):
    def advanced(self, round, rounds):
        if round == int(sys.argv[2]):
            import os, signal
            os.kill(os.getpid(), int(sys.argv[3]))


if __name__ == "__main__":
    data = ct.digits(clients=9)
    problem = ct.classification(data, ct.mlp(hidden=(4,)), split="output")
    ct.run(problem, data, ct.scaffold(batch_size=8), rounds=6, cohort=6, evaluate_every=2, engine=ct.Ray(actors=2),
           out=sys.argv[1], checkpoint_every=2, resume="resume" in sys.argv, callbacks=[Dies()])
"""


def drive(folder, *arguments):
    (folder / "driver.py").write_text(DRIVER)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
    return subprocess.run([sys.executable, "driver.py", str(folder / "run"), *map(str, arguments)], cwd=folder,
                          capture_output=True, text=True, env={**environment, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["KILL", "TERM", "INT"])
def test_a_driver_that_is_killed_takes_its_ray_along_and_resumes_to_the_same_bits(data, undisturbed, tmp_path, number):
    before = ray_processes()
    died = drive(tmp_path, 4, int(number))  # before the checkpoint of round 4, except that Ctrl-C is waited for
    assert died.returncode == -number, died.stderr
    assert wait_until(lambda: not ray_processes().keys() - before.keys()), ray_processes()
    done = drive(tmp_path, -1, 0, "resume")
    assert done.returncode == 0, done.stderr
    found = ct.load(tmp_path / "run", data=data)
    jax.tree.map(np.testing.assert_array_equal, found.state, undisturbed.model.state)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 2, 4, 6]
    assert wait_until(lambda: not ray_processes().keys() - before.keys()), ray_processes()


def test_an_error_in_a_clients_work_is_told_and_leaves_no_ray(tmp_path):
    before = ray_processes()
    (tmp_path / "broken.py").write_text(
        "import cantons as ct\nfrom cantons.recipe import algorithm\n\n\n"
        "@algorithm\ndef broken(problem, population):\n"
        "    base = ct.fedavg().build(problem, population)\n\n"
        "    def client_update(key, message, client, data):\n"
        "        import os\n"
        "        if 'NPROC' in os.environ:\n"
        "            raise ct.InputError('this client has had enough')\n"
        "        return base.client_update(key, message, client, data)\n\n"
        "    return base._replace(client_update=client_update)\n")
    (tmp_path / "driver.py").write_text(
        "import cantons as ct\nimport broken\nif __name__ == '__main__':\n    data = ct.digits(clients=4)\n"
        "    ct.run(ct.logistic(data), data, broken.broken(), rounds=2, engine=ct.Ray())\n")
    done = subprocess.run([sys.executable, "driver.py"], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 1 and "InputError: this client has had enough" in done.stderr
    assert wait_until(lambda: not ray_processes().keys() - before.keys()), ray_processes()
