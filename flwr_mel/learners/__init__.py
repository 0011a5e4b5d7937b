"""Who the learners are: devices, their links, what they say of themselves, the paper's."""

from flwr_mel.learners.channel import Channel
from flwr_mel.learners.device import Device
from flwr_mel.learners.measured import Measured
from flwr_mel.learners.paper import PaperFleet, least_batch, paper_fleet

__all__ = ["Channel", "Device", "Measured", "PaperFleet", "least_batch", "paper_fleet"]
