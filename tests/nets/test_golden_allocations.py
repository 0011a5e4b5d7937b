"""Golden allocations: the paper's grid under its four schemes, exactly.

``python -m tests.nets.test_golden_allocations`` writes `golden_allocations.json` anew.
"""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Workload, paper_fleet, scheme

STORED = Path(__file__).with_name("golden_allocations.json")
SCHEMES = (("ha-sync", 0), ("ha-asyn", 1), ("ha-asyn", 2), ("ha-asyn", 5), ("hu-sync", 0), ("hu-asyn", 2))
CELLS = list(product(range(5, 45, 5), (10, 20, 30)))


def allocations(time_s, energy_j):
    """Return status, epochs and samples by scheme; the placement of learners changes from cell to cell."""
    placement = CELLS.index((time_s, energy_j)) % 5
    problem = AllocationProblem.from_devices(
        paper_fleet(np.random.default_rng(placement), energy_j=energy_j),
        Workload.mlp((784, 300, 124, 60, 10)),
        cycle_time_s=time_s,
        total_samples=60_000,
        min_samples=100,
    )
    found = {}
    for name, c in SCHEMES:
        solution = scheme(name, c).allocate(problem, throw=False)
        found[f"{name} c={c}"] = [str(solution.status), solution.epochs.tolist(), solution.samples.tolist()]
    return found


@pytest.mark.parametrize(("time_s", "energy_j"), CELLS)
def test_the_papers_grid(time_s, energy_j):
    assert allocations(time_s, energy_j) == json.loads(STORED.read_text())[f"T={time_s} E={energy_j}"]


if __name__ == "__main__":
    cells = {f"T={t} E={e}": allocations(t, e) for t, e in CELLS}
    rows = [f'"{key}": {json.dumps(value, separators=(",", ":"))}' for key, value in cells.items()]
    STORED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
