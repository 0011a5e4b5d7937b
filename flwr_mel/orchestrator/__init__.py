"""One round brain for both Flower APIs: the paper's Algorithm 1 without Flower types."""

from flwr_mel.orchestrator.capability import Capability
from flwr_mel.orchestrator.core import Orchestrator
from flwr_mel.orchestrator.settings import Mode, OnInfeasible, Settings, Stopping
from flwr_mel.orchestrator.state import CyclePlan, Stopped, Task
from flwr_mel.orchestrator.updates import (
    RefusedUpdate,
    brief,
    check_update,
    check_weight,
    odd_metrics,
    weighted_average,
)

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
    "brief",
    "check_update",
    "check_weight",
    "odd_metrics",
    "weighted_average",
]
