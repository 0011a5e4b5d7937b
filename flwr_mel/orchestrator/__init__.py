"""One round brain for both Flower APIs: the paper's Algorithm 1 without Flower types."""

from flwr_mel.orchestrator.capability import Capability
from flwr_mel.orchestrator.core import CyclePlan, Orchestrator, Stopped, Task
from flwr_mel.orchestrator.settings import Mode, OnInfeasible, Settings, Stopping
from flwr_mel.orchestrator.updates import RefusedUpdate, check_update, check_weight, weighted_average

__all__ = [
    "Capability",
    "CyclePlan",
    "Mode",
    "OnInfeasible",
    "Orchestrator",
    "RefusedUpdate",
    "Settings",
    "Stopped",
    "Stopping",
    "Task",
    "check_update",
    "check_weight",
    "weighted_average",
]
