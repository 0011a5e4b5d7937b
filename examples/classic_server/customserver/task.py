"""A perceptron with one hidden layer in plain numpy, fed in batches."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits


def init_params():
    """Return the weights and biases of 64-32-10."""
    rng = np.random.default_rng(0)
    return [rng.normal(0, 0.1, (64, 32)), np.zeros(32), rng.normal(0, 0.1, (32, 10)), np.zeros(10)]


@cache
def load_split():
    """Return the digits, in one order for everybody."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return data.data[order] / 16.0, data.target[order]


def load_data(partition_id, num_partitions):
    """Return this node's training data."""
    x, y = load_split()
    return x[:1400][partition_id::num_partitions], y[:1400][partition_id::num_partitions]


def forward(params, x):
    """Return the hidden layer and the probabilities."""
    w1, b1, w2, b2 = params
    hidden = np.maximum(x @ w1 + b1, 0)
    logits = hidden @ w2 + b2
    exp = np.exp(logits - logits.max(1, keepdims=True))
    return hidden, exp / exp.sum(1, keepdims=True)


def batches(x, y, size=16):
    """Return the data in batches."""
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]


def train(params, trainloader, epochs, lr=0.2):
    """Train by SGD; return new parameters and the mean loss of every epoch."""
    w1, b1, w2, b2 = (part.copy() for part in params)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for x, y in trainloader:
            hidden, p = forward((w1, b1, w2, b2), x)
            rows = np.arange(len(x))
            total -= np.log(p[rows, y] + 1e-12).mean()
            p[rows, y] -= 1
            p /= len(x)
            back = (p @ w2.T) * (hidden > 0)
            w2 -= lr * hidden.T @ p
            b2 -= lr * p.sum(0)
            w1 -= lr * x.T @ back
            b1 -= lr * back.sum(0)
        losses.append(total / len(trainloader))
    return [w1, b1, w2, b2], losses


def accuracy(params, x, y):
    """Return the share of right guesses."""
    return float((forward(params, x)[1].argmax(1) == y).mean())
