"""What of the Ray engine needs no Ray: its refusals, and its session with shards in this process."""

import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from starting import start

import cantons as ct
from cantons.algorithm import ALGORITHMS, ROUNDS
from cantons.checks.case import fitting_case
from cantons.engine import devices
from cantons.engine.ray_cluster import _lacks
from cantons.engine.ray_worker import environment_of, resources_of
from cantons.engine.shard import Shard
from cantons.engine.shares import deal


class NoCluster:
    def __init__(self, *options):
        pass

    def close(self):
        pass


class InProcess:
    """`Actors` without actors: shards in this process, one of which is opened anew in a later round."""

    lost = 0

    def __init__(self, cluster, count, gpus, kind, work, make, notice):
        self.work, self.make, self.shards, self.asked = work, make, {}, 0

    def put(self, value):
        return value

    def ask(self, method, arguments):
        self.asked += 1
        if self.asked == 4:
            self.shards.pop(1)  # as if its actor had died since
        for number in range(len(arguments)):
            if number not in self.shards:
                self.shards[number] = Shard(self.work, self.make(number))
        return [getattr(self.shards[number], method)(*given) for number, given in enumerate(arguments)]

    def forget(self):
        self.shards = {}

    def close(self):
        pass


@pytest.fixture
def in_process(monkeypatch):
    monkeypatch.setattr("cantons.engine.ray_session.Cluster", NoCluster)
    monkeypatch.setattr("cantons.engine.ray_session.Actors", InProcess)
    monkeypatch.setattr("cantons.engine.ray.ray_package", lambda: None)


def test_shards_agree_with_the_local_engine_in_every_number(labels, in_process, tmp_path):
    problem = ct.logistic(labels, split="*/bias")
    options = dict(rounds=4, cohort=4, precision="float64", evaluate_every=2)
    recipe = ct.scaffold(batch_size=2)
    ct.run(problem, labels, recipe, engine=ct.Ray(), **{**options, "rounds": 2}, out=tmp_path / "run")
    runs = [ct.run(problem, labels, recipe, engine=engine, **options, **more) for engine, more in (
        (ct.Local(devices=1), {}), (ct.Ray(), {"out": tmp_path / "run", "resume": True}))]
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11),
                 *(run.model.state for run in runs))
    for left, right in zip(*(run.history for run in runs), strict=True):
        told = [key for key in left if isinstance(left[key], float) and "second" not in key]
        assert len(told) > 20
        np.testing.assert_allclose([left[key] for key in told], [right[key] for key in told], rtol=1e-11)


def test_a_shard_refuses_a_job_of_another_round(labels, in_process):
    """Rows that lag behind the server, or run ahead of it, are never worked with."""
    problem = ct.logistic(labels)
    recipe = ct.fedavg(batch_size=2)
    session = start(ct.Ray(), problem, recipe.build(problem, 7), ct.rounds().build(7), labels)
    state = session.begin()
    (kept,) = session.whole(state)
    state = session.advance(state, 1)
    once = jax.tree.map(np.array, state)
    assert (kept.state.clients.visits == 0).all() and (once.clients.visits == 1).all()  # no snapshot is written over
    state = session.advance(session.restore([kept]), 1)
    jax.tree.map(np.testing.assert_array_equal, once, state)
    session._done = 5
    with pytest.raises(RuntimeError, match="asked for round 5, and its rows have 1 rounds behind them"):
        session.advance(state, 6)


def test_no_cohort_compiles_anew(labels, in_process, compilations):
    """The share of a cohort that falls to a shard varies from round to round."""
    problem = ct.logistic(labels)
    session = start(ct.Ray(), problem, ct.fedavg(batch_size=2).build(problem, 7), ct.rounds(cohort=4).build(7), labels)
    state = session.begin()
    session._actors.asked = 10  # nobody dies here
    session.prepare(state)
    state = session.advance(state, 1)
    with compilations() as found:
        session.advance(state, 12)
    assert found == []


def test_clients_are_dealt_out_evenly_in_numbers_and_examples():
    sizes = np.random.default_rng(0).integers(1, 100, 50)
    for shards in (1, 2, 3, 7):
        dealt = deal(sizes, shards)
        assert sorted(np.concatenate(dealt.ids).tolist()) == list(range(50))
        assert np.ptp([len(own) for own in dealt.ids]) <= 1
        assert np.ptp([sizes[own].sum() for own in dealt.ids]) <= 100
        where = dealt.members(np.array([4, 9, 50]))
        assert sorted(np.concatenate(where).tolist()) == [0, 1]  # whoever is past the last is in no shard


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - ROUNDS.keys()))
def test_every_online_algorithm_is_refused(name):
    case = fitting_case(ALGORITHMS[name]())[1]
    with pytest.raises(ct.InputError, match="the engine ray runs rounds; online steps are too short to be worth"):
        ct.run(case.problem, case.data, case.recipe, rounds=3, clock=case.clocks[0], engine=ct.Ray())


