"""Who the learners are: devices, their links, the paper's fleet, fleets in files."""

from flwr_mel.learners.channel import Channel
from flwr_mel.learners.device import Device
from flwr_mel.learners.paper import paper_fleet

__all__ = ["Channel", "Device", "paper_fleet"]
