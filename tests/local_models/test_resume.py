"""A run with local models that is interrupted, killed or damaged ends with the same bits as one that was not."""

import json
import os
import pickle
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import PassiveAggressiveRegressor, Perceptron, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPRegressor

sys.path.insert(0, str(Path(__file__).parent))
from resumable_run import digest, make_model, play

import cantons as ct
from cantons import local_models as lm
from cantons.local_models.saving import get_state, set_state, why_not_saved

ROOT = Path(__file__).resolve().parents[2]
NO_TORCH = "PyTorch is not installed: pip install 'cantons[torch]'"
NO_VW = "Vowpal Wabbit is not installed: pip install 'cantons[vw]'"


def network(optimizer=None, **options):
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh(), torch.nn.Dropout(0.3)
    module = torch.nn.Sequential(*layers, torch.nn.Linear(5, 1))
    make = None if optimizer is None else lambda parameters: getattr(torch.optim, optimizer)(parameters, **options)
    return lm.Torch(module, optimizer=make)


def vowpal(arguments):
    pytest.importorskip("vowpalwabbit", reason=NO_VW)
    return lm.VowpalWabbit(arguments)


# name: (a function that makes the model, the classes it learns)
SAVED = {
    "linear": (lambda: lm.Linear(), None),
    "linear without bias": (lambda: lm.Linear(bias=False), None),
    "linear logistic": (lambda: lm.Linear(loss="logistic"), (-1, 1)),
    "linear softmax": (lambda: lm.Linear(loss="softmax", classes=3), (0, 1, 2)),
    "sgd": (lambda: lm.PartialFit(SGDRegressor(random_state=0)), None),
    "averaged sgd": (lambda: lm.PartialFit(SGDRegressor(random_state=3, average=5)), None),
    "adaptive sgd": (lambda: lm.PartialFit(SGDRegressor(learning_rate="adaptive", random_state=0)), None),
    "passive-aggressive": (lambda: lm.PartialFit(PassiveAggressiveRegressor(random_state=0)), None),
    "hinge": (lambda: lm.PartialFit(SGDClassifier(random_state=0), classes=3), (0, 1, 2)),
    "logistic": (lambda: lm.PartialFit(SGDClassifier(loss="log_loss", average=True, random_state=0),
                                       classes=(-1, 1), scale="logit"), (-1, 1)),
    "perceptron": (lambda: lm.PartialFit(Perceptron(random_state=0), classes=(-1, 1)), (-1, 1)),
    "naive Bayes": (lambda: lm.PartialFit(GaussianNB(), classes=3), (0, 1, 2)),
    "forest": (lambda: lm.Refit(RandomForestRegressor(3, random_state=0), every=4, window=10), None),
    "forest of classes": (lambda: lm.Refit(RandomForestClassifier(3, random_state=0), every=3, classes=3), (0, 1, 2)),
    "boosting": (lambda: lm.Refit(HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2, random_state=0),
                                  every=4), None),
    "torch sgd": (lambda: network(), None),
    "torch momentum": (lambda: network("SGD", lr=0.01, momentum=0.9), None),
    "torch adam": (lambda: network("AdamW", lr=0.01), None),
    "vw": (lambda: vowpal(""), None),
    "vw by plain steps": (lambda: vowpal("--sgd --power_t 0.4"), None),
    "vw adaptive": (lambda: vowpal("--adaptive --l2 1e-4"), None),
}


@pytest.mark.parametrize("stop", [0, 1, 3, 6])
@pytest.mark.parametrize("name", SAVED)
@pytest.mark.filterwarnings("ignore:Class PassiveAggressiveRegressor is deprecated:FutureWarning")
def test_a_saved_model_learns_on_as_if_it_had_never_stopped(name, stop):
    make, labels = SAVED[name]
    assert why_not_saved(make()) == ""
    random = np.random.default_rng(1)
    whole, stopped, resumed = make(), make(), make()
    for number in range(14):
        x = random.normal(size=(4, 3))
        y = random.normal(size=4) if labels is None else random.choice(labels, 4)
        if number == stop:
            resumed.update(x, y, np.zeros_like(resumed.predict(x)))  # whatever it knew before is forgotten
            set_state(resumed, json.loads(json.dumps(get_state(stopped))))
            stopped = resumed
        for model in (whole, stopped):
            model.update(x, y, np.full_like(model.predict(x), 0.25))
        np.testing.assert_array_equal(whole.predict(x), stopped.predict(x), strict=True)


