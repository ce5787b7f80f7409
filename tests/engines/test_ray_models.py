"""Brought local models on actors: the same bits as in one process, and what happens when one fails."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from ray_processes import ray_processes, wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "local_models"))
from resumable_run import digest, make_model, play

import cantons as ct
from cantons import local_models as lm


def make_factory(spoiled=None, spoil=None):
    """Models of three kinds; that of the client `spoiled` does something else at its seventh lesson."""

    class Spoiled(lm.Linear):
        lessons = 0

        def update(self, x, y, shared_prediction):
            self.lessons += 1
            if self.lessons == 7:
                spoil(self)
            super().update(x, y, shared_prediction)

        def get_state(self):
            return super().get_state() | {"lessons": np.array(self.lessons)}

        def set_state(self, state):
            self.lessons = int(state.pop("lessons"))
            super().set_state(state)

    return lambda name: Spoiled() if name == spoiled else make_model(name)


class Heard(ct.Callback):
    def __init__(self, at=None, act=None):
        self.sentences, self.at, self.act = [], at, act

    def noticed(self, sentence):
        self.sentences.append(sentence)

    def advanced(self, round, rounds):
        if round == self.at:
            self.act()


def test_the_run_is_the_local_one_bit_by_bit(connected):
    """Late messages, silent clients, three kinds of models, and one that is left out on the way."""
    heard = [Heard(), Heard()]

    def forget(model):  # inside, because actors do not find this file
        model.weight = np.full_like(model.weight, np.nan)

    one, other = (play(None, make_factory("client3", forget), engine=engine, callbacks=[each], precision="float64",
                       rounds=16, progress=None)
                  for engine, each in zip((None, ct.Ray(actors=3)), heard, strict=True))
    assert digest(one) == digest(other) and heard[0].sentences == heard[1].sentences
    assert one.final["rejected_clients"] == other.final["rejected_clients"] == ["client3"]
    assert other.summary["actors"] == other.summary["clients_at_once"] == 3
    assert [model is None for model in other.model.models] == [number == 3 for number in range(7)]


def test_a_run_that_was_interrupted_here_goes_on_there(connected, tmp_path):
    """The first Ctrl-C saves, and the models' own state travels with the checkpoint, either way."""
    whole = digest(play(None, rounds=16))
    for name, engines in (("there", (None, ct.Ray())), ("back", (ct.Ray(), None))):
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path / name, engine=engines[0], rounds=16,
                 callbacks=[Heard(10, lambda: os.kill(os.getpid(), signal.SIGINT))])
        assert digest(play(tmp_path / name, engine=engines[1], resume=True, rounds=16)) == whole


def test_an_actor_that_dies_ends_the_run_which_goes_on_from_its_checkpoint(connected, tmp_path):
    mark = str(tmp_path / "died")

    def die_once(model):
        if not os.path.exists(mark):
            Path(mark).touch()
            os._exit(1)

    factory = make_factory("client3", die_once)
    with pytest.raises(ct.InputError, match="an actor died, and with it what the models of its 3 clients, such as "
                                            "'client0', had learned; a run .* resume=True"):
        play(tmp_path / "run", factory, engine=ct.Ray(actors=2), rounds=16)
    assert os.path.exists(mark)
    resumed = play(tmp_path / "run", factory, engine=ct.Ray(actors=2), rounds=16, resume=True)
    assert digest(resumed) == digest(play(None, factory, rounds=16))


def test_an_error_says_whose_model_it_is_and_leaves_nothing_of_ray(nothing_is_left, tmp_path):
    before = ray_processes()
    with pytest.raises(ZeroDivisionError) as found:
        play(tmp_path / "run", make_factory("client3", lambda model: 1 / 0), engine=ct.Ray(actors=2))
    assert found.value.__notes__ == ["in the local model of client 'client3'"]
    assert wait_until(lambda: not ray_processes().keys() - before.keys())


def test_a_ctrl_c_while_models_work_leaves_nothing_of_ray(nothing_is_left, tmp_path):
    """The second one acts at once, also while an actor is busy for longer than anybody would wait."""
    before, mark = ray_processes(), str(tmp_path / "lingers")

    def linger(model):
        Path(mark).touch()
        time.sleep(600)

    def press_twice():
        assert wait_until(lambda: os.path.exists(mark), seconds=300)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.0)

    threading.Thread(target=press_twice).start()
    with pytest.raises(KeyboardInterrupt):
        play(None, make_factory("client3", linger), engine=ct.Ray(actors=2))
    assert wait_until(lambda: not ray_processes().keys() - before.keys())


def test_a_model_that_cannot_be_pickled_is_refused_before_anything_starts(nothing_is_left):
    def factory(name):
        model = lm.Linear()
        if name == "client5":
            model.lock = threading.Lock()
        return model

    before = ray_processes()
    with pytest.raises(ct.InputError, match="the model of client 'client5', a Linear, cannot be sent to an actor, "
                                            "because it cannot be pickled: .*lock.*; make it without locks"):
        play(None, factory, engine=ct.Ray())
    assert ray_processes().keys() == before.keys()


def test_more_actors_than_clients_are_refused_before_anything_starts(nothing_is_left):
    before = ray_processes()
    with pytest.raises(ct.InputError, match=r"the engine ray has 99 actors for \d+ clients; use at most as many"):
        play(None, lambda name: lm.Linear(), engine=ct.Ray(actors=99))
    assert ray_processes().keys() == before.keys()
