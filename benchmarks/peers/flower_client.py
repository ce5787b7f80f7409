"""A Flower client in the manner of Flower's PyTorch quickstart: load the model, train it, send it back."""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from contender import random_clients
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.utils.data import DataLoader, TensorDataset
from torch_networks import channels_first, network

app = ClientApp()


@cache  # once in each of the processes that play clients
def datasets(description: str) -> tuple[SimpleNamespace, list[TensorDataset]]:
    work = SimpleNamespace(**json.loads(description))
    return work, [TensorDataset(torch.from_numpy(channels_first(inputs)), torch.from_numpy(labels))
                  for inputs, labels in random_clients(work, np.int64)]


@app.train()
def train(message: Message, context: Context) -> Message:
    work, clients = datasets(message.content["config"]["workload"])
    own = clients[context.node_config["partition-id"]]
    net = network(work.model)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), work.step_size)
    cross_entropy = torch.nn.CrossEntropyLoss()
    for inputs, labels in DataLoader(own, batch_size=work.batch, shuffle=True):
        optimizer.zero_grad()
        cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    answer = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(own)})}
    return Message(RecordDict(answer), reply_to=message)
