"""The page about Soonest and Cheapest: its numbers follow from the cells, its verdicts from a paired test."""

import json

import pytest
from mel_simulation.paper import objectives
from mel_simulation.sweep.cells import Cell, profiles, read_sweep

ABOUT = {"versions": {"flwr-mel": "0.2.0"}, "notice": "", "cells": 300}


def row(scheme, time_s, seed, accuracy, seconds, joules, **keys):
    cell = Cell.parse({"scheme": scheme, "cycle-time": time_s, "seed": seed, "learners": 20, **keys})
    acts = [{"makespan_s": seconds, "energy_j": joules} for _ in accuracy]
    return {"config": cell.as_dict(), "trouble": "", "acts": acts, "accuracy": accuracy}


def cells():
    slow, quick = [0.5, 0.9, 0.96, 0.97], [0.9, 0.96, 0.97, 0.97]
    rows = []
    for seed in range(5):
        more = 1 + seed / 50
        rows += [
            row("soonest", 40.0, seed, quick, 5.0 * more, 50.0),
            row("cheapest", 40.0, seed, slow, 40.0, 9.0 * more),
            row("ha-asyn", 10.0, seed, slow, 10.0, 100.0),
            row("ha-asyn", 20.0, seed, quick, 20.0, 200.0),
            row("ha-progress", 10.0, seed, quick, 4.0 + seed, 8.0),
        ]
    return rows


def test_the_page_counts_costs_to_the_end_of_the_cycle(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in [{"about": ABOUT}, *cells()]))
    objectives.main([str(path), "--out", str(tmp_path)])
    page = (tmp_path / "OBJECTIVES.md").read_text()
    assert "| **Soonest** | 5 | 10 (10 to 11) | 100 (100 to 100) | 5.2 | 50 |" in page
    assert "| HA-Asyn, T = 10 | 5 | 30 (30 to 30) | 300 (300 to 300) | 10.0 | 100 |" in page
    assert (
        "| MNIST, IID | 95 % | **Soonest** is sooner | HA-Asyn, T = 10, its best | 0.35 | sooner: theory"
        in page
    )
    assert "| **Soonest** is sooner | HA-Progress, T = 10, its best | 0.89 | no clear difference |" in page
    assert " of 300 cells; data: the full dataset" in page
    assert "| **Cheapest** is cheaper | HA-Progress, T = 10, its best | 1.75 | dearer: theory fails |" in page


@pytest.mark.parametrize(
    ("own", "rival", "says"),
    [
        (
            {0: 1.0, 1: 1.1},
            {0: float("inf"), 1: 9.0},
            "sooner: the rival does not reach it with 1 of 2 seeds",
        ),
        ({0: 1.0, 1: float("inf")}, {0: 2.0, 1: 9.0}, "does not reach it with 1 of 2 seeds"),
        ({0: float("inf")}, {0: float("inf")}, "neither reaches it"),
        ({0: 1.0}, {0: 2.0}, "one seed"),
    ],
)
def test_what_is_not_reached_is_said(own, rival, says):
    assert objectives.judge(own, rival, "sooner", "later")[1] == says


def test_the_profile_has_every_scheme_with_five_seeds_on_both_datasets():
    found = read_sweep(profiles()["objectives"][0])
    keys = {
        (c.config.dataset, c.config.mode, c.config.alpha, c.config.scheme, c.config.cycle_time) for c in found
    }
    assert len(found) == 5 * len(keys) == 300
    assert {c.config.seed for c in found} == set(range(5))
    assert {alpha for _, _, alpha, _, _ in keys} == {0.0, 0.1, 0.5}
