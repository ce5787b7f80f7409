"""A PyTorch module as a local model. Needs `pip install 'cantons[torch]'`; PyTorch is imported when one is made."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from cantons.errors import one_of, positive
from cantons.local_models.linear import LOSSES
from cantons.optional import optional_import


class Torch:
    """A module that lowers the loss of shared_prediction + its own output by an optimiser of its own.

    `loss` is the problem's: "squared", "logistic" (labels -1 and 1), or "softmax" for a module with one output per
    class. `optimizer` makes one from the parameters, such as lambda parameters: torch.optim.Adam(parameters, 0.01);
    SGD with `step_size` by default. The module is copied, stays on its device and keeps its precision. What it draws
    at random while it learns, as dropout does, it draws from a stream of its own, which is saved with it.
    """

    def __init__(self, module: Any, *, loss: str = "squared", step_size: float = 0.01,
                 optimizer: Callable[[Any], Any] | None = None):
        one_of("loss", loss, LOSSES)
        positive("step_size", step_size)
        self._torch: Any = optional_import("torch", "torch", user="this local model")
        self.module, self.loss = copy.deepcopy(module), loss
        self._make_optimizer = optimizer or (lambda parameters: self._torch.optim.SGD(parameters, lr=step_size))
        parameters = list(self.module.parameters())
        self.optimizer = self._make_optimizer(parameters)
        self._like = {"dtype": parameters[0].dtype, "device": parameters[0].device}
        self._random = self._get_random()

    def predict(self, x: np.ndarray) -> np.ndarray:
        self.module.eval()
        with self._torch.no_grad():
            return self._outputs(x).cpu().numpy()

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        self.module.train()
        self.optimizer.zero_grad()
        with self._own_random():
            self._mean_loss(self._tensor(shared_prediction) + self._outputs(x), y).backward()
            self.optimizer.step()

    def get_state(self) -> dict[str, np.ndarray]:
        tensors = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            # Without momentum its buffer is None.
            tensors |= {f"optimizer.{index}.{name}": value for name, value in values.items() if value is not None}
        for name, value in tensors.items():
            if not self._torch.is_tensor(value):
                raise TypeError(f"keeps {name}, which is no tensor")
        # Copied, because a tensor on a CPU shares its memory with its array.
        return {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()} | {
            "random": self._random.numpy().copy()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        tensors = {name: self._torch.from_numpy(array) for name, array in state.items()}
        self._random = tensors.pop("random")
        module: dict[str, Any] = {}
        moments: dict[int, dict[str, Any]] = {}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            if part == "module":
                module[rest] = value
            else:
                index, _, key = rest.partition(".")
                moments.setdefault(int(index), {})[key] = value
        self.module.load_state_dict(module)
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})

    def why_not_saved(self) -> str:
        return self._trial

    @cached_property
    def _trial(self) -> str:
        """What an optimiser keeps is known when it has made a step: let a copy make one that leads nowhere."""
        trial = Torch(self.module, loss=self.loss, optimizer=self._make_optimizer)
        try:
            for parameter in trial.module.parameters():
                parameter.grad = self._torch.zeros_like(parameter)
            trial.optimizer.step()
            trial.get_state()
        except Exception as error:  # whatever a stranger's optimiser raises: it may run, and is not saved
            return str(error).splitlines()[0]
        return ""

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        """As a context: torch draws from this model's stream, and from its own again afterwards."""
        outside = self._get_random()
        self._set_random(self._random)
        try:
            yield
        finally:
            self._random = self._get_random()
            self._set_random(outside)

    def _get_random(self) -> Any:
        device = self._like["device"]
        return self._torch.cuda.get_rng_state(device) if device.type == "cuda" else self._torch.get_rng_state()

    def _set_random(self, state: Any) -> None:
        device = self._like["device"]
        if device.type == "cuda":
            self._torch.cuda.set_rng_state(state, device)
        else:
            self._torch.set_rng_state(state)

    def _outputs(self, x: np.ndarray) -> Any:
        outputs = self.module(self._tensor(x))
        return outputs if self.loss == "softmax" else outputs.reshape(len(x))

    def _mean_loss(self, outputs: Any, y: np.ndarray) -> Any:
        functions = self._torch.nn.functional
        if self.loss == "softmax":
            labels = self._torch.tensor(np.asarray(y, np.int64), device=outputs.device)
            return functions.cross_entropy(outputs, labels)
        if self.loss == "squared":
            return functions.mse_loss(outputs, self._tensor(y))
        return functions.softplus(-self._tensor(y) * outputs).mean()

    def _tensor(self, values: np.ndarray) -> Any:
        return self._torch.tensor(np.asarray(values), **self._like)
