"""PyTorch modules as problems, and back. Needs `pip install 'cantons[torch]'`; PyTorch is imported when one is given.

A module's parameters become arrays under their own names, such as "features.0.weight", and JAX traces its `forward`:
no step of a round runs in PyTorch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from glob import escape
from typing import Any

import jax
import numpy as np

from cantons.errors import InputError, first_line, listed, with_article
from cantons.models import Model
from cantons.problem.losses import PerExample
from cantons.problem.split import Split
from cantons.problem.torchax_environment import Called, call_module, import_torch
from cantons.problem.wrap import STATEFUL, problem_of
from cantons.protocol import Key, Problem, PyTree

TOLERANCE = 1e-3  # of the outputs on the example, as a part of the largest
NORMS = "LayerNorm", "GroupNorm", "RMSNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"
CANNOT_TRACE = ("JAX follows `forward` once, without values: no `if` on them, no .item() or .numpy(), and no shape "
                "that depends on them.")

Call = Callable[[PyTree, PyTree, bool, Key | None], Called]  # (params, inputs, training, key)


def from_torch(module: Any, example: PyTree, *, loss: str | PerExample = "softmax", split: Split = "none") -> Problem:
    """A problem from a `torch.nn.Module` and a batch of any inputs, as the module takes them.

    Runs begin with the weights that the module has now. `split` is a glob over the names of its parameters, such as
    "classifier.*", or as in `from_functions`; the split "norm" is that of its LayerNorm, GroupNorm, RMSNorm and
    InstanceNorm. The module is in training mode in training, where dropout gets a key, and in evaluation mode to
    predict. Buffers, and parameters without `requires_grad`, stay as they are. Inputs that are a mapping of arrays are
    given by keyword.
    """
    torch = import_torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"from_torch got {with_article(type(module).__name__)}; give a torch.nn.Module, such as "
                         "Net().")
    network = copy.deepcopy(module)  # what the user does with it later changes nothing here
    if any(value.is_floating_point() and value.element_size() < 4 for value in _tensors(torch, network).values()):
        network.float()  # half precision is for predictions
    _refuse_statistics(torch, network)
    trained = {name: _array(value) for name, value in network.named_parameters() if value.requires_grad}
    if not trained:
        raise InputError("the PyTorch module has no parameter that requires a gradient: there is nothing to train.")
    constants = {name: _array(value) for name, value in _tensors(torch, network).items() if name not in trained}

    def call(params, inputs, training, key):
        return call_module(network, {**params, **constants}, inputs, training, key)

    def apply(params, inputs):
        return call(params, inputs, False, None).outputs

    def train(params, inputs, key):
        return call(params, inputs, True, key).outputs

    batch = example if isinstance(example, Mapping) else torch.as_tensor(example)
    rows = jax.tree.map(lambda leaf: _array(torch.as_tensor(leaf)), batch)
    outputs = _call_in_torch(torch, network, rows)
    programs = [_trace(call, trained, rows, training) for training in (False, True)]
    _compare(_array(outputs), np.asarray(jax.jit(apply)(trained, rows)))
    norms = tuple(f"{escape(name)}.*" if name else "*" for name, part in network.named_modules()
                  if type(part).__name__ in NORMS and list(part.parameters()))
    problem = problem_of(Model(lambda key: trained, apply, norm_layers=norms, adapted="*weight",
                               train=None if programs[0] == programs[1] else train),
                         loss if isinstance(loss, str) else _of_arrays(loss), split)
    return problem._replace(check_inputs=lambda inputs: _check_rows(apply, trained, inputs, rows))


def to_torch(module: Any, trained: Any, client: int | str | None = None) -> Any:
    """A copy of `module` with trained weights, in evaluation mode: the shared ones, or those of one client.

    `trained` is what `ct.run` or `ct.load` gave back, of a problem that `from_torch` made from a module like this one.
    """
    torch = import_torch()
    model = getattr(trained, "model", trained)
    join = model.problem.join
    params = {} if join is None else join(*model.parts(client))
    copied = copy.deepcopy(module).eval()
    own = {name: value for name, value in copied.named_parameters() if value.requires_grad}
    shapes = {name: tuple(value.shape) for name, value in own.items()}
    if not isinstance(params, dict) or {name: np.shape(value) for name, value in params.items()} != shapes:
        raise InputError("the run was not one of this module: its parameters have other names or shapes; give "
                         "to_torch the module that from_torch got.")
    with torch.no_grad():
        for name, value in params.items():
            own[name].copy_(torch.from_numpy(np.array(value)))
    return copied


def _of_arrays(loss: PerExample) -> PerExample:
    """The same loss, which says what to do if it is one of PyTorch's."""
    def per_example(outputs: Any, targets: PyTree) -> Any:
        try:
            return loss(outputs, targets)
        except TypeError as error:
            if "must be Tensor" not in str(error):
                raise
            raise InputError("the loss is PyTorch's and takes tensors, but it gets arrays of JAX: give "
                             "loss=\"softmax\" in place of CrossEntropyLoss, \"squared\" or \"logistic\", or a "
                             "function in jax.numpy that gives one number per example.") from error

    return per_example


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _tensors(torch: Any, network: Any) -> dict[str, Any]:
    """All tensors that a module holds: parameters, buffers and plain attributes."""
    plain = {f"{prefix}.{name}".lstrip("."): value for prefix, part in network.named_modules()
             for name, value in vars(part).items() if isinstance(value, torch.Tensor)}
    return {**dict(network.named_parameters()), **dict(network.named_buffers()), **plain}


