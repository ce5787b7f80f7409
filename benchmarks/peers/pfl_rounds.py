"""FedAvg of pfl-research, with PyTorch; all clients' tensors are in memory before the clock starts."""

from __future__ import annotations

import types

import numpy as np
import torch
from contender import Windows, random_clients, workload
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import get_default_device
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch_networks import channels_first, network


class Clock(TrainingProcessCallback):
    def __init__(self, windows: Windows):
        self.windows = windows

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.windows.round_over()
        return False, Metrics()


def trainable(name: str) -> torch.nn.Module:
    """The network with the two methods pfl asks for."""
    net = network(name).to(get_default_device())
    cross_entropy = torch.nn.CrossEntropyLoss()
    net.loss = types.MethodType(lambda self, inputs, labels, eval=False: cross_entropy(self(inputs), labels), net)
    net.metrics = types.MethodType(lambda self, inputs, labels, eval=True: {}, net)
    return net


def main() -> None:
    work = workload()
    windows = Windows(work.window, "pfl", "torch", "numpy")
    device = get_default_device()
    users = [(torch.as_tensor(channels_first(inputs), device=device), torch.as_tensor(labels, device=device))
             for inputs, labels in random_clients(work, np.int64)]
    net = trainable(work.model)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=work.window * work.windows, train_cohort_size=work.cohort,
            evaluation_frequency=10**9, val_cohort_size=0),
        backend=SimulatedBackend(
            training_data=FederatedDataset.from_slices(users, get_user_sampler("random", range(work.clients))),
            val_data=None, postprocessors=[WeightByUser()]),
        model=PyTorchModel(model=net, local_optimizer_create=torch.optim.SGD,
                           central_optimizer=torch.optim.SGD(net.parameters(), 1.0)),
        model_train_params=NNTrainHyperParams(
            local_learning_rate=work.step_size, local_num_epochs=1, local_batch_size=work.batch),
        model_eval_params=NNEvalHyperParams(local_batch_size=100),
        callbacks=[Clock(windows)])


if __name__ == "__main__":
    main()
