"""Studies in TOML: what can be written, and the sentence for everything that cannot."""

from pathlib import Path

import numpy as np
import pytest

import cantons as ct
from cantons.study.read import read_study

STUDY = """
rounds = 2
cohort = 5

[data]
name = "digits"
clients = 12

[problem]
name = "classification"
model = { name = "mlp", hidden = [4] }

[algorithm]
name = "fedavg"
batch_size = 8
"""

BAD = {
    "algorithm.name=fedavgg": "algorithm.name: unknown algorithm 'fedavgg'. Did you mean 'fedavg'? Known: central,",
    "algorithm.stepsize=1.0": "unknown option in [algorithm] 'stepsize'. Did you mean 'step_size'?",
    "algorithm.step_size=big": "algorithm.step_size = 'big'; give a valid number",
    "algorithm.step_size=-1.0": "algorithm.step_size = -1.0; give a number above 0",
    "algorithm.epochs=2.5": "algorithm.epochs = 2.5; give a valid integer",
    "algorithm.epochs=0": "algorithm.epochs = 0; give 1 or more",
    "algorithm.weighting=wealth": "algorithm.weighting = 'wealth'; give 'examples' or 'uniform'",
    'algorithm.step_size={name="liner"}': "unknown schedule 'liner'. Did you mean 'linear'?",
    'algorithm.step_size={name="linear", peak=1.0}': "linear needs the option rounds",
    "algorithm.client_optimizer=sdg": "unknown optimizer 'sdg'. Did you mean 'sgd'?",
    'algorithm.client_optimizer={name="adam"}': "client_optimizer",
    "cohort=100": "cohort is 100 but there are only 12 clients",
    "cohort=-3": "cohort = -3; give 1 or more",
    "rounds=1.5": "rounds = 1.5; give a valid integer",
    "roundz=3": "unknown key 'roundz'. Did you mean 'rounds'?",
    "precision=float16": "precision = 'float16'; give 'float32' or 'float64'",
    "data.name=digit": "data.name: unknown data 'digit'. Did you mean 'digits'?",
    "data.name=moving": "data.name: unknown data 'moving'. Did you mean 'drifting_targets'?",
    "data.name=blended": "data.name: unknown data 'blended'. Did you mean 'synthetic_mixture'?",
    "data.clients=many": "data.clients = 'many'; give a valid integer",
    "data.clients=100000": "at most",
    "data.partition=dirichlett": "data.partition = 'dirichlett'; give 'tasks', 'iid', 'dirichlet' or 'shards'",
    "data.name=nowhere:data": "cannot find the data 'nowhere:data'",
    'data={name="npz", path="nope.npz"}': "nope.npz",
    "problem.model=mpl": "unknown model 'mpl'. Did you mean 'mlp'?",
    "problem.model.hiden=[3]": "unknown option in [problem.model] 'hiden'. Did you mean 'hidden'?",
    "problem.split=layer9/*": "split is 'layer9/*', which matches no parameter",
    "problem.split=all": "fedavg needs a shared part",
    "engine.mode=fast": "engine.mode = 'fast'; give 'auto', 'scan' or 'vmap'",
    "clock.cohort=99": "cohort or clock",
}


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.mark.parametrize("change, sentence", BAD.items(), ids=list(BAD))
def test_bad_input_names_file_key_value_and_what_is_allowed(study, change, sentence):
    from cantons.cli.changes import parsed

    with pytest.raises(ct.InputError) as error:
        read_study(study, parsed([change])).run()
    assert str(error.value).startswith(str(study))
    assert sentence in str(error.value)


def test_a_study_is_what_the_same_call_in_python_is(study):
    data = ct.digits(clients=12)
    problem = ct.classification(data, ct.mlp(hidden=(4,)))
    called = ct.run(problem, data, ct.fedavg(batch_size=8), rounds=2, cohort=5)
    read = read_study(study).run()
    assert read.final["test.personal.loss.mean"] == called.final["test.personal.loss.mean"]


def test_a_study_may_name_parts_of_the_users_own(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import cantons as ct\n"
        "from cantons.recipe import algorithm, problem as a_problem\n"
        "from cantons.data import recorded\n"
        "@recorded\n"
        "def data(clients: int): return ct.synthetic(clients=clients, features=5, classes=3, largest=60)\n"
        "@a_problem\n"
        "def problem(data, width: int = 3): return ct.classification(data, ct.mlp(hidden=(width,)))\n"
        "@algorithm\n"
        "def method(problem, population, *, step_size: float = 0.1):\n"
        "    return ct.fedavg(step_size=step_size).build(problem, population)\n")
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(
        'rounds = 1\n[data]\nname = "mine:data"\nclients = 6\n[problem]\nname = "mine:problem"\nwidth = 2\n'
        '[algorithm]\nname = "mine:method"\nstep_size = 0.5\n')
    result = read_study(Path("study.toml")).run(out="run")
    assert result.final["round"] == 1
    inputs = result.model.data.test.inputs[:2]
    loaded = ct.load("run", trust=True)
    np.testing.assert_array_equal(loaded.outputs(inputs, client=1), result.outputs(inputs, client=1))
    with pytest.raises(ct.InputError, match="unknown option in \\[algorithm\\] 'step_sise'"):
        read_study(Path("study.toml"), {"algorithm.step_sise": 1.0})


def test_a_model_of_the_users_own_can_be_loaded_again(tmp_path, monkeypatch):
    (tmp_path / "tiny.py").write_text(
        "import cantons as ct\n"
        "from cantons.recipe import model\n"
        "@model\n"
        "def small(width: int = 3): return lambda shape, outputs: ct.mlp((width,))(shape, outputs)\n")
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY.replace('{ name = "mlp", hidden = [4] }', '{ name = "tiny:small", width = 2 }'))
    result = read_study(Path("study.toml")).run(out="run")
    inputs = result.model.data.test.inputs[:2]
    np.testing.assert_array_equal(ct.load("run", trust=True).outputs(inputs), result.outputs(inputs))


def test_data_files_are_found_beside_the_study(tmp_path):
    generator = np.random.default_rng(0)
    (tmp_path / "deep").mkdir()
    np.savez(tmp_path / "deep" / "mine.npz", x=generator.normal(size=(40, 3)), y=np.arange(40) % 2,
             who=np.arange(40) % 4)
    study = tmp_path / "deep" / "study.toml"
    study.write_text('rounds = 1\n[data]\nname = "npz"\npath = "mine.npz"\nclient = "who"\n'
                     '[problem]\nname = "logistic"\n[algorithm]\nname = "fedavg"\n')
    result = read_study(study).run(out=tmp_path / "run")
    assert result.model.data.population == 4
    assert ct.load(tmp_path / "run").outputs(np.zeros((1, 3)), client="2").shape == (1, 2)


@pytest.mark.parametrize("text, sentence", [
    ("rounds = ", "is not TOML"),
    ("rounds = 2", "has no [data] table"),
    ('rounds = 2\n[data]\nclients = 3\n[problem]\n[algorithm]\n', "[data] has no name"),
])
def test_broken_files_are_said_to_be_broken(tmp_path, text, sentence):
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(ct.InputError) as error:
        read_study(path)
    assert sentence in str(error.value)


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(ct.InputError, match="cannot read the study"):
        read_study(tmp_path / "none.toml")


def test_none_is_written_as_a_word_where_an_option_may_be_open(study):
    assert read_study(study, {"algorithm.batch_size": "none"}).tables["algorithm"]["batch_size"] is None
    with pytest.raises(ct.InputError, match="algorithm.epochs = 'none'; give a valid integer"):
        read_study(study, {"algorithm.epochs": "none"})
