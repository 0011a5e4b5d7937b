"""`plan`, `fleet` and `simulate` mean the same by the same words; choices can be completed."""

import os
from hashlib import sha256

import pytest
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.data import DATASETS
from mel_simulation.scenario.fleet import VirtualFleet
from mel_simulation.scenario.job import min_samples, total_samples

from flwr_mel.cli.shared import DatasetName
from flwr_mel.fleets import parse_fleet
from flwr_mel.paper import PaperFleet, least_batch
from tests.cli.tools import LIMITS, ask, process, run


@pytest.mark.parametrize("cycle", [1, 3])
@pytest.mark.parametrize(
    ("seed", "learners", "energy", "spread"), [(0, 20, 10, 2.5), (7, 13, 20, 5), (1, 4, 0, 2.5)]
)
def test_a_drawn_fleet_is_the_simulations(seed, learners, energy, spread, cycle):
    options = ("--seed", seed, "--learners", learners, "--energy", energy, "--energy-spread", spread)
    text = run("fleet", "--paper", *options, "--cycle", cycle).stdout
    config = RunConfig(seed=seed, energy=float(energy), energy_spread=spread)
    assert list(parse_fleet(text.encode(), "fleet.toml").learners) == VirtualFleet(learners, config).devices(
        cycle
    )


@pytest.mark.parametrize("cycle", [1, 2, 9])
def test_learners_that_move_are_the_simulations(cycle):
    config = RunConfig(seed=3, mobility=40.0)
    fleet = PaperFleet(seed=3, mobility_m=40.0)
    assert fleet.devices(cycle) == VirtualFleet(20, config).devices(cycle)


def test_the_fleets_of_finished_runs_can_be_drawn_again():
    """Results are kept: the same seed must go on giving the same learners, to the last bit."""
    digests = {
        (PaperFleet(), 1): "2528bd9ba21a",
        (PaperFleet(), 3): "914a7758785c",
        (PaperFleet(seed=3, mobility_m=40.0), 9): "7bd7ac4319fa",
        (PaperFleet(seed=5, energy_j=0.0), 3): "b64f2146cc33",
        (PaperFleet(seed=7, energy_j=20.0, energy_spread_j=5.0), 9): "6434843214a7",
    }
    for (fleet, cycle), digest in digests.items():
        told = repr([(d.rate_bps, d.energy_limit_j, d.cpu_hz, d.name) for d in fleet.devices(cycle)])
        assert sha256(told.encode()).hexdigest().startswith(digest), (fleet, cycle)


@pytest.mark.parametrize(("samples", "learners"), [(0, 20), (600, 20), (30, 20), (2000, 3), (4000, 1)])
def test_the_least_batch_is_the_simulations(paper, samples, learners):
    config = RunConfig(samples=samples, learners=learners)
    assert least_batch(total_samples(config), learners) == min_samples(config)


def test_plans_have_the_simulations_defaults(paper):
    problem = ask("plan", paper, *LIMITS)["problem"]
    assert problem["staleness"] == RunConfig().staleness == 2
    assert problem["min_samples"] == 100
    assert ask("plan", paper, *LIMITS, "--min-samples", 0)["problem"]["min_samples"] == 100
    assert ask("plan", paper, "--cycle-time", 10, "--samples", 600)["problem"]["min_samples"] == 1
    assert ask("recommend", paper, *LIMITS)["problem"]["min_samples"] == 100


def test_datasets_are_the_simulations():
    assert [str(name) for name in DatasetName] == list(DATASETS)


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        ("plan f.toml --mode ", ["pl", "fl"]),
        ("plan f.toml --solver ", ["exact", "suggest-improve", "equal"]),
        ("recommend f.toml --dataset ", ["mnist", "fashion-mnist"]),
        ("profile --meter ", ["auto", "rapl", "battery", "declared", "none"]),
    ],
)
def test_choices_are_completed(words, choices):
    line = f"flwr-mel {words}"
    env = os.environ | {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split())),
        "_FLWR_MEL_COMPLETE": "complete_bash",
    }
    done = process(installed=True, env=env)
    assert done.stdout.split() == choices
