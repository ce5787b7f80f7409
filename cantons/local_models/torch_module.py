"""A PyTorch module as a local model. Needs `pip install 'cantons[torch]'`; PyTorch is imported when one is made."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from cantons.errors import one_of, positive
from cantons.local_models.linear import LOSSES
from cantons.optional import optional_import


class Torch:
    """A module that lowers the loss of shared_prediction + its own output by an optimiser of its own.

    `loss` is the problem's: "squared", "logistic" (labels -1 and 1), or "softmax" for a module with one output per
    class. `optimizer` makes one from the parameters, such as lambda parameters: torch.optim.Adam(parameters, 0.01);
    SGD with `step_size` by default. The module is copied, stays on its device and keeps its precision.
    """

    def __init__(self, module: Any, *, loss: str = "squared", step_size: float = 0.01,
                 optimizer: Callable[[Any], Any] | None = None):
        one_of("loss", loss, LOSSES)
        positive("step_size", step_size)
        self._torch: Any = optional_import("torch", "torch", user="this local model")
        self.module, self.loss = copy.deepcopy(module), loss
        parameters = list(self.module.parameters())
        self.optimizer = optimizer(parameters) if optimizer else self._torch.optim.SGD(parameters, lr=step_size)
        self._like = {"dtype": parameters[0].dtype, "device": parameters[0].device}

    def predict(self, x: np.ndarray) -> np.ndarray:
        self.module.eval()
        with self._torch.no_grad():
            return self._outputs(x).cpu().numpy()

    def update(self, x: np.ndarray, y: np.ndarray, shared_prediction: np.ndarray) -> None:
        self.module.train()
        self.optimizer.zero_grad()
        self._mean_loss(self._tensor(shared_prediction) + self._outputs(x), y).backward()
        self.optimizer.step()

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