@pytest.mark.parametrize("name", ["linear", "sgd", "forest", "torch adam", "vw adaptive"])
def test_a_pickled_model_learns_on_as_if_it_had_never_moved(name):
    """As one does that is dealt out to an actor, and comes back from it."""
    whole = SAVED[name][0]()
    # A network's optimiser is made by a lambda, which Ray's own pickle takes along.
    pickler = pytest.importorskip("ray.cloudpickle") if "torch" in name else pickle
    random = np.random.default_rng(1)
    for number in range(8):
        x, y = random.normal(size=(4, 3)), random.normal(size=4)
        whole.update(x, y, np.full_like(whole.predict(x), 0.25))
        if number == 3:
            moved = pickler.loads(pickler.dumps(whole))
        elif number > 3:
            moved.update(x, y, np.full_like(moved.predict(x), 0.25))
            np.testing.assert_array_equal(whole.predict(x), moved.predict(x), strict=True)


def test_a_network_draws_from_a_stream_of_its_own():
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    model, x = network(), np.ones((4, 3))
    before = torch.get_rng_state()
    model.update(x, np.ones(4), np.zeros(4))
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(before, model._random)


UNSAVED = {
    "nothing to save it by": (lambda: ct, "has no get_state and set_state"),
    "numpy's stream": (lambda: lm.PartialFit(SGDRegressor()), "random_state is None.; give it a number"),
    "a stream of somebody's": (lambda: lm.Refit(RandomForestRegressor(random_state=np.random.RandomState(0))),
                               "a stream that others may share"),
    "an optimiser inside": (lambda: lm.PartialFit(MLPRegressor(hidden_layer_sizes=(4,), random_state=0)),
                            "keeps _\\w+, a \\w+, which is no array, number or word"),
    "a warm start": (lambda: lm.Refit(RandomForestRegressor(random_state=0, warm_start=True)), "warm_start"),
    "a reduction that is not kept": (lambda: vowpal("--nn 3"), "with --nn 3 does not learn on from what it saves"),
    "an optimiser with lists": (lambda: network("LBFGS"), "closure"),
}


@pytest.mark.parametrize("name", UNSAVED)
def test_a_model_that_cannot_be_saved_says_why(name):
    make, words = UNSAVED[name]
    assert re.search(words, why_not_saved(make()))


class Watching(ct.Callback):
    """Hears everything, and does something after one step."""

    def __init__(self, at=None, act=None):
        self.sentences, self.at, self.act = [], at, act

    def noticed(self, sentence):
        if not sentence.startswith("no regret"):  # nobody knows the best local models in hindsight: said in every run
            self.sentences.append(sentence)

    def advanced(self, round, rounds):
        if round == self.at:
            self.act()


def refuse():
    raise KeyboardInterrupt


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("act, precision", [(interrupt, "float32"), (refuse, "float64")],
                         ids=["Ctrl-C", "an exception"])
def test_an_interrupted_run_ends_with_the_same_bits(act, precision, tmp_path):
    whole = play(tmp_path / "whole", precision=precision)
    watching = Watching(15, act)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", precision=precision, callbacks=[watching])
    assert watching.sentences == (["stopped after round 15; go on with run_with_models(..., out=..., resume=True)."]
                                  if act is interrupt else [])
    resumed = play(tmp_path / "run", precision=precision, resume=True)
    assert digest(resumed) == digest(whole)
    assert resumed.summary["rounds"] == 30


def newest(folder):
    """The step of the newest checkpoint that is whole."""
    return max((int(path.stem) for path in (folder / "checkpoints").glob("*.npz")), default=-1)


def test_a_run_that_is_done_is_given_back(tmp_path):
    whole = play(tmp_path / "run")
    assert digest(play(tmp_path / "run", resume=True)) == digest(whole)


