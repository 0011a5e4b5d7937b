"""What the simulations run: the same table for both APIs, one Ray start each."""

from dataclasses import dataclass, field

from flwr_mel import Device
from flwr_mel.orchestrator import Stopping
from tests.flower import lab


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
    "probe_timeout_s": 180.0,
}
STOP_ROUNDS = 4
GOOD = Device(2e9, 2e7, 0.2, max_samples=50)


def stop(accuracy=(), **criteria):
    return Scenario({"stopping": Stopping(**criteria)}, rounds=STOP_ROUNDS, accuracy=list(accuracy))


SCENARIOS = {
    # First, while Ray is cold: the probe must absorb its start, or the deadline would lose everybody.
    "hang": Scenario({"enforce_deadline": True, "cycle_time_s": 6.0, "total_samples": 1000}),
    "federated": Scenario(rounds=3),
    "parallelized": Scenario(rounds=3, parallelized=True),
    "plain": Scenario(inner="SortedFedAvg", plain=True),
    "equal": Scenario({"epochs_key": "local-epochs", "total_samples": 1200, "max_epochs": 3}, inner="FedAvg"),
    "faults": Scenario(rounds=3),
    "all-fail": Scenario(rounds=2),
    "silent": Scenario(),
    "default": Scenario({"default_profile": GOOD}),
    "come-and-go": Scenario({"total_samples": 300}, inner="ComeAndGo", rounds=3),
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
}
#: Last, because a dead actor harms whatever comes after it.
LAST = {"dies": Scenario(rounds=2)}
