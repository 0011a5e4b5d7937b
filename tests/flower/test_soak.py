"""A short soak: the long one is `python -m bench.soak` (docs/BENCHMARKS.md)."""

import json

import pytest

from tests.flower.harness import run_python


@pytest.mark.timeout(600)
def test_learners_come_go_and_fail_and_every_record_is_complete(tmp_path):
    output = run_python(["-m", "bench.soak", "--nodes", "20", "--cycles", "20", "--short"], tmp_path)
    result = json.loads(next(line for line in output.splitlines() if line.startswith('{"nodes"')))
    assert result["cycles"] == 20
    assert set(result["outcomes"]) == {"used", "failed", "refused"}
    assert result["present"] < 20
