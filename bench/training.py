"""Time of the hand-written training loop against autograd, on one thread: ``python -m bench.training``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from mel_simulation.scenario.network import (
    BATCH,
    LAYERS,
    LEARNING_RATE,
    Weights,
    initial_weights,
    single_thread,
    train,
)

from bench.tables import arguments, save


def reference_train(
    weights: Weights,
    x: npt.NDArray[np.uint8],
    y: npt.NDArray[np.uint8],
    epochs: int,
    *,
    batch: int = BATCH,
    lr: float = LEARNING_RATE,
    rng: np.random.Generator,
) -> tuple[Weights, float]:
    """Do what `scenario.network.train` does in the usual way: torch.nn, autograd and torch.optim.SGD."""
    modules: list[torch.nn.Module] = []
    for w, b in zip(weights[::2], weights[1::2], strict=True):
        linear = torch.nn.Linear(w.shape[1], w.shape[0])
        linear.load_state_dict({"weight": torch.tensor(w), "bias": torch.tensor(b)})
        modules += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*modules[:-1])
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    pixels, labels = torch.tensor(x).float() / 255, torch.tensor(y).long()
    total = 0.0
    with single_thread():
        for _ in range(epochs):
            total = 0.0
            for part in torch.split(torch.from_numpy(rng.permutation(len(x))), batch):
                optimiser.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(pixels[part]), labels[part])
                loss.backward()  # type: ignore[no-untyped-call]
                for group in optimiser.param_groups:
                    group["lr"] = lr * len(part) / batch
                optimiser.step()
                total += loss.item() * len(part)
    return [p.detach().numpy().copy() for p in model.parameters()], total / len(x)


def measure(samples: int = 3000, epochs: int = 2, repeats: int = 7) -> dict[str, float]:
    """Time both loops in turn on a shard of digits and return the medians.

    Parameters
    ----------
    samples : int
        Shard size; at most 4,000, the embedded digits.
    epochs : int
        Epochs per call.
    repeats : int
        Calls of each loop, one after the other so that both see the same machine.

    Returns
    -------
    dict
        ``ours_us`` and ``autograd_us`` per sample and epoch, ``ratio`` (the median over neighbouring calls,
        above 1 where ours is faster), ``samples``, ``epochs``, ``repeats``.
    """
    from mel_simulation.scenario.data import embedded

    data = embedded()
    x, y = data.train_x[:samples], data.train_y[:samples]
    weights = initial_weights(0, LAYERS)

    def seconds(loop: Callable[..., tuple[Weights, float]]) -> float:
        start = time.perf_counter()
        loop(weights, x, y, epochs, rng=np.random.default_rng(0))
        return (time.perf_counter() - start) / (len(x) * epochs) * 1e6

    seconds(train), seconds(reference_train)  # the first calls load kernels
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(seconds(train))
        theirs.append(seconds(reference_train))
    return {
        "ours_us": statistics.median(ours),
        "autograd_us": statistics.median(theirs),
        "ratio": statistics.median(b / a for a, b in zip(ours, theirs, strict=True)),
        "samples": len(x),
        "epochs": epochs,
        "repeats": repeats,
    }


def section(found: dict[str, Any]) -> str:
    """Return the section of the page."""
    return f"""## The training loop

The hand-written loop of the simulation takes {found["ours_us"]:.1f} us per sample and epoch, autograd with
`torch.optim.SGD` {found["autograd_us"]:.1f} us: **{found["ratio"]:.2f} times** as long
({found["samples"]:,} digits, batch {BATCH}, one thread)."""


def main() -> None:
    given = arguments(__doc__).parse_args()
    results = measure()
    print(section(results))
    if not given.no_write:
        save("training", results)


if __name__ == "__main__":
    main()
