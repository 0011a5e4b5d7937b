"""A perceptron on handwritten digits."""

from collections import OrderedDict
from functools import cache

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Sequential):
    """A perceptron."""

    def __init__(self):
        super().__init__(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))


@cache
def digits():
    """Return 1,797 digits, in the same order on every node."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(data.data / 16.0, dtype=torch.float32)
    return x[order], torch.tensor(data.target)[order]


def load_data(partition_id, num_partitions):
    """Return this node's training data."""
    x, y = (part[:1400][partition_id::num_partitions] for part in digits())
    return DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)


def get_weights(net):
    """Return the weights as arrays."""
    return [value.cpu().numpy() for value in net.state_dict().values()]


def set_weights(net, parameters):
    """Set the weights from arrays."""
    pairs = zip(net.state_dict().keys(), parameters, strict=True)
    net.load_state_dict(OrderedDict({key: torch.tensor(value) for key, value in pairs}), strict=True)


def train(net, trainloader, epochs):
    """Train; return the mean loss of every epoch."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    net.train()
    losses = []
    for _ in range(epochs):
        total = 0.0
        for x, y in trainloader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(trainloader))
    return losses


def test(net):
    """Return loss and accuracy on the server's test data."""
    x, y = (part[1400:] for part in digits())
    net.eval()
    with torch.no_grad():
        logits = net(x)
    return float(F.cross_entropy(logits, y)), float((logits.argmax(1) == y).float().mean())
