"""What a training must come to, computed from its records: the test's own data, seeds and average."""

import sys

import numpy as np

from flwr_mel.clientapp import Assignment
from flwr_mel.orchestrator.planning import draw_seed
from flwr_mel.records import Outcome, read_jsonl
from tests.deployment.tools import CLASSES, DATA_SEEDS, DEPLOY, FEATURES, blobs

sys.path.insert(0, str(DEPLOY / "app"))
from mel_fleet.model import initial_weights, train


def records_of(run_dir):
    return list(read_jsonl(run_dir / "records.jsonl"))


def model_of(run_dir):
    with np.load(run_dir / "model.npz") as data:
        return [data[key] for key in data.files]


def work_of(record):
    """Epochs times samples by learner."""
    return {row.learner: row.epochs * row.samples for row in record.learners}


def reference(records, seed=0, dataset=None, batch=32, rate=0.1):
    """Train and average as the records say; `dataset` is the server's in parallelized mode."""
    weights = initial_weights(FEATURES, 8, CLASSES, np.random.default_rng(seed))
    for record in records:
        held = 0 if dataset is None else len(dataset[1])
        order = np.random.default_rng([seed, record.cycle]).permutation(held)
        total, weight, place = [np.zeros(w.shape) for w in weights], 0, 0
        for row in record.learners:
            if not row.samples:
                continue
            own_seed = draw_seed(seed, record.cycle, row.learner)
            task = Assignment(row.epochs, row.samples, record.cycle, own_seed)
            if dataset is None:
                x, y = blobs(DATA_SEEDS[row.learner])
                rows = task.choose(len(y))
            else:
                x, y = dataset
                rows, place = order[place : place + row.samples], place + row.samples
            if row.outcome is not Outcome.USED:
                continue
            new, _ = train(weights, x[rows], y[rows], row.epochs, batch, rate, task.rng())
            total = [t + row.samples * n.astype(np.float64) for t, n in zip(total, new, strict=True)]
            weight += row.samples
        if weight:
            weights = [(t / weight).astype(np.float32) for t in total]
    return weights


def replayed(records, seed=0, batch=32, rate=0.1):
    """Train and average as the records say, with updates of earlier tasks moved, in the strategy's order."""
    weights, before = initial_weights(FEATURES, 8, CLASSES, np.random.default_rng(seed)), {}

    def update(cycle, row):
        task = Assignment(row.epochs, row.samples, cycle, draw_seed(seed, cycle, row.learner))
        x, y = blobs(DATA_SEEDS[row.learner])
        rows = task.choose(len(y))
        return train(before[cycle], x[rows], y[rows], row.epochs, batch, rate, task.rng())[0]

    for record in records:
        before[record.cycle], used = weights, []
        for row in record.learners:
            if row.outcome is Outcome.USED:
                used.append((row.weight, update(record.cycle, row)))
        for row in sorted(record.learners, key=lambda row: (row.moved_from, row.learner)):
            if row.moved_weight:
                (begun,) = [r for r in records if r.cycle == row.moved_from]
                (task,) = [r for r in begun.learners if r.learner == row.learner]
                changed = update(begun.cycle, task)
                moved = [
                    (now.astype(np.float64) + (new.astype(np.float64) - old)).astype(np.float32)
                    for now, new, old in zip(weights, changed, before[begun.cycle], strict=True)
                ]
                cycles = record.cycle - begun.cycle + 1
                used.append((round(row.moved_weight / np.sqrt(cycles)), moved))
        total = float(sum(weight for weight, _ in used))
        if used:
            weights = [
                sum((new.astype(np.float64) * (weight / total) for weight, new in layer), np.zeros(1)).astype(
                    np.float32
                )
                for layer in zip(*([(w, a) for a in arrays] for w, arrays in used), strict=True)
            ]
    return weights


def same_model(run_dir, **about):
    """Assert that a run's model is the reference's; return its records."""
    records = records_of(run_dir)
    for got, wanted in zip(model_of(run_dir), reference(records, **about), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)
    return records
