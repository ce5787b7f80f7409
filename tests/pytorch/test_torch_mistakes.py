"""What cannot be done with a PyTorch module is said in a sentence, when the problem is made."""

import numpy as np
import pytest

import cantons as ct

torch = pytest.importorskip("torch", reason="make test-extras installs it")
nn = torch.nn

ROWS = np.ones((2, 4), np.float32)


class Custom(nn.Module):
    """A linear layer with one more thing that it does."""

    def __init__(self, more):
        super().__init__()
        self.layer, self.more = nn.Linear(4, 3), more
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, inputs):
        return self.layer(self.more(self, inputs))


def keep(self, inputs):
    if self.training:
        self.seen = self.seen + inputs.mean(0)
    return inputs


def write(self, inputs):
    self.seen += inputs.mean(0)
    return inputs


def with_layer(layer):
    return nn.Sequential(nn.Linear(4, 4), layer)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: with_layer(nn.BatchNorm1d(4)), "has a BatchNorm1d, '1': .* use group or layer normalisation"),
    (lambda: with_layer(nn.BatchNorm1d(4, track_running_stats=False)), "has a BatchNorm1d"),
    (lambda: with_layer(nn.InstanceNorm1d(4, track_running_stats=True)), "has a InstanceNorm1d, '1'"),
    (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), r"changes parametrizations.weight.0._u"),
    (lambda: Custom(keep), "changes seen when it is called"),
    (lambda: Custom(write), "changes seen when it is called"),
    (lambda: Custom(lambda self, inputs: nn.functional.dropout(inputs, 0.5)), "draws at random in evaluation mode"),
    (lambda: Custom(lambda self, inputs: inputs if inputs.sum() > 0 else -inputs), "cannot trace .* no `if` on them"),
    (lambda: Custom(lambda self, inputs: inputs * inputs.mean().item()), "cannot trace"),
    (lambda: Custom(lambda self, inputs: inputs.reshape(2, 4)), "cannot trace .* with a batch of 3"),
    (lambda: nn.Linear(5, 3), "cannot be called with the example .RuntimeError: mat1 and mat2"),
    (lambda: with_layer(nn.Flatten(0)), r"an output of shape \(8,\) for a batch of 2; let it give one tensor"),
    (lambda: nn.LSTM(4, 3), "gives a tuple for a batch of 2"),
    (lambda: nn.Flatten(), "no parameter that requires a gradient"),
    (lambda: nn.Linear(4, 3).requires_grad_(False), "no parameter that requires a gradient"),
    (lambda: nn.Linear, r"got a type; give a torch.nn.Module, such as Net\(\)"),
])
def test_a_module_that_cannot_be_trained_is_refused(make, words):
    with pytest.raises(ct.InputError, match=words):
        ct.from_torch(make(), ROWS)


def test_names_that_match_nothing_are_refused_with_those_there_are():
    with pytest.raises(ct.InputError, match=r"'head.\*', which matches no parameter; there are bias, weight"):
        ct.from_torch(nn.Linear(4, 3), ROWS, split="head.*")


@pytest.mark.parametrize("loss", [
    nn.CrossEntropyLoss(), nn.functional.cross_entropy,
    lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")])
def test_a_loss_of_pytorch_is_refused_with_the_names_of_ours(loss):
    problem = ct.from_torch(nn.Linear(4, 3), ROWS, loss=loss)
    data = ct.federation(np.ones((8, 4), np.float32), np.arange(8) % 3, np.arange(8) % 2, classes=3)
    with pytest.raises(ct.InputError, match="the loss is PyTorch's .* give loss=\"softmax\" in place of"):
        ct.run(problem, data, ct.fedavg(), rounds=1, progress=None)


def test_rows_of_another_shape_than_the_example_s_are_refused_unless_the_module_takes_them():
    flat, images = (np.ones((8, *shape), np.float32) for shape in ((4,), (4, 4)))
    problem = ct.from_torch(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), ROWS)
    problem.check_inputs(flat.reshape(8, 2, 2))
    data = ct.federation(images, np.arange(8) % 3, np.arange(8) % 2, classes=3)
    with pytest.raises(ct.InputError, match=r"has shape \(4, 4\), .* rows of shape \(4,\); it does not take both"):
        ct.run(problem, data, ct.fedavg(), rounds=1, progress=False)


def test_an_operation_that_torchax_gets_wrong_is_noticed(monkeypatch):
    from cantons.problem import torchax_environment

    def doubled(*args):
        called = call_module(*args)
        return called._replace(outputs=2 * called.outputs)

    call_module = torchax_environment.call_module
    monkeypatch.setattr("cantons.problem.pytorch.call_module", doubled)
    with pytest.raises(ct.InputError, match="other outputs of the PyTorch module than PyTorch: they differ by"):
        ct.from_torch(nn.Linear(4, 3), ROWS)


def test_weights_are_put_back_into_a_module_like_that_of_the_run_only():
    data = ct.federation(np.ones((8, 4), np.float32), np.arange(8) % 3, np.arange(8) % 2, classes=3)
    result = ct.run(ct.from_torch(nn.Linear(4, 3), ROWS), data, ct.fedavg(), rounds=1, progress=False)
    of_ours = ct.run(ct.logistic(data), data, ct.fedavg(), rounds=1, progress=False)
    for module, run in ((nn.Linear(4, 2), result), (nn.Linear(4, 3, bias=False), result), (nn.Linear(4, 3), of_ours)):
        with pytest.raises(ct.InputError, match="the run was not one of this module"):
            ct.to_torch(module, run)
    with pytest.raises(ct.InputError, match="client"):
        ct.to_torch(nn.Linear(4, 3), result, "nobody")


def test_neither_pytorch_nor_torchax_is_left_changed():
    ct.from_torch(nn.Linear(4, 3), ROWS)
    import torchax

    assert not hasattr(torch.ops.aten.prod, "dim_Dimname") and torchax._env is None
    assert torch.get_default_device().type == "cpu" and type(torch.ones(2) + torch.ones(2)) is torch.Tensor
