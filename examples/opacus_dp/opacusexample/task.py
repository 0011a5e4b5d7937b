"""Sample-level differential privacy with Opacus, on handwritten digits."""

import warnings
from functools import cache

import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# Opacus and torch speak of backward hooks and of its random numbers, on every call.
warnings.filterwarnings("ignore", module="opacus")
warnings.filterwarnings("ignore", module="torch")


class Net(nn.Sequential):
    """A perceptron."""

    def __init__(self):
        super().__init__(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@cache
def digits():
    """Return 1,797 digits, in the same order on every node."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(data.data / 16.0, dtype=torch.float32)
    return x[order], torch.tensor(data.target)[order]


def load_data(partition_id, num_partitions, batch_size):
    """Return this node's training data."""
    x, y = (part[:1400][partition_id::num_partitions] for part in digits())
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)


def train(net, trainloader, epochs, noise_multiplier, max_grad_norm, delta):
    """Train with DP-SGD; return the epochs done, the steps, and the epsilon spent."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    engine = PrivacyEngine(secure_mode=False)
    private, optimizer, loader = engine.make_private(
        module=net,
        optimizer=optimizer,
        data_loader=trainloader,
        noise_multiplier=noise_multiplier,
        max_grad_norm=max_grad_norm,
    )
    private.train()
    done = steps = 0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(private(x), y).backward()
            optimizer.step()
            steps += 1
        done += 1
    return done, steps, engine.get_epsilon(delta)


def test(net):
    """Return the accuracy on the server's test data."""
    x, y = (part[1400:] for part in digits())
    net.eval()
    with torch.no_grad():
        return float((net(x).argmax(1) == y).float().mean())
