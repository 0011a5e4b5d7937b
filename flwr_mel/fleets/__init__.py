"""Fleets: the learners of one job together, in Python and in files."""

from flwr_mel.fleets.files import parse_fleet, read_fleet
from flwr_mel.fleets.fleet import Fleet
from flwr_mel.fleets.rows import FleetError
from flwr_mel.fleets.text import write_fleet, write_fleet_csv

__all__ = ["Fleet", "FleetError", "parse_fleet", "read_fleet", "write_fleet", "write_fleet_csv"]
