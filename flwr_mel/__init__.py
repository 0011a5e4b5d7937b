"""flwr_mel: heterogeneity-aware task allocation for Flower.

Decides, every global cycle, how many local epochs and how many samples each device gets, so that all
report in time, nobody exceeds its energy limit and as much learning as possible happens.
"""

from flwr_mel._validate import InputError
from flwr_mel.allocation import (
    AllocationProblem,
    Handout,
    Infeasible,
    Reason,
    Solution,
    Status,
    allocate,
)
from flwr_mel.allocation.objectives import Cheapest, PerCost, Progress, Soonest
from flwr_mel.costs import Coefficients, Workload
from flwr_mel.devices import Channel, Device, Measured
from flwr_mel.paper import paper_fleet
from flwr_mel.solvers.inverse import Plan, fastest, greenest
from flwr_mel.solvers.schemes import Scheme, scheme

__version__ = "0.2.0.dev0"

__all__ = [
    "AllocationProblem",
    "Channel",
    "Cheapest",
    "Coefficients",
    "Device",
    "Handout",
    "Infeasible",
    "InputError",
    "Measured",
    "PerCost",
    "Plan",
    "Progress",
    "Reason",
    "Scheme",
    "Solution",
    "Soonest",
    "Status",
    "Workload",
    "allocate",
    "fastest",
    "greenest",
    "paper_fleet",
    "scheme",
]
