"""Who the learners are: devices, their links, the paper's fleet, fleets in files."""

from flwr_mel.learners.channel import Channel
from flwr_mel.learners.device import Device
from flwr_mel.learners.fleet import Fleet, Measured
from flwr_mel.learners.fleet_files import parse_fleet, read_fleet
from flwr_mel.learners.fleet_rows import FleetError
from flwr_mel.learners.fleet_text import write_fleet, write_fleet_csv
from flwr_mel.learners.paper import paper_fleet

__all__ = [
    "Channel",
    "Device",
    "Fleet",
    "FleetError",
    "Measured",
    "paper_fleet",
    "parse_fleet",
    "read_fleet",
    "write_fleet",
    "write_fleet_csv",
]
