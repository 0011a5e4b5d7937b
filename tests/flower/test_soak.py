"""A soak on the engine; a larger one is `python -m bench.soak` (docs/BENCHMARKS.md)."""

import pytest

from bench.soak import GROWTH, judge
from tests.flower.harness import NODES


def soak(engine, directory, cycles):
    """Let learners come, go and fail; return what `judge` found, who fails if a record is not complete."""
    about = {"NODES": NODES, "CYCLES": cycles, "SEED": 0, "OUT": directory}
    engine.play("bench.soak", directory, **{f"SOAK_{key}": value for key, value in about.items()})
    result = judge(directory, NODES, cycles, seed=0)
    assert result["cycles"] == cycles
    assert set(result["outcomes"]) == {"used", "failed", "refused"}
    assert result["present"] < NODES
    return result


def test_learners_come_go_and_fail_and_every_record_is_complete(engine, tmp_path):
    soak(engine, tmp_path, cycles=20)


@pytest.mark.slow
def test_memory_does_not_grow(engine, tmp_path):
    assert max(soak(engine, tmp_path, cycles=400)["growth"].values()) <= GROWTH
