"""flwr_mel: plans each round of a Flower training for devices of unequal speed.

Every client gets the number of epochs and samples with which it replies in time, stays within its energy
limit and learns as much as possible.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr_mel._validate import InputError
    from flwr_mel.allocation import (
        AllocationProblem,
        Handout,
        Infeasible,
        Reason,
        Solution,
        Status,
    )
    from flwr_mel.allocation.allocate import allocate
    from flwr_mel.costs import Coefficients, Workload
    from flwr_mel.cycle.options import Estimation, Robust, Rounds, Shards
    from flwr_mel.devices import Channel, Device, Measured
    from flwr_mel.paper import paper_fleet
    from flwr_mel.records import JsonlWriter, Stopping, read_jsonl
    from flwr_mel.solvers.inverse import Plan, fastest, greenest
    from flwr_mel.solvers.rate import BestRound, Rate, best_round
    from flwr_mel.solvers.schemes import Scheme, scheme

__version__ = "1.1.0"

__all__ = [
    "AllocationProblem",
    "BestRound",
    "Channel",
    "Coefficients",
    "Device",
    "Estimation",
    "Handout",
    "Infeasible",
    "InputError",
    "JsonlWriter",
    "Measured",
    "Plan",
    "Rate",
    "Reason",
    "Robust",
    "Rounds",
    "Scheme",
    "Shards",
    "Solution",
    "Status",
    "Stopping",
    "Workload",
    "allocate",
    "best_round",
    "fastest",
    "greenest",
    "paper_fleet",
    "read_jsonl",
    "scheme",
]

# Loaded when first used, so that a client does not load solvers.
_NAMES = {
    "flwr_mel._validate": "InputError",
    "flwr_mel.allocation": "AllocationProblem Handout Infeasible Reason Solution Status allocate",
    "flwr_mel.costs": "Coefficients Workload",
    "flwr_mel.devices": "Channel Device Measured",
    "flwr_mel.cycle.options": "Estimation Robust Rounds Shards",
    "flwr_mel.records": "JsonlWriter Stopping read_jsonl",
    "flwr_mel.paper": "paper_fleet",
    "flwr_mel.solvers.inverse": "Plan fastest greenest",
    "flwr_mel.solvers.rate": "BestRound Rate best_round",
    "flwr_mel.solvers.schemes": "Scheme scheme",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
