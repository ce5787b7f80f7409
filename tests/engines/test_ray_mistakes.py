"""What cannot be done on a cluster is said in a sentence, where Ray itself would wait or print pages."""

import threading

import pytest
import ray

import cantons as ct
from cantons.engine import ray_cluster
from cantons.recipe import algorithm


@pytest.fixture(scope="module")
def data():
    return ct.digits(clients=9)


def play(data, engine, recipe=None):
    return ct.run(ct.logistic(data), data, recipe or ct.fedavg(), rounds=1, engine=engine)


def test_too_few_cpus_and_gpus_on_the_cluster_are_refused(data, head):
    with pytest.raises(ct.InputError, match="9 actors need 9 CPUs, where there are 8 in all; use fewer actors"):
        play(data, ct.Ray(actors=9, address=head))
    with pytest.raises(ct.InputError, match="2 actors need 1 GPUs, where there are 0 in all"):
        play(data, ct.Ray(actors=2, gpus=0.5, address=head))
    assert not ray.is_initialized()


def test_cpus_that_others_use_are_refused_after_a_while(data, head, monkeypatch):
    monkeypatch.setattr(ray_cluster, "ROOM_SECONDS", 0.5)
    ray_cluster.read_token()
    ray.init(address=head, log_to_driver=False, logging_level="ERROR", configure_logging=False)

    class Idle:
        def here(self):
            return True

    try:
        actor = ray.remote(Idle).options(num_cpus=7).remote()
        assert ray.get(actor.here.remote())
        with pytest.raises(ct.InputError, match="2 actors need 2 CPUs, where there are 1 that nobody else uses now"):
            play(data, ct.Ray(actors=2))
        with pytest.raises(ct.InputError, match="is connected to a Ray already"):
            play(data, ct.Ray(actors=2, address=head))
        assert ray.is_initialized()  # the user's own connection is left as it was
    finally:
        ray.shutdown()


def test_a_wrong_token_is_refused_before_ray_tries_it_for_long(data, head, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
    monkeypatch.setattr(ray, "init", None)
    with pytest.raises(ct.InputError, match="does not let this process in; set RAY_AUTH_MODE=token, and "
                                            "RAY_AUTH_TOKEN to the cluster's"):
        play(data, ct.Ray(address=head))


def test_other_versions_on_the_cluster_are_refused(data, head, monkeypatch):
    here = ray_cluster.own_versions()
    monkeypatch.setattr(ray_cluster, "own_versions", lambda: here | {"jax": "0.0.1"})
    with pytest.raises(ct.InputError, match=rf"has jax {here['jax']}, and this process jax 0.0.1; install the same"):
        play(data, ct.Ray(address=head))


def test_a_part_that_cannot_be_pickled_is_refused(data, head):
    lock = threading.Lock()

    @algorithm
    def locked(problem, population):
        base = ct.fedavg().build(problem, population)

        def client_update(*given):
            with lock:
                return base.client_update(*given)

        return base._replace(client_update=client_update)

    with pytest.raises(ct.InputError, match="a part of this study cannot be sent to actors, because it cannot be "
                                            "pickled: .*lock"):
        play(data, ct.Ray(address=head), locked())
