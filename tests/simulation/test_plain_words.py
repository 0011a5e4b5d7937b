"""What the pages say of the winners follows from the committed results and from the allocations."""

import json
from pathlib import Path

import numpy as np
import pytest
from mel_simulation.paper import past_the_paper as past
from mel_simulation.paper.plain_words import LEAST, batches, concentration, per_joule, starving, within
from mel_simulation.paper.rows import cap, is_like, rule, setting, trained
from mel_simulation.sweep.results import read_results

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def everything():
    return [
        row for name in ("headline", "past", "paper") for row in read_results(ROOT / f"results/{name}.jsonl")
    ]


@pytest.fixture(scope="module")
def tens(everything):
    rows = [r for r in trained(everything) if is_like(r, mode="pl", average="data")]
    return [r for r in rows if setting(r) == (10.0, 10.0)]


def test_allocations_made_again_are_those_of_the_results(tens):
    for how in ("progress", "proportional"):
        row = next(r for r in tens if rule(r) == how and cap(r) == 2 and not r["config"]["baseline"])
        for cycle in (1, 7):
            tau, d = batches(row, cycle)
            act = row["acts"][cycle - 1]
            assert tau.sum() / 20 == act["mean_epochs"]
            assert (tau * d * d).sum() / d.sum() == pytest.approx(act["progress"], rel=1e-3)


def test_concentration_counts_the_least_batches(tens):
    (row,) = [r for r in tens if rule(r) == "progress" and cap(r) == 2 and r["config"]["seed"] == 0]
    found = concentration([{**row, "acts": row["acts"][:2]}])
    counts = [int((batches(row, cycle)[1] == LEAST).sum()) for cycle in (1, 2)]
    assert (found.least, found.fewest, found.most) == (np.mean(counts), min(counts), max(counts))
    assert min(counts) > 10
    assert found.carriers < 8
    assert f"of 20 learners {np.mean(counts):.0f} get the least batch" in starving(
        [{**r, "acts": r["acts"][:2]} for r in tens if r["config"]["seed"] == 0]
    )


def test_accuracy_at_an_energy_is_read_off_the_curve():
    row = {"accuracy": [0.5, 0.7], "acts": [{"energy_j": 10.0}, {"energy_j": 10.0}]}
    assert within(row, 20.0) == 0.7
    assert within(row, 15.0) == pytest.approx(0.6)
    assert np.isnan(within(row, 9.0))


def test_who_is_as_good_per_joule_is_said(tens):
    text = per_joule(tens)
    line = next(line for line in text.splitlines() if line.startswith("- FedProx, 3 ep."))
    assert "better than HA-Asyn c = 2" in line
    assert "worse than HA-Progress c = 2" in line
    assert per_joule([r for r in tens if not r["config"]["baseline"]]) == ""
    assert starving([r for r in tens if r["config"]["baseline"]]) == ""


def test_readme_and_page_say_it_and_are_what_the_results_give(everything, tens):
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs/PAST_THE_PAPER.md").read_text()
    assert past.tally(everything) in readme
    assert per_joule(tens) in readme
    assert past.headline(trained(everything)) in readme
    assert per_joule(tens) in page
    assert "What HA-Progress does to the fleet:" in readme
    assert "not within 12 cycles" in readme
    assert "not within 12 cycles" in page


def test_the_tally_counts_every_statement_once(everything):
    numbers = [int(word) for word in past.tally(everything).replace(",", "").split() if word.isdigit()]
    assert numbers[0] == sum(numbers[1:])
    assert json.dumps(past.tally([])).count("were not run") == 1
