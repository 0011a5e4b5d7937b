"""The paper's statements: how they are judged, which cells they name, what varying shows."""

import json
from pathlib import Path

import numpy as np
import pytest
from mel_simulation.paper import reproduction
from mel_simulation.paper.rows import cost_to, cycles_to, gain_ratio, median, plain
from mel_simulation.paper.statements import CLAIMS, Finding, Grid, Verdict
from mel_simulation.sweep.cells import profiles, read_sweep
from mel_simulation.sweep.results import read_results

RESULTS = Path(__file__).parents[2] / "results"


def seeds_of(name):
    """Return the seeds of a profile by the place of the cell in the paper's grid."""
    found = {}
    for c in read_sweep(profiles()[name]):
        staleness = 0 if c.scheme.endswith("sync") else c.staleness
        place = (c.scheme[:2].upper(), staleness, c.cycle_time, c.energy)
        found.setdefault(place, set()).add(c.seed)
    return found


class Listener(Grid):
    """A grid that has nothing and remembers what it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = set()

    def seeds(self, *cells):
        self.asked.update(cells)
        return []


def test_the_papers_profile_has_three_placements_of_every_cell_that_a_statement_names():
    listener, seeds = Listener(), seeds_of("paper")
    for claim in CLAIMS:
        claim.check(listener)
    assert len(CLAIMS) == 24
    assert len(listener.asked) > 50
    assert listener.asked <= {place for place, some in seeds.items() if len(some) >= 3}
    # All of the grid: HA and HU, c = 0 to 5, eight T, three E.
    assert len(seeds) == 2 * 6 * 8 * 3


def row(scheme, c, time_s, energy_j, seed, accuracy, **more):
    config = {"scheme": scheme, "staleness": c, "cycle-time": time_s, "energy": energy_j, "seed": seed}
    config |= {"mode": "pl", "handout": "proportional", "average": "data", "baseline": "", "solver": "exact"}
    config |= {"energy-spread": 2.5, "min-samples": 0, "learning-rate": 0.04, "batch-size": 0}
    acts = [{"objective": "epochs", "relaxed": 2.5}]
    return {"config": {**config, **more}, "accuracy": accuracy, "trouble": "", "acts": acts}


def test_statements_are_judged_by_seed():
    assert Finding("", ()).verdict is Verdict.MISSING
    assert Finding("", (True, True)).verdict is Verdict.HOLDS
    assert Finding("", (True, False)).verdict is Verdict.PART
    assert Finding("", (False,)).verdict is Verdict.FAILS
    slow, fast = [0.90, 0.93, 0.945], [0.92, 0.941, 0.95]
    rows = [row("ha-sync", 2, 10.0, 10.0, s, slow) for s in (0, 1)]
    rows += [row("ha-asyn", c, 10.0, 10.0, s, fast if s == 0 else slow) for s in (0, 1) for c in (1, 2)]
    claim = next(c for c in CLAIMS if c.says.startswith("T=10, E=10: 94 %"))
    finding = claim.check(Grid(rows))
    assert finding.ours == "2 against 3; 3 against 3"
    assert finding.verdict is Verdict.PART
    missing = [c for c in CLAIMS if c.check(Grid(rows)).verdict is Verdict.MISSING]
    assert len(missing) > 10


def test_synchronous_twins_are_compared_once():
    claim = CLAIMS[0]
    sync, zero = row("ha-sync", 2, 10.0, 10.0, 0, [0.9]), row("ha-asyn", 0, 10.0, 10.0, 0, [0.9])
    assert claim.check(Grid([sync, zero, zero])).ours == "identical curves in 1 of 1 cells"
    assert claim.check(Grid([sync, {**zero, "accuracy": [0.8]}])).verdict is Verdict.FAILS
    assert claim.check(Grid([zero, zero])).verdict is Verdict.MISSING


def test_variations_are_not_the_papers_cells_and_show_what_it_takes():
    usual = [row("ha-asyn", c, 20.0, 20.0, 0, [0.9] * 5 + [0.96]) for c in (1, 2, 3)]
    fast = [{**r, "config": r["config"] | {"learning-rate": 0.08}, "accuracy": [0.971] * 6} for r in usual]
    free = [{**r, "config": r["config"] | {"energy": 0.0}, "accuracy": [0.965] * 6} for r in usual]
    assert plain([*usual, *fast, *free]) == usual
    text = reproduction.variations(Grid(usual), [*fast, *free])
    assert "| the paper | learning rate 0.08 | no energy limits | it takes |" in text
    line = next(line for line in text.splitlines() if line.startswith("| E=20, T=20 after 6: 97 %"))
    assert line.endswith("| 97.10, 97.10, 97.10 % | 96.50, 96.50, 96.50 % | **learning rate 0.08** |")
    assert "| **none of these** |" in reproduction.variations(Grid(usual), free)


def test_cycles_and_costs_to_a_target():
    acts = [{"makespan_s": 8.0, "energy_j": 70.0, "relaxed": 2.8}]
    acts += [{"makespan_s": 9.0, "energy_j": 80.0, "relaxed": 3.0}]
    some = {"accuracy": [0.9, 0.96], "acts": acts}
    never = float("inf")
    assert cycles_to(some, 96.0) == 2
    assert cost_to(some, 96.0, "makespan_s") == 17
    assert cost_to(some, 97.0, "energy_j") == never
    assert median([3.0, never, never]) == never
    assert gain_ratio(some) == (1.4 + 1.0) / 2


def test_committed_runs_on_the_engine_cost_what_they_cost_in_the_sweep_within_the_limits():
    cells = [row for row in read_results(RESULTS / "rate.jsonl") if row["config"]["scheme"] == "rate"]
    planned = {(row["config"].get("frugality", 0.0), row["config"]["seed"]): row["acts"] for row in cells}
    for row in map(json.loads, (RESULTS / "rate-engine.jsonl").read_text().splitlines()):
        acts = planned[row["config"]["frugality"], row["config"]["seed"]][: len(row["accuracy"])]
        assert row["time_s"] == pytest.approx(np.cumsum([act["makespan_s"] for act in acts]))
        assert row["energy_j"] == pytest.approx(np.cumsum([act["energy_j"] for act in acts]))
        assert not any(act["broken"] for act in acts)