def test_one_that_was_killed_before_its_first_checkpoint_begins_anew(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", callbacks=[Watching(1, refuse)], factory=spoiled_at_once)
    assert newest(tmp_path / "run") == -1
    resumed = play(tmp_path / "run", resume=True, factory=spoiled_at_once)
    assert digest(resumed) == digest(play(None, factory=spoiled_at_once))
    assert resumed.history[0]["rejected_clients"] == ["client2"]


class Spoiled(lm.Linear):
    """Predicts NaN from some question on; a resumed one counts on."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def predict(self, x):
        self.left -= 1
        return super().predict(x) if self.left >= 0 else np.full(len(x), np.nan)

    def get_state(self):
        return super().get_state() | {"left": np.array(self.left)}

    def set_state(self, state):
        super().set_state(state)
        self.left = int(state["left"])


def spoiled_at_once(name):
    return Spoiled(0 if name == "client2" else 10**6)


def spoiled_later(name):
    return Spoiled({"client2": 12, "client4": 50}.get(name, 10**6))


def test_who_was_left_out_stays_left_out(tmp_path):
    """One client before the interruption, one after it."""
    heard, again = Watching(15, interrupt), Watching()
    whole = play(None, factory=spoiled_later)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", factory=spoiled_later, callbacks=[heard])
    resumed = play(tmp_path / "run", factory=spoiled_later, resume=True, callbacks=[again])
    assert digest(resumed) == digest(whole)
    assert resumed.final["rejected_clients"] == ["client2", "client4"]
    assert [model is None for model in resumed.model.models] == [index in (2, 4) for index in range(7)]
    assert [("client2" in sentence, "client4" in sentence) for sentence in heard.sentences[:-1]] == [(True, False)]
    assert [("client2" in sentence, "client4" in sentence) for sentence in again.sentences] == [(False, True)]


OTHERS = {"client1": "client2", "client2": "client1"}


def test_a_run_of_other_models_is_refused(tmp_path):
    play(tmp_path / "run", rounds=9)
    with pytest.raises(ct.InputError, match=r"holds another study: its models\.\w+ is \d, here it is"):
        play(tmp_path / "run", resume=True, factory=lambda name: lm.Linear())
    with pytest.raises(ct.InputError, match="client 'client1' has brought a SGDRegressor to this run, and now"):
        play(tmp_path / "run", resume=True, factory=lambda name: make_model(OTHERS.get(name, name)))


def test_models_that_cannot_be_saved_begin_anew_and_say_so_at_once(tmp_path):
    def factory(name):
        return lm.PartialFit(SGDRegressor()) if name == "client3" else lm.Linear()

    heard, again = Watching(15, interrupt), Watching()
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", factory=factory, callbacks=[heard], batch=1)
    assert len(heard.sentences) == 1 and re.match(
        "this run leaves no checkpoints, because a local model cannot be saved: SGDRegressor draws from numpy's common "
        ".*; it cannot be resumed.", heard.sentences[0])
    resumed = play(tmp_path / "run", factory=factory, callbacks=[again], batch=1, resume=True)
    assert len(again.sentences) == 1 and again.sentences[0].endswith("starting from step 0.")
    assert digest(resumed) == digest(play(None, factory=factory, batch=1)), "one row at a time, its stream is not used"
    assert newest(tmp_path / "run") == -1


def test_a_damaged_model_falls_back_to_the_checkpoint_before(tmp_path):
    whole = play(None)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", callbacks=[Watching(15, refuse)])
    last = tmp_path / "run" / "checkpoints" / f"{newest(tmp_path / 'run')}.npz"
    with np.load(last) as file:
        entries = dict(file)
    place = entries["about"].tobytes().index(b'"bytes"') + 12  # in the middle of an array
    entries["about"][place] = ord("B") if entries["about"][place] == ord("A") else ord("A")
    np.savez(last, **entries)
    watching = Watching()
    resumed = play(tmp_path / "run", resume=True, callbacks=[watching])
    assert [sentence for sentence in watching.sentences if "is damaged" in sentence]
    assert digest(resumed) == digest(whole)


def test_an_error_while_a_model_is_saved_says_whose_it_is(tmp_path):
    class Odd(lm.Linear):
        def get_state(self):
            return {"thoughts": np.array([object()])}

    with pytest.raises(TypeError, match="keeps thoughts, which is no array of numbers or words") as found:
        play(tmp_path / "run", factory=lambda name: Odd() if name == "client5" else lm.Linear())
    assert found.value.__notes__ == ["in the local model of client 'client5'"]
