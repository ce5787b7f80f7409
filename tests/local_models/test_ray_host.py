"""Models that are dealt out to shards do what they do in one process. Here the shards are no processes of their own."""

import pickle
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import cantons as ct
from cantons import local_models as lm
from cantons.local_models import ray_host
from cantons.local_models.host import Lesson, ProcessHost

NAMES = [f"client{number}" for number in range(7)]
RAY = SimpleNamespace(cloudpickle=pickle)


class FakeActors:
    """Shards in this process; what they are sent and reply is pickled, as on the way to an actor."""

    def __init__(self, cluster, count, gpus, make, work, share, notice):
        self._make, self._work, self._share = make, work, share
        self.shards = {number: make(work, share(number)) for number in range(count)}
        self.ended = False

    def ask(self, method, arguments):
        assert len(arguments) == len(self.shards)
        return [pickle.loads(pickle.dumps(getattr(self.shards[number], method)(*pickle.loads(pickle.dumps(given)))))
                for number, given in enumerate(arguments)]

    def die(self, number):
        """Its shard would be made again, on another actor."""
        self.shards[number] = self._make(self._work, self._share(number))

    def close(self):
        self.ended = True


class Logging(lm.Linear):
    """A linear model that remembers what it was asked, and in which precision JAX was."""

    def __init__(self, name):
        super().__init__(0.1)
        self.name, self.calls = name, []

    def predict(self, x):
        if self.name == "client4" and len(x) == 2 and x[0, 0] > 1:  # never asked about the set after this one
            self.calls.append("a bad answer")
            return None
        self.calls.append(("predict", x.tobytes(), str(jax.numpy.zeros(0).dtype)))
        return super().predict(x)

    def update(self, x, y, shared_prediction):
        self.calls.append(("update", x.tobytes(), y.tobytes(), shared_prediction.tobytes()))
        super().update(x, y, shared_prediction)


@pytest.fixture
def on_shards(monkeypatch):
    monkeypatch.setattr(ray_host, "Actors", FakeActors)
    monkeypatch.setattr(ray_host, "Cluster", lambda *given: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(ray_host, "ray_package", lambda: RAY)

    def make(models, actors):
        host = ray_host.RayHost(ct.Ray(actors=actors), models, NAMES)
        host.open()
        return host

    return make


@pytest.mark.parametrize("actors", [1, 2, 3, 7])
def test_every_model_sees_the_same_calls_in_the_same_order(on_shards, actors, float64):
    here, there = [ProcessHost(dict(enumerate(map(Logging, NAMES))), NAMES), on_shards([*map(Logging, NAMES)], actors)]
    random = np.random.default_rng(actors)
    for _ in range(12):
        some = np.flatnonzero(random.random(7) < 0.6).tolist()
        asked = {index: {name: random.normal(size=(rows, 3)) for name, rows in (("now", 2), ("test", 1))}
                 for index in some}
        lessons = {index: Lesson(random.normal(size=(2, 3)), *random.normal(size=(2, 2)))
                   for index in some if index != 4}
        found = [host.predict(asked, ()) for host in (here, there)]
        assert list(found[0]) == list(found[1]) == some
        for one, other in zip(*(answers.values() for answers in found), strict=True):
            assert one.complaint == other.complaint
            jax.tree.map(np.testing.assert_array_equal, one.outputs, other.outputs)
        for host in (here, there):
            host.update(lessons)
    assert here.get_states() == there.get_states() and here.kinds == there.kinds == ["Logging"] * 7
    assert [model.calls for model in here.get_models()] == [model.calls for model in there.get_models()]
    assert [model.name for model in there.get_models()] == NAMES
    other = on_shards([*map(Logging, NAMES)], actors)
    other.set_states(here.get_states())
    assert other.get_states() == here.get_states()


def test_models_of_a_shard_that_is_lost_do_not_begin_anew_in_silence(on_shards):
    host = on_shards([lm.Linear() for _ in NAMES], 2)
    with pytest.raises(ct.InputError, match="3 clients, such as 'client0', had learned; a run that .* resume=True"):
        host._actors.die(0)
    host.close()


def test_what_cannot_be_dealt_out_is_refused(on_shards):
    models = [lm.Linear() for _ in NAMES]
    models[3].thoughts = (number for number in range(3))
    with pytest.raises(ct.InputError, match="the model of client 'client3', a Linear, cannot be sent to an actor, .* "
                                            "pickled: .*generator.*; make it without .* or leave engine out"):
        on_shards(models, 2)
    with pytest.raises(ct.InputError, match="has 8 actors for 7 clients"):
        on_shards([lm.Linear() for _ in NAMES], 8)
    host = on_shards([Hiding() for _ in NAMES], 2)
    host.update({5: Lesson(np.ones((1, 3)), np.ones(1), np.ones(1))})
    with pytest.raises(ct.InputError, match="model of client 'client5', a Hiding, cannot be sent back by its actor"):
        host.get_models()


class Hiding(lm.Linear):
    """Keeps what cannot be pickled as soon as it has learned."""

    def update(self, x, y, shared_prediction):
        self.rows = iter(lambda: 1, 2)
