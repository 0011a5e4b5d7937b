"""What the tests train on the engine: the same table for both APIs."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from flwr_mel import Device
from flwr_mel.orchestrator import Stopping
from tests.flower import lab
from tests.flower.deadline import after_replies
from tests.waiting import PATIENCE_S


@dataclass
class Scenario:
    """One training inside the simulation.

    `inner` names the wrapped strategy, `outer` what wraps MelStrategy, `accuracy` what the server-side
    evaluation reports after each round.
    """

    settings: dict = field(default_factory=dict)
    inner: str = "MelFedAvg"
    outer: str = ""
    rounds: int = 2
    accuracy: list = field(default_factory=list)
    plain: bool = False
    parallelized: bool = False


FEDERATED = {
    "cycle_time_s": lab.CYCLE_TIME_S,
    "total_samples": lab.TOTAL,
    "staleness": lab.STALENESS,
    "seed": lab.SEED,
    "stragglers": "keep",
    "probe_timeout_s": PATIENCE_S,
    "idle_timeout_s": PATIENCE_S,
}
STOP_ROUNDS = 4
GOOD = Device(2e9, 2e7, 0.2, max_samples=50)


def stop(accuracy=(), **criteria):
    return Scenario({"stopping": Stopping(**criteria)}, rounds=STOP_ROUNDS, accuracy=list(accuracy))


SCENARIOS = {
    "hang": Scenario(
        {
            "enforce_deadline": True,
            "cycle_time_s": 30,
            "deadline_slack": PATIENCE_S / 30,
            "total_samples": 1000,
        }
    ),
    "federated": Scenario(rounds=3),
    "parallelized": Scenario(rounds=3, parallelized=True),
    # One learner without a task answers only when the others train in cycle 3.
    "slow-idle": Scenario({"idle_timeout_s": 0.0}, rounds=3),
    "plain": Scenario(inner="SortedFedAvg", plain=True),
    "equal": Scenario({"epochs_key": "local-epochs", "total_samples": 1200, "max_epochs": 3}, inner="FedAvg"),
    "faults": Scenario({"max_share": None}, rounds=3),
    "all-fail": Scenario(rounds=2),
    "all-fail-later": Scenario(rounds=2),
    "silent": Scenario(),
    "default": Scenario({"default_profile": GOOD}),
    "come-and-go": Scenario({"total_samples": 300}, inner="ComeAndGo", rounds=3),
    "BatchNorm": Scenario({"max_epochs": 3}, inner="FedAvg", rounds=3),
    "FedAdam": Scenario(inner="FedAdam"),
    "FedProx": Scenario(inner="FedProx"),
    "FedMedian": Scenario(inner="FedMedian"),
    "dp-outside": Scenario({"stopping": Stopping(target=0.9)}, outer="dp", rounds=3, accuracy=[0.1, 0.95, 1]),
    "dp-inside": Scenario(inner="dp"),
    "clipping-mod": Scenario(outer="client-dp", parallelized=True),
    "local-dp-mod": Scenario(parallelized=True),
    "infeasible-error": Scenario({"total_samples": 10**6, "on_infeasible": "error"}),
    "infeasible-skip": Scenario({"total_samples": 10**6, "on_infeasible": "skip"}),
    "infeasible-relax": Scenario({"total_samples": 10**6, "on_infeasible": "relax"}),
    "stop-cycles": stop(cycles=2),
    "stop-target": stop(accuracy=[0.5, 0.9, 0.99, 1], target=0.9),
    "stop-time": stop(virtual_time_s=3.0),
    "stop-energy": stop(energy_j=60.0),
    "stop-battery": stop(battery=True),
    "stop-patience": stop(accuracy=[0.5, 0.4, 0.4, 0.4], patience=1),
    "dies": Scenario(rounds=2),
}


def settings_of(case):
    """Return the arguments of MelStrategy."""
    settings = FEDERATED | {"workload": lab.workload(ship_data=case.parallelized)}
    if case.parallelized:
        x, y = lab.digits()
        settings |= {"mode": "parallelized", "dataset": (x, y, np.arange(len(x), dtype=np.uint32))}
    return settings | case.settings


def leave(name, strategy, arrays, error):
    """Leave the outcome in files; a strategy that is none of ours has no records."""
    summary = {"error": error, "records": [], "stopped": None}
    if hasattr(strategy, "records"):
        summary["records"] = [record.as_dict() for record in strategy.records]
        summary["stopped"] = strategy.stopped and [strategy.stopped.cycle, strategy.stopped.reason]
    np.savez(lab.out() / f"{name}.npz", *arrays)
    (lab.out() / f"{name}.json").write_text(json.dumps(summary))


def watched(grid):
    """Return the grid for the scenario; in one of them the deadline comes, when all but one have answered."""
    if lab.scenario() != "hang":
        return nullcontext(grid)
    return after_replies(grid, lab.LEARNERS - 1, 60 * PATIENCE_S)
