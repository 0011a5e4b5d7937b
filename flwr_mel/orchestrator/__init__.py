"""One round brain for both Flower APIs: the paper's Algorithm 1 without Flower types."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flwr_mel.devices import Capability
from flwr_mel.orchestrator.averaging import Average
from flwr_mel.orchestrator.core import Orchestrator
from flwr_mel.orchestrator.nobody import NobodyWorks
from flwr_mel.orchestrator.returned import Returned, Times
from flwr_mel.orchestrator.settings import Mode, OnInfeasible, Settings, Stopping, Stragglers
from flwr_mel.orchestrator.state import CyclePlan, Stopped, Task

if TYPE_CHECKING:
    from flwr_mel.flower.arrays import check_update
    from flwr_mel.flower.average import weighted_average
    from flwr_mel.flower.metrics import check_weight, odd_metrics
    from flwr_mel.flower.reasons import RefusedUpdate, brief

__all__ = [
    "Average",
    "Capability",
    "CyclePlan",
    "Mode",
    "NobodyWorks",
    "OnInfeasible",
    "Orchestrator",
    "RefusedUpdate",
    "Returned",
    "Settings",
    "Stopped",
    "Stopping",
    "Stragglers",
    "Task",
    "Times",
    "brief",
    "check_update",
    "check_weight",
    "odd_metrics",
    "weighted_average",
]

#: Names of the first version that live in another room now, which this one does not need.
_MOVED = {
    "RefusedUpdate": "reasons",
    "brief": "reasons",
    "check_update": "arrays",
    "check_weight": "metrics",
    "odd_metrics": "metrics",
    "weighted_average": "average",
}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        return getattr(import_module(f"flwr_mel.flower.{_MOVED[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