def _refuse_statistics(torch: Any, network: Any) -> None:
    for name, part in network.named_modules():
        kind = torch.nn.modules.batchnorm
        if isinstance(part, kind._BatchNorm) or (isinstance(part, kind._NormBase) and part.track_running_stats):
            raise InputError(f"the PyTorch module has a {type(part).__name__}, {name!r}: {STATEFUL}")


def _trace(call: Call, params: dict[str, np.ndarray], rows: PyTree, training: bool) -> str:
    """The program that JAX makes of the module, in which nothing may be kept, or drawn to predict."""
    called: Called
    for size in (2, 3):
        def outputs(params: PyTree, inputs: PyTree, key: Key) -> Any:
            nonlocal called
            called = call(params, inputs, training, key)
            return called.outputs

        inputs = jax.tree.map(lambda leaf, size=size: jax.ShapeDtypeStruct(
            (size, *leaf.shape[1:]), jax.dtypes.canonicalize_dtype(leaf.dtype)), rows)
        try:
            program = str(jax.make_jaxpr(outputs)(params, inputs, jax.random.key(0)))
        except Exception as error:  # whatever a stranger's module raises
            raise InputError(f"JAX cannot trace the PyTorch module with a batch of {size} ({first_line(error)}). "
                             f"{CANNOT_TRACE}") from error
        if called.changed:
            raise InputError(f"the PyTorch module changes {listed(called.changed)} when it is called; "
                             "clients have no common place for what a model keeps beside its parameters: let it keep "
                             "nothing.")
        if called.drew and not training:
            raise InputError("the PyTorch module draws at random in evaluation mode too; let it predict without: give "
                             "dropout training=self.training.")
        shape = getattr(called.outputs, "shape", None)
        if not shape or shape[0] != size:
            told = f"an output of shape {shape}" if shape is not None else with_article(type(called.outputs).__name__)
            raise InputError(f"the PyTorch module gives {told} for a batch of {size}; let it give one tensor with a "
                             "row for each row of its input.")
    return program


def _call_in_torch(torch: Any, network: Any, rows: PyTree) -> Any:
    like = next(network.parameters())

    def given(leaf: np.ndarray) -> Any:
        tensor = torch.from_numpy(leaf).to(like.device)
        return tensor.to(like.dtype) if tensor.is_floating_point() else tensor

    inputs = jax.tree.map(given, rows)
    try:
        with torch.no_grad():
            network.eval()
            return network(**inputs) if isinstance(inputs, Mapping) else network(inputs)
    except Exception as error:  # whatever a stranger's module raises
        raise InputError(f"the PyTorch module cannot be called with the example ({first_line(error)}); give a batch "
                         "of inputs as it takes them.") from error


def _compare(wanted: np.ndarray, found: np.ndarray) -> None:
    """Refuse a module of which JAX computes something else than PyTorch."""
    error, largest = np.abs(found - wanted).max(), np.abs(wanted).max()
    if not error <= TOLERANCE * max(largest, 1):
        raise InputError(f"JAX computes other outputs of the PyTorch module than PyTorch: they differ by {error:.2g} "
                         f"on the example, where the largest is {largest:.2g}; an operation in it is not the same in "
                         "torchax. Replace it.")


def _check_rows(apply: Callable[[PyTree, PyTree], Any], params: PyTree, inputs: PyTree, example: PyTree) -> None:
    """Refuse rows that the module does not take; those of other shapes than the example's may be welcome."""
    shapes = [jax.tree.map(lambda leaf: tuple(np.shape(leaf)[1:]), rows) for rows in (inputs, example)]
    if shapes[0] == shapes[1]:
        return
    try:
        jax.eval_shape(apply, params, inputs)
    except Exception as error:  # whatever a stranger's module raises
        raise InputError(f"a row of the inputs has shape {shapes[0]}, and the PyTorch module was given an example with "
                         f"rows of shape {shapes[1]}; it does not take both ({first_line(error)}).") from error
