"""What the test apps of both APIs share: data, a small torch network, learners, the reference loop."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np

from flwr_mel import AllocationProblem, Device, Workload, allocate
from flwr_mel.orchestrator.planning import draw_seed
from flwr_mel.solvers import Exact

LEARNERS = 20
LAYERS = (784, 12, 10)
SEED = 3
CYCLE_TIME_S = 2.0
TOTAL = 800
STALENESS = 2
BATCH, RATE = 32, 0.1
PAPER = {"model_parameters": 280_440, "operations_per_sample": 1_123_736, "features": 784}


def workload(*, ship_data):
    # Labels are bytes too: the wire carries them, so the cost model counts them.
    return Workload(**PAPER, label_bits=8 if ship_data else 0, ship_data=ship_data)


def out():
    """Directory of this simulation; the simulated clients inherit it."""
    return Path(os.environ["LAB_OUT"])


def scenario():
    return os.environ["LAB_SCENARIO"]


def digits():
    """4,000 real digits as the server of parallelized learning holds them: pixels, labels, row numbers."""
    file = out() / "digits.npz"
    with np.load(file) as data:
        return data["x"], data["y"]


def rows_of(k):
    """A learner's own digits in federated learning."""
    return np.arange(k, 2000, LEARNERS)[: 60 + 2 * k]


def device(k, cycle):
    """Four classes of processors; limits change with the cycle, and learner 7 has no energy in cycle 2."""
    limit = 3.0 + ((7 * k + 3 * cycle) % 11) / 2
    if k == 7 and cycle == 2:
        limit = 1e-6
    return Device(
        cpu_hz=(6e9, 2.4e9, 1.4e9, 0.7e9)[k % 4],
        rate_bps=1.4e7 + 5e5 * k,
        tx_power_w=0.2,
        energy_limit_j=limit,
        max_samples=len(rows_of(k)),
    )


def normed():
    """A network with batch normalisation: its state has arrays of whole numbers without dimensions."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 4, 5, stride=3), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Flatten(), nn.Linear(4 * 64, 10),
    )  # fmt: skip


def train_normed(weights, x, y, epochs, rng):
    import torch

    network = normed()
    state = zip(network.state_dict(), weights, strict=True)
    network.load_state_dict({name: torch.tensor(array) for name, array in state})
    pixels, labels = torch.tensor(x).float() / 255, torch.tensor(y).long()
    for _ in range(epochs):
        for part in torch.tensor(rng.permutation(len(x))).split(BATCH):
            network.zero_grad()
            torch.nn.functional.cross_entropy(network(pixels[part]), labels[part]).backward()
            with torch.no_grad():  # by hand: torch.optim loads torch's compiler, for seconds in every process
                for parameter in network.parameters():
                    parameter.sub_(RATE * parameter.grad)
    return [array.detach().numpy() for array in network.state_dict().values()]


def accuracy_of_normed(weights, x, y):
    import torch

    network = normed().eval()
    state = zip(network.state_dict(), weights, strict=True)
    network.load_state_dict({name: torch.tensor(array) for name, array in state})
    with torch.no_grad():
        return float((network(torch.tensor(x).float() / 255).argmax(1).numpy() == y).mean())


def initial_normed():
    return [array.detach().numpy() for array in normed().state_dict().values()]


def start_weights():
    """The model that the scenario starts with."""
    return initial_normed() if scenario() == "BatchNorm" else initial_weights()


def initial_weights():
    rng = np.random.default_rng(SEED)
    weights = []
    for n, m in pairwise(LAYERS):
        weights.append((rng.normal(size=(m, n)) * np.sqrt(2 / n)).astype(np.float32))
        weights.append(np.zeros(m, np.float32))
    return weights


def train(weights, x, y, epochs, rng):
    """Plain mini-batch SGD with autograd on one thread."""
    import torch

    torch.set_num_threads(1)
    parameters = [torch.tensor(w, requires_grad=True) for w in weights]
    pixels, labels = torch.tensor(x).float() / 255, torch.tensor(y).long()
    w1, b1, w2, b2 = parameters
    for _ in range(epochs):
        order = torch.tensor(rng.permutation(len(x)))
        for part in order.split(BATCH):
            hidden = torch.relu(pixels[part] @ w1.T + b1)
            loss = torch.nn.functional.cross_entropy(hidden @ w2.T + b2, labels[part])
            loss.backward()
            with torch.no_grad():
                for p in parameters:
                    p.sub_(RATE * p.grad)
                    p.grad = None
    return [p.detach().numpy().copy() for p in parameters]


def reference(x, y, cycles, *, shipped=False, normed=False, max_epochs=None):
    """Algorithm 1 as a plain loop: no Flower, no strategy, no orchestrator."""
    import torch

    weights, training = (initial_normed(), train_normed) if normed else (initial_weights(), train)
    work = []
    for cycle in range(1, cycles + 1):
        problem = AllocationProblem.from_devices(
            [device(k, cycle) for k in range(LEARNERS)],
            workload(ship_data=shipped),
            cycle_time_s=CYCLE_TIME_S,
            total_samples=TOTAL,
            staleness=STALENESS,
            max_epochs=max_epochs,
        )
        solution = allocate(problem, Exact())
        work.append((solution.epochs.tolist(), solution.samples.tolist()))
        shuffle = np.random.default_rng([SEED, cycle]).permutation(len(x))
        seeds = [draw_seed(SEED, cycle, str(k)) for k in range(LEARNERS)]
        start, updates, used = 0, [], []
        for k, (tau, d) in enumerate(zip(solution.epochs, solution.samples, strict=True)):
            if not tau:
                continue
            if shipped:
                rows = shuffle[start : start + d]
            else:
                own = rows_of(k)
                chosen = np.random.default_rng([seeds[k], 1]).choice(len(own), d, replace=False)
                rows = own if d == len(own) else own[np.sort(chosen)]
            start += d
            rng = np.random.default_rng(seeds[k])
            updates.append(training(weights, x[rows], y[rows], int(tau), rng))
            used.append(int(d))
        total = sum(used)
        weights = [
            sum(torch.tensor(w).double() * (d / total) for w, d in zip(layer, used, strict=True))
            .float()
            .numpy()
            for layer in zip(*updates, strict=True)
        ]
    return weights, work
