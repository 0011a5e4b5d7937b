"""What the work costs: the training job and each learner's time and energy for it."""

from flwr_mel.costs.coefficients import Coefficients
from flwr_mel.costs.workload import Workload

__all__ = ["Coefficients", "Workload"]