def test_without_the_package_the_pip_command_is_told(numbers, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ct.InputError, match=r"the engine ray needs ray, which is not installed: pip install "
                                            r"'cantons\[ray\]'"):
        ct.run(ct.regression(numbers, ct.linear()), numbers, ct.fedavg(), rounds=1, engine=ct.Ray())


def test_more_actors_than_clients_are_refused(numbers):
    with pytest.raises(ct.InputError, match="the engine ray has 8 actors for 7 clients"):
        ct.run(ct.regression(numbers, ct.linear()), numbers, ct.fedavg(), rounds=1, engine=ct.Ray(actors=8))


def test_an_actor_asks_for_a_core_or_a_share_of_a_gpu_and_its_memory():
    assert resources_of(0) == {"num_cpus": 1} and resources_of(0.25) == {"num_cpus": 1, "num_gpus": 0.25}
    on_core, on_gpu = environment_of(0), environment_of(0.25)
    assert (on_core["JAX_PLATFORMS"], on_core["JAX_NUM_CPU_DEVICES"], on_core["NPROC"]) == ("cpu", "1", "1")
    assert float(on_gpu["XLA_PYTHON_CLIENT_MEM_FRACTION"]) * 4 <= 1
    assert not {"JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "NPROC"} & on_gpu.keys()
    assert on_core["JAX_COMPILATION_CACHE_DIR"] == on_gpu["JAX_COMPILATION_CACHE_DIR"] != ""


@pytest.mark.parametrize("there, actors, gpus, lacks", [
    ({"CPU": 2.0}, 2, 0.0, ""), ({"CPU": 2.0}, 3, 0.0, "3 CPUs, where there are 2"),
    ({"CPU": 4.0}, 2, 0.5, "1 GPUs, where there are 0"), ({"CPU": 4.0, "GPU": 1.0}, 2, 0.5, ""),
    ({"CPU": 4.0, "GPU": 1.0}, 3, 0.5, "2 GPUs, where there are 1"),
    ({"CPU": 4.0, "GPU": 1.0}, 2, 0.6, "2 GPUs, where there are 1"),  # two such shares do not fit on one
    ({"CPU": 1.0, "GPU": 1.0}, 2, 1.0, "2 CPUs, where there are 1 and 2 GPUs, where there are 1")])
def test_what_a_cluster_lacks_is_said_in_words(there, actors, gpus, lacks):
    assert _lacks(there, actors, gpus) == lacks


@pytest.mark.parametrize("address", ["somewhere", "ray://10.0.0.1:10001", ":6379", "host:port"])
def test_an_address_is_a_host_and_a_port(numbers, address, monkeypatch):
    monkeypatch.setattr("cantons.engine.ray_cluster.ray_package", lambda: NotConnected)
    monkeypatch.setattr("cantons.engine.ray.ray_package", lambda: NotConnected)
    with pytest.raises(ct.InputError, match="give HOST:PORT of a Ray cluster"):
        ct.run(ct.regression(numbers, ct.linear()), numbers, ct.fedavg(), rounds=1, engine=ct.Ray(address=address))


def test_an_address_where_nobody_answers_is_refused_at_once(numbers, monkeypatch):
    monkeypatch.setattr("cantons.engine.ray_cluster.ray_package", lambda: NotConnected)
    monkeypatch.setattr("cantons.engine.ray.ray_package", lambda: NotConnected)
    with pytest.raises(ct.InputError, match="nobody answers at the Ray address 127.0.0.1:1: Connection refused"):
        ct.run(ct.regression(numbers, ct.linear()), numbers, ct.fedavg(), rounds=1, engine=ct.Ray(
            address="127.0.0.1:1"))


class NotConnected:
    """A Ray that is installed and not used."""

    @staticmethod
    def is_initialized():
        return False


def test_a_choice_of_one_device_is_kept(monkeypatch):
    for chosen, expected in ((1, []), (-1, ["jax_num_cpu_devices"])):
        asked = []
        monkeypatch.setattr(devices, "jax", SimpleNamespace(config=SimpleNamespace(
            jax_num_cpu_devices=chosen, update=lambda name, value, asked=asked: asked.append(name))))
        devices.one_device_per_core()
        assert asked == expected
