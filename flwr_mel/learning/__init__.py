"""What learners really take: an online estimate beside what they declare."""

from flwr_mel.learning.calls import CallCost
from flwr_mel.learning.estimate import Estimate
from flwr_mel.learning.logfilter import LogFilter
from flwr_mel.learning.observation import Observation
from flwr_mel.learning.settings import Learning, Of

__all__ = ["CallCost", "Estimate", "Learning", "LogFilter", "Observation", "Of"]
