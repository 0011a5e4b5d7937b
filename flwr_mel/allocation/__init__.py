"""The allocation: problem, capacities, hand-out, verification and the front door `allocate`."""

from flwr_mel.allocation.allocate import BrokenAllocation, Proposal, Solver, allocate
from flwr_mel.allocation.handout import Handout
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.solution import Diagnosis, Infeasible, Reason, Solution, Status

__all__ = [
    "AllocationProblem",
    "BrokenAllocation",
    "Diagnosis",
    "Handout",
    "Infeasible",
    "Proposal",
    "Reason",
    "Solution",
    "Solver",
    "Status",
    "allocate",
]
