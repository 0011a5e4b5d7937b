"""Parallelized learning: what is shipped is what the cost model counts."""

import numpy as np

from flwr_mel.flower.tasks import task_words
from flwr_mel.orchestrator import Settings, Task
from flwr_mel.wire import SHARD
from tests.flower import lab


def shards(run, cycle):
    found = {}
    for file in run.path.glob(f"shard-{cycle}-*.npz"):
        with np.load(file) as shard:
            found[int(file.stem.split("-")[2])] = shard["rows"]
            assert shard["kinds"].tolist() == ["|u1", "|u1"]
    return found


def test_shards_are_disjoint_cover_the_total_and_change_each_cycle(run):
    seen = []
    for record in run.records("parallelized"):
        parts = shards(run, record.cycle)
        assert {k: len(rows) for k, rows in parts.items()} == {
            int(r.learner): r.samples for r in record.learners if r.samples
        }
        rows = np.concatenate([parts[k] for k in sorted(parts)])
        assert len(np.unique(rows)) == len(rows) == lab.TOTAL
        seen.append(rows)
    assert not np.array_equal(seen[0], seen[2])


def test_the_bytes_a_learner_gets_are_those_of_the_cost_model(run):
    """The simulation's clients report the bytes of their shards; the average is weighted by samples."""
    bits = lab.workload(ship_data=True).sample_bits
    for record in run.records("parallelized"):
        used = [r.samples for r in record.learners if r.samples]
        modelled = sum(d * d for d in used) / sum(used) * bits / 8
        sent = record.metrics["train-bytes-0"] + record.metrics["train-bytes-1"]
        assert abs(sent - modelled) < 1e-6 * modelled


def test_the_header_of_a_shard_is_small():
    x, y = np.zeros((500, 784), np.uint8), np.zeros(500, np.uint8)
    settings = Settings(cycle_time_s=1, mode="parallelized", dataset=(x, y))
    task = Task("1", "a", 1, 2, 300, 0, shard=np.arange(300))
    words = task_words(task, settings)
    sent = [len(words[f"{SHARD}{i}"]) for i in range(2)]
    assert sent[0] - 300 * 784 < 200
    assert sent[1] - 300 < 200
    assert 8 * (sent[0] - 128 + sent[1] - 128) == 300 * lab.workload(ship_data=True).sample_bits
