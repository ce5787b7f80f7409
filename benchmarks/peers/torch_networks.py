"""The three networks in PyTorch, for the peers that are built on it."""

from __future__ import annotations

from torch import nn


def network(name: str) -> nn.Sequential:
    if name == "linear":
        return nn.Sequential(nn.Linear(100, 10))
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 62))
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(14 * 14 * 64, 128), nn.ReLU(), nn.Linear(128, 10))


def channels_first(inputs):
    """Images as PyTorch wants them; other inputs as they are."""
    return inputs.transpose(0, 3, 1, 2).copy() if inputs.ndim == 4 else inputs
