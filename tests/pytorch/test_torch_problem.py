"""PyTorch modules become problems, and come back: JAX computes what PyTorch computes, before and after training."""

import pickle
from itertools import pairwise

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.protocol import Batch

torch = pytest.importorskip("torch", reason="make test-extras installs it")
nn = torch.nn

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
DATA = ct.federation(RANDOM.normal(size=(60, 6, 6)).astype(np.float32), np.arange(60) % 3, np.arange(60) % 4, classes=3)
NAMES = DATA.clients.names


class Net(nn.Module):
    """A little of everything, of images without a channel; `scale` is a buffer, `shift` a tensor of nobody."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.GELU(), nn.GroupNorm(2, 4))
        self.attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=dropout, batch_first=True)
        self.classifier = nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor([0.5, 1.0, 2.0]))
        self.shift = torch.tensor([0.1, 0.2, 0.3])

    def forward(self, images):
        tokens = self.features(images.unsqueeze(1)).flatten(2).transpose(1, 2)
        tokens = tokens + torch.arange(tokens.shape[1])[:, None] / 10
        return self.classifier(self.attention(tokens).mean(1)) * self.scale + self.shift


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.output = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.output.weight = self.table.weight

    def forward(self, tokens):
        return self.output(self.table(tokens).mean(1))


def mlp(*widths):
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def by_torch(module, inputs):
    with torch.no_grad():
        return module(torch.as_tensor(inputs)).numpy()


MODULES = {"net": (Net, RANDOM.normal(size=(5, 6, 6)).astype(np.float32)),
           "tied": (Tied, RANDOM.integers(0, 5, (5, 3)).astype(np.int32)),
           "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), np.ones((5, 4), np.float32))}


@pytest.mark.parametrize("name", MODULES)
def test_outputs_and_gradients_are_those_of_pytorch(name):
    make, inputs = MODULES[name]
    module = make()
    labels = np.array([0, 2, 1, 1, 0])
    problem = ct.from_torch(module, inputs[:2])
    params, nothing = problem.init(KEY)
    np.testing.assert_allclose(problem.predict(params, nothing, inputs), by_torch(module.eval(), inputs), atol=1e-5)
    found = jax.jit(jax.grad(problem.loss))(params, nothing, Batch(inputs, labels, np.ones(5, np.float32)))
    nn.functional.cross_entropy(module(torch.as_tensor(inputs)), torch.as_tensor(labels)).backward()
    wanted = {name: value.grad.numpy() for name, value in module.named_parameters()}
    assert found.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("split", "recipe"), [
    ("none", ct.fedavg(step_size=0.1, batch_size=5)), ("classifier.*", ct.fedavg(step_size=0.1, batch_size=5)),
    ("*.bias", ct.ffgg(step_size=0.1)), ("adapter", ct.fedavg(step_size=0.1, batch_size=5))])
def test_a_trained_module_computes_what_its_client_predicts(split, recipe, tmp_path):
    module = Net(dropout=0.2)
    before = by_torch(module.eval(), DATA.train.inputs)
    problem = ct.from_torch(module.train(), DATA.train.inputs[:2], split=split)
    result = ct.run(problem, DATA, recipe, rounds=3, progress=False, out=tmp_path / "run")
    loaded = ct.load(tmp_path / "run", problem=problem, algorithm=recipe, data=DATA)
    answers = {}
    for client in (None, *NAMES[:2]):
        back = ct.to_torch(module, result, client)
        assert not back.training
        answers[client] = by_torch(back, DATA.test.inputs)
        np.testing.assert_allclose(answers[client], result.outputs(DATA.test.inputs, client), atol=1e-5)
        np.testing.assert_array_equal(by_torch(ct.to_torch(module, loaded, client), DATA.test.inputs), answers[client])
    assert np.allclose(answers[NAMES[0]], answers[NAMES[1]]) == (split == "none")
    assert module.training
    np.testing.assert_array_equal(by_torch(module.eval(), DATA.train.inputs), before)  # the user's own has not moved


def test_a_run_of_a_torch_mlp_is_the_run_of_our_mlp():
    module = mlp(36, 8, 3)
    ours = ct.mlp(hidden=[8])((6, 6), 3)
    arrays = [value.detach().numpy().T for value in module.parameters()]
    weights = {f"layer{i}": dict(zip(("weight", "bias"), arrays[2 * i:2 * i + 2], strict=True)) for i in (0, 1)}
    problems = {"3.*": ct.from_torch(module, DATA.train.inputs[:2], split="3.*"),
                "layer1/*": ct.from_functions(lambda key: weights, ours.apply, split="layer1/*")}
    work = ct.fedavg(step_size=0.1, epochs=2, batch_size=5)
    results = [ct.run(problem, DATA, work, rounds=4, cohort=3, progress=False) for problem in problems.values()]
    for client in (None, *NAMES):
        np.testing.assert_allclose(*(result.outputs(DATA.test.inputs, client) for result in results), atol=1e-5)
    assert results[0].final["bytes_per_client"] == results[1].final["bytes_per_client"]


def test_dropout_has_a_key_in_training_and_none_to_predict():
    batch = Batch(DATA.train.inputs[:6], np.arange(6) % 3, np.ones(6, np.float32))
    problem = ct.from_torch(Net(dropout=0.5), batch.inputs)
    assert problem.draws and not ct.from_torch(Net(), batch.inputs).draws
    params = problem.init(KEY)
    loss = jax.jit(problem.loss)
    with_a_key, again, another = (loss(*params, batch._replace(key=key)) for key in (KEY, KEY, jax.random.key(1)))
    assert with_a_key == again != another
    scores = jax.jit(problem.score)(*params, batch._replace(key=KEY))
    np.testing.assert_allclose(scores["loss"].mean(), loss(*params, batch), rtol=1e-5)


class Doubled(nn.Linear):
    """Its outputs are twice as large in training."""

    def forward(self, inputs):
        return super().forward(inputs) * (2 if self.training else 1)


@pytest.mark.parametrize("mode", [True, False])
def test_modes_are_those_of_training_and_prediction_whatever_the_module_was_in(mode):
    inputs = np.ones((3, 4), np.float32)
    problem = ct.from_torch(Doubled(4, 3).train(mode), inputs, loss="squared")
    params, batch = problem.init(KEY), Batch(inputs, np.zeros((3, 3), np.float32), np.ones(3, np.float32))
    plain = (problem.predict(*params, inputs) ** 2).sum(axis=1).mean()
    np.testing.assert_allclose([problem.loss(*params, batch), problem.loss(*params, batch._replace(key=KEY))],
                               [plain, 4 * plain], rtol=1e-5)


def test_what_needs_no_gradient_stays_and_later_changes_are_not_seen():
    module = mlp(36, 8, 3)
    module[1].requires_grad_(False)
    problem = ct.from_torch(module, DATA.train.inputs[:2])
    assert set(problem.init(KEY)[0]) == {"3.weight", "3.bias"}
    frozen, before = module[1].weight.clone(), by_torch(module, DATA.train.inputs)
    with torch.no_grad():
        module[3].weight.zero_()
    np.testing.assert_allclose(problem.predict(*problem.init(KEY), DATA.train.inputs), before, atol=1e-5)
    result = ct.run(problem, DATA, ct.fedavg(step_size=0.5), rounds=1, progress=False)
    back = ct.to_torch(module, result)
    assert torch.equal(back[1].weight, frozen) and not torch.equal(back[3].weight, module[3].weight)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_trained_in_single_and_put_back_in_half(half):
    module = mlp(36, 8, 3).to(half)
    problem = ct.from_torch(module, DATA.train.inputs[:2])
    assert {leaf.dtype for leaf in jax.tree.leaves(problem.init(KEY))} == {np.dtype("float32")}
    result = ct.run(problem, DATA, ct.fedavg(step_size=0.1), rounds=1, progress=False)
    assert ct.to_torch(module, result, NAMES[0])[1].weight.dtype == half


def test_inputs_of_several_arrays_are_given_by_name():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(2, 3), nn.Linear(4, 3)

        def forward(self, left, right):
            return self.left(left) - self.right(right)

    module = Both()
    inputs = {side: RANDOM.normal(size=(5, width)).astype(np.float32) for side, width in (("right", 4), ("left", 2))}
    problem = ct.from_torch(module, inputs)
    wanted = module(**{name: torch.as_tensor(value) for name, value in inputs.items()}).detach().numpy()
    np.testing.assert_allclose(problem.predict(*problem.init(KEY), inputs), wanted, atol=1e-5)


def test_the_split_norm_finds_layers_that_normalise():
    private = ct.from_torch(Net(), DATA.train.inputs[:2], split="norm").init(KEY)[1]
    layers = "features.2", "attention.norm1", "attention.norm2"
    assert {name for name, value in private.items() if value is not None} == {
        f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}


def test_a_problem_travels_to_other_processes():
    cloudpickle = pytest.importorskip("cloudpickle")
    problem = ct.from_torch(Net(dropout=0.5), DATA.train.inputs[:2], split="classifier.*")
    copied = pickle.loads(cloudpickle.dumps(problem))
    batch = Batch(DATA.train.inputs[:4], np.arange(4) % 3, np.ones(4, np.float32), key=KEY)
    np.testing.assert_array_equal(problem.loss(*problem.init(KEY), batch), copied.loss(*copied.init(KEY), batch))
