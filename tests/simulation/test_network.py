"""The hand-written training loop against autograd, and its promises: determinism, scaling, accuracy."""

import multiprocessing
from itertools import pairwise

import numpy as np
import pytest
import torch
from mel_simulation.scenario.data import embedded, load
from mel_simulation.scenario.network import (
    BATCH,
    LAYERS,
    LEARNING_RATE,
    evaluate,
    initial_weights,
    single_thread,
    train,
)

from tests.mnist import FULL_MNIST, needs_mnist


def reference_train(weights, x, y, epochs, *, batch=BATCH, lr=LEARNING_RATE, rng):
    """Do what `train` does in the usual way: torch.nn, autograd and torch.optim.SGD."""
    modules = []
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
                loss.backward()
                for group in optimiser.param_groups:
                    group["lr"] = lr * len(part) / batch
                optimiser.step()
                total += loss.item() * len(part)
    return [p.detach().numpy().copy() for p in model.parameters()], total / len(x)


def shard(n):
    d = embedded()
    return d.train_x[:n], d.train_y[:n]


def rng(seed=0):
    return np.random.default_rng(seed)


def assert_close(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == np.float32
        assert a.flags.c_contiguous
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("n", [1, 10, 64, 65, 256, 300])
@pytest.mark.parametrize(
    ("layers", "batch", "lr"),
    [(LAYERS, 64, 0.04), ((784, 10), 32, 0.1), ((784, 17, 10), 32, 0.1), ((784, 5, 6, 7, 8, 12), 32, 0.1)],
)
def test_same_weights_as_autograd(n, layers, batch, lr):
    x, y = shard(n)
    start = initial_weights(1, layers)
    ours, loss = train(start, x, y, 2, batch=batch, lr=lr, rng=rng())
    theirs, their_loss = reference_train(start, x, y, 2, batch=batch, lr=lr, rng=rng())
    assert_close(ours, theirs)
    assert loss == pytest.approx(their_loss, rel=1e-4)


def test_dense_and_empty_images():
    y = np.arange(80, dtype=np.uint8) % 10
    dense = rng().integers(1, 256, (80, 784)).astype(np.uint8)
    for x in (dense, np.zeros_like(dense)):
        ours, _ = train(initial_weights(0), x, y, 1, rng=rng())
        theirs, _ = reference_train(initial_weights(0), x, y, 1, rng=rng())
        assert_close(ours, theirs)


def test_short_last_batch_takes_a_step_of_its_share():
    """One sample alone: its step is 1/64 of the full one."""
    x, y = shard(1)
    start = initial_weights(0)
    short, loss = train(start, x, y, 1, rng=rng())
    full, _ = train(start, x, y, 1, batch=1, rng=rng())
    for w, a, b in zip(start, short, full, strict=True):
        np.testing.assert_allclose((b - w) / 64, a - w, atol=3e-7)
    assert loss == pytest.approx(evaluate(start, x, y)[0], rel=1e-5)


def test_weights_of_blank_pixels_stay_and_input_is_untouched():
    x, y = shard(200)
    start = initial_weights(0)
    before = [w.copy() for w in start]
    trained, _ = train(start, x, y, 2, rng=rng())
    blank = x.max(axis=0) == 0
    assert blank.sum() > 50
    np.testing.assert_array_equal(trained[0][:, blank], start[0][:, blank])
    assert (trained[0][:, ~blank] != start[0][:, ~blank]).mean() > 0.9
    for a, b in zip(start, before, strict=True):
        np.testing.assert_array_equal(a, b)


def _trained_bytes(threads):
    torch.set_num_threads(threads)
    x, y = shard(300)
    weights, loss = train(initial_weights(0), x, y, 2, rng=rng())
    assert torch.get_num_threads() == threads
    return b"".join(w.tobytes() for w in weights), loss


def test_same_bits_in_any_process_with_any_threads():
    before = torch.get_num_threads()
    try:
        here = _trained_bytes(2)
        assert _trained_bytes(1) == here
    finally:
        torch.set_num_threads(before)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_trained_bytes, [1, 2]) == [here, here]


def test_same_bits_wherever_the_input_lies_in_memory():
    x, y = shard(300)
    start = initial_weights(0)
    a, _ = train(start, x, y, 1, rng=rng())
    for offset in (1, 3, 5):
        moved = [
            np.concatenate((np.zeros(offset, np.float32), w.ravel()))[offset:].reshape(w.shape) for w in start
        ]
        far = np.concatenate((np.zeros(offset, np.uint8), x.ravel()))[offset:].reshape(x.shape)
        b, _ = train(moved, far, y, 1, rng=rng())
        assert all(np.array_equal(v, w) for v, w in zip(a, b, strict=True))


def test_initial_weights_follow_he():
    weights = initial_weights(5)
    assert [w.shape for w in weights] == [s for i, o in pairwise(LAYERS) for s in ((o, i), (o,))]
    assert sum(w.size for w in weights) == 280_440 + 494
    assert weights[0].std() == pytest.approx((2 / 784) ** 0.5, rel=0.01)
    assert not weights[1].any()
    assert all(np.array_equal(a, b) for a, b in zip(weights, initial_weights(5), strict=True))
    assert not np.array_equal(weights[0], initial_weights(6)[0])


def test_accuracy_on_the_embedded_digits():
    d = embedded()
    start = initial_weights(0)
    assert evaluate(start, d.test_x, d.test_y)[1] < 0.3
    weights, loss = train(start, d.train_x, d.train_y, 10, rng=rng())
    test_loss, accuracy = evaluate(weights, d.test_x, d.test_y)
    assert accuracy > 0.9
    assert 0 < loss < test_loss < 0.5


def test_evaluate_in_chunks_matches_torch():
    d, weights = embedded(), initial_weights(0)
    h = torch.tensor(d.train_x).float() / 255
    for i in range(0, 8, 2):
        w, b = map(torch.tensor, weights[i : i + 2])
        h = torch.nn.functional.linear(h.relu() if i else h, w, b)
    y = torch.tensor(d.train_y).long()
    loss, accuracy = evaluate(weights, d.train_x, d.train_y)
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(h, y).item(), rel=1e-5)
    assert accuracy == pytest.approx((h.argmax(1) == y).double().mean().item(), abs=1e-3)


@needs_mnist
def test_one_epoch_of_the_full_mnist():
    d = load("mnist", FULL_MNIST)
    weights, _ = train(initial_weights(0), d.train_x, d.train_y, 1, rng=rng())
    assert evaluate(weights, d.test_x, d.test_y)[1] > 0.91
