"""The page about Soonest and Cheapest: its numbers follow from the cells, its verdicts from a paired test."""

import json

import pytest
from mel_simulation.paper import objectives
from mel_simulation.paper.promises import Spent, compare
from mel_simulation.sweep.cells import Cell, profiles, read_sweep

ABOUT = {"versions": {"flwr-mel": "0.2.0"}, "notice": "", "cells": 300}
SLOW, QUICK = [0.5, 0.9, 0.96, 0.97], [0.9, 0.96, 0.97, 0.97]


def row(scheme, time_s, seed, accuracy, seconds, joules, progress=100.0, **keys):
    cell = Cell.parse({"scheme": scheme, "cycle-time": time_s, "seed": seed, "learners": 20, **keys})
    acts = [{"makespan_s": seconds, "energy_j": joules, "progress": progress} for _ in accuracy]
    return {"config": cell.as_dict(), "trouble": "", "acts": acts, "accuracy": accuracy}


def cells(seeds=5):
    rows = []
    for seed in range(seeds):
        more = 1 + seed / 50
        rows += [
            row("soonest", 40.0, seed, QUICK, 5.0 * more, 50.0),
            row("cheapest", 40.0, seed, SLOW, 40.0, 9.0 * more),
            row("ha-asyn", 10.0, seed, SLOW, 10.0, 100.0),
            row("ha-asyn", 20.0, seed, QUICK, 20.0, 200.0),
            row("ha-progress", 10.0, seed, QUICK, 4.0 + seed, 8.0),
        ]
    return rows


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in [{"about": ABOUT}, *cells()]))
    objectives.main([str(path), "--out", str(tmp_path)])
    assert (tmp_path / "figures" / "objectives.png").stat().st_size > 10_000
    return (tmp_path / "OBJECTIVES.md").read_text()


def test_the_page_counts_costs_to_the_end_of_the_cycle(page):
    assert (
        "| **Soonest** | 5 | 10 (10 to 11) | 100 (100 to 100) | 5.2 | 50 | - | - | 200 (200 to 200) |" in page
    )
    assert (
        "| HA-Asyn, T = 10 | 5 | 30 (30 to 30) | 300 (300 to 300) | 10.0 | 100 | 0.35 (0.33 to 0.36) |"
        in page
    )


def test_the_page_sets_verdicts_beside_what_theory_says(page):
    soonest, cheapest = "| MNIST, IID | 95 % | **Soonest** is sooner |", "**Cheapest** is cheaper |"
    assert (
        f"{soonest} HA-Asyn, T = 10, its best T | 0.52 | 0.35 (0.33 to 0.36) | sooner: theory holds |" in page
    )
    assert f"{soonest} HA-Progress, T = 10, its best T | 0.87 | 0.89" in page
    assert "| no clear difference |" in page
    assert (
        f"{cheapest} HA-Progress, T = 10, its best T | 1.17 | 1.75 (1.69 to 1.82) | dearer: theory fails |"
        in page
    )
    assert "- **Soonest** against 3 rivals (data, scheme and T): sooner 2, no clear difference 1." in page
    assert "**Cheapest** needs 1.5 times the S of" in page


def test_what_is_not_run_is_marked(page):
    assert " of 300 cells; data: the full dataset" in page
    assert "**Not finished: 275 of 300 runs are missing.**" in page
    assert "Not run at all: MNIST, FL, alpha = 0.1; MNIST, FL, alpha = 0.5; Fashion-MNIST, IID;" in page
    assert "| HA-Asyn, T = 5 | 0 of 5 | - |" in page
    some = objectives.write(cells(3))
    assert "| **Soonest** | 3 of 5 |" in some
    assert "sooner: theory holds (3 of 5 seeds) |" in some


def test_an_accuracy_that_few_reach_gives_way_to_one_that_half_reach():
    rows = [row(s, 40.0, k, [0.7, 0.86], 5.0 + k, 9.0) for s in ("soonest", "ha-asyn") for k in range(3)]
    text = objectives.write(rows)
    assert "95 % is reached by 0 of 6 runs. That is too few to compare: costs are those to 85 %" in text
    hopeless = objectives.write([row("soonest", 40.0, 0, [0.1, 0.2], 5.0, 9.0)])
    assert "missed by 1 of 1" in hopeless


def spent(*costs):
    """Costs by seed; negative where the accuracy was not reached."""
    return {seed: Spent(abs(cost), cost > 0) for seed, cost in enumerate(costs)}


@pytest.mark.parametrize(
    ("own", "rival", "says", "shown"),
    [
        (spent(1.0, 1.1, 1.05), spent(-8.0, 9.0, 8.5), "better", "< 0.12"),
        (spent(7.9, 8.0, 8.1), spent(-8.0, -8.0, 8.0), "open", "< 1.00"),  # the rival's run was too short
        (spent(-20.0, 21.0, 20.5), spent(8.0, 9.0, 8.5), "worse", "> 2.41"),
        (spent(-2.0, 2.1, 2.0), spent(8.0, 9.0, 8.5), "open", "> 0.24"),  # ours was
        (spent(-2.0, 2.0), spent(2.0, -2.0), "open", "-"),
        (spent(-1.0, -1.0), spent(-1.0, -1.0), "neither reaches it", "-"),
        (spent(1.0), spent(2.0), "one seed", "0.50"),
        (spent(1.0), {7: Spent(1.0, True)}, "no common seeds", "-"),
        (spent(1.0, 2.0, 1.5), spent(1.1, 1.9, 1.5), "no clear difference", "0.99"),
    ],
)
def test_runs_that_end_early_prove_what_they_can(own, rival, says, shown):
    found = compare(own, rival)
    assert found.verdict == says
    assert str(found).startswith(shown)


def test_the_profile_has_every_scheme_with_five_seeds_on_both_datasets():
    found = read_sweep(profiles()["objectives"][0])
    keys = {
        (c.config.dataset, c.config.mode, c.config.alpha, c.config.scheme, c.config.cycle_time) for c in found
    }
    assert len(found) == 5 * len(keys) == 300
    assert {c.config.seed for c in found} == set(range(5))
    assert {alpha for _, _, alpha, _, _ in keys} == {0.0, 0.1, 0.5}
