"""Measuring a device before it joins a fleet: its own training, its energy, its link.

``flwr-mel profile`` does all of it and writes a file that the device's SuperNode passes on (docs/PROFILE.md).
"""

from flwr_mel.profiling.compute import ComputeCosts, Run, measure_compute
from flwr_mel.profiling.energy import EnergyCosts, Meter, choose_meter, energy_costs
from flwr_mel.profiling.files import read_profile, write_profile
from flwr_mel.profiling.link import LinkRate, measure_link
from flwr_mel.profiling.link_server import LinkServer
from flwr_mel.profiling.profile import Profile, make_profile

__all__ = [
    "ComputeCosts",
    "EnergyCosts",
    "LinkRate",
    "LinkServer",
    "Meter",
    "Profile",
    "Run",
    "choose_meter",
    "energy_costs",
    "make_profile",
    "measure_compute",
    "measure_link",
    "read_profile",
    "write_profile",
]
