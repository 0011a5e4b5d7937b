"""The paper's statements: how they are judged, which cells they name, what varying shows."""

import json
from pathlib import Path

import pytest
from mel_simulation.paper.claims import Claim, Finding, Grid, Verdict, reaches, updates_to
from mel_simulation.paper.reproduction import document
from mel_simulation.paper.rows import plain, provenance
from mel_simulation.paper.statements import CLAIMS
from mel_simulation.paper.variations import section, variation
from mel_simulation.sweep.cells import profiles, read_sweep


def named(cell):
    """Return the place of a cell in the paper's grid, and its seed."""
    config = cell.config
    staleness = 0 if config.scheme.endswith("sync") else config.staleness
    return (config.scheme[:2], staleness, config.cycle_time, config.energy), config.seed


def seeds_of(name):
    found = {}
    for cell in read_sweep(profiles()[name][0]):
        place, seed = named(cell)
        found.setdefault(place, set()).add(seed)
    return found


class Listener(Grid):
    """A grid that has nothing and remembers what it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = set()

    def seeds(self, *cells):
        self.asked.update(cells)
        return []


def cells_of(claims):
    """Return the cells that claims name, as (scheme family, c, T, E)."""
    listener = Listener()
    for claim in claims:
        claim.check(listener)
    return listener.asked


def test_the_papers_profile_has_three_placements_of_every_cell_that_a_statement_names():
    seeds, asked = seeds_of("paper"), cells_of(CLAIMS)
    assert len(asked) > 80
    assert {place for place, some in seeds.items() if len(some) >= 3} == asked
    assert {min(some) for some in seeds.values()} == {0}
    # All of the grid: HA and HU, c = 0 to 5, eight T, three E.
    assert len(seeds) == 2 * 6 * 8 * 3


def row(scheme, c, time_s, energy_j, seed, accuracy, **more):
    config = {"scheme": scheme, "staleness": c, "cycle-time": time_s, "energy": energy_j, "seed": seed}
    config |= {"mode": "pl", "handout": "proportional", "average": "data", "baseline": "", "solver": "exact"}
    config |= {"exclude": "infeasible", "mobility": 0.0, "energy-spread": 2.5, "min-samples": 0}
    config |= {"learning-rate": 0.04, "batch-size": 0, "alpha": 0.0}
    return {
        "config": {**config, **more},
        "accuracy": accuracy,
        "trouble": "",
        "acts": [{"objective": "epochs", "relaxed": 2.5}],
    }


def test_claims_are_judged_by_seed():
    assert Finding("", ()).verdict is Verdict.MISSING
    assert Finding("", (True, True)).verdict is Verdict.HOLDS
    assert Finding("", (True, False)).verdict is Verdict.PART
    assert Finding("", (False,)).verdict is Verdict.FAILS
    slow, fast = [0.90, 0.93, 0.945], [0.92, 0.941, 0.95]
    rows = [row("ha-sync", 2, 10.0, 10.0, s, slow) for s in (0, 1)]
    rows += [row("ha-asyn", c, 10.0, 10.0, s, fast if s == 0 else slow) for s in (0, 1) for c in (1, 2)]
    assert updates_to(rows[0], 94.0) == 3
    claim = next(c for c in CLAIMS if c.says.startswith("T=10, E=10: 94 %"))
    finding = claim.check(Grid.of(rows))
    assert finding.ours == "2 against 3; 3 against 3"
    assert finding.verdict is Verdict.PART
    missing = [c for c in CLAIMS if c.check(Grid.of(rows)).verdict is Verdict.MISSING]
    assert len(missing) > 10


def older(some):
    return {**some, "acts": [{"relaxed": 2.5}]}


def test_synchronous_twins_are_compared_once_and_within_a_version():
    claim = CLAIMS[0]
    sync, zero = row("ha-sync", 2, 10.0, 10.0, 0, [0.9]), row("ha-asyn", 0, 10.0, 10.0, 0, [0.9])
    assert claim.check(Grid.of([sync, zero, zero])).ours == "identical curves in 1 of 1 cells"
    assert claim.check(Grid.of([sync, {**zero, "accuracy": [0.8]}])).verdict is Verdict.FAILS
    assert claim.check(Grid.of([zero, zero])).verdict is Verdict.MISSING
    assert claim.check(Grid.of([older(sync), {**zero, "accuracy": [0.8]}])).verdict is Verdict.MISSING


def test_cells_of_an_older_version_are_counted():
    new = row("ha-sync", 0, 10.0, 10.0, 0, [0.9])
    assert provenance([new]) == ""
    assert provenance([new, older(new), {**new, "acts": []}]).startswith(
        "1 of these 3 cells were computed by"
    )


def test_varied_cells_are_not_the_papers():
    usual = row("ha-asyn", 1, 20.0, 20.0, 0, [0.9])
    fast, free = (
        {**usual, "config": usual["config"] | more} for more in ({"learning-rate": 0.08}, {"energy": 0.0})
    )
    assert plain([usual, fast, free]) == [usual]
    assert [variation(each) for each in (usual, fast, free)] == ["", "learning rate 0.08", "no energy limits"]


def test_the_page_says_what_would_have_to_be_different():
    claim = Claim("here", "97 % with c = 1", reaches(20, 20, (1,), 1, 97.0))
    usual = row("ha-asyn", 1, 20.0, 20.0, 0, [0.96])
    findings = [(claim, claim.check(Grid.of([usual])))]
    assert "not run yet" in section(findings, [])
    fast = {**usual, "config": usual["config"] | {"learning-rate": 0.08}, "accuracy": [0.971]}
    free = {**usual, "config": usual["config"] | {"energy": 0.0}, "accuracy": [0.965]}
    text = section(findings, [usual, fast, free])
    assert "| 97 % with c = 1 | 96.00 % | 97.10 % | 96.50 % | **learning rate 0.08** |" in text
    assert "**none of these**" in section(findings, [free])
    held = [(claim, Finding("97.5 %", (True,)))]
    assert "97 % with c = 1" not in section(held, [fast])
    other = Claim("here", "T = 30", reaches(30, 20, (1,), 1, 97.0))
    assert "- T = 30" in section([*findings, (other, Finding("96 %", (False,)))], [fast])


def test_the_variations_are_of_statements_and_change_one_thing_each():
    cells, asked = read_sweep(profiles()["variations"][0]), cells_of(CLAIMS)
    limited = {named(cell)[0][2:] for cell in cells if cell.config.energy}
    assert limited == {(15, 10), (20, 10), (20, 20), (25, 20), (30, 10), (30, 20), (35, 20), (40, 20)}
    for cell in cells:
        (family, c, time_s, energy_j), _ = named(cell)
        limits = [energy_j] if energy_j else [10.0, 20.0]
        assert {(family, c, time_s, limit) for limit in limits} & asked
        assert variation({"config": cell.as_dict()}).count(",") == 0
        assert variation({"config": cell.as_dict()})


@pytest.mark.parametrize(("cells", "says"), [(1, ": 1 cells;"), (336, ": 1 of 336 cells;")])
def test_the_page_counts_what_was_run(tmp_path, cells, says):
    some = {"cell": "a", **row("ha-asyn", 1, 20.0, 20.0, 0, [0.96]), "signature": "b"}
    path = Path(tmp_path / "results.jsonl")
    about = {"about": {"cells": cells, "notice": "", "versions": {"flwr-mel": "0.1.0"}}}
    path.write_text("\n".join(map(json.dumps, (about, older(some)))) + "\n")
    text = document([some], [path], [], tmp_path)
    assert says in text
    assert "1 of these 1 cells were computed by version 0.1" in text
    assert "## What would have to be different" in text
