"""Who the learners are: devices, their links, what they say of themselves, the paper's."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flwr_mel.learners.channel import Channel
from flwr_mel.learners.device import Device
from flwr_mel.learners.measured import Measured
from flwr_mel.learners.paper import PaperFleet, least_batch, paper_fleet

if TYPE_CHECKING:
    from flwr_mel.fleets import Fleet, FleetError, parse_fleet, read_fleet, write_fleet, write_fleet_csv

__all__ = [
    "Channel",
    "Device",
    "Fleet",
    "FleetError",
    "Measured",
    "PaperFleet",
    "least_batch",
    "paper_fleet",
    "parse_fleet",
    "read_fleet",
    "write_fleet",
    "write_fleet_csv",
]

#: Names of the first version that live in a room above this one now.
_MOVED = ("Fleet", "FleetError", "parse_fleet", "read_fleet", "write_fleet", "write_fleet_csv")


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        return getattr(import_module("flwr_mel.fleets"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
