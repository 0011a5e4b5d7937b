"""Virtual fleets: from a file, spread over an app's clients, priced by what the app takes on a machine."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from flwr_mel._validate import Phrase, complain, number
from flwr_mel.costs import Coefficients
from flwr_mel.devices import COEFFICIENTS, Device, Measured
from flwr_mel.paper import PAPER_CLASSES
from flwr_mel.tools.fleetfile import Fleet, Learner, Relative, read_fleet

#: Fleets by name, in files of this directory; any other name is a file of the user's.
BUILT_IN = ("paper", "phones", "1-2-5-10")


@dataclass(frozen=True, slots=True)
class Reference:
    """What an app takes on one machine.

    Parameters
    ----------
    seconds_per_sample : float
        And epoch.
    model_bytes : float
        Of a message with the model.
    cpu_hz : float
        The clock of the device by data sheet that is as fast as the machine; by default the paper's fastest.
    """

    seconds_per_sample: float
    model_bytes: float
    cpu_hz: float = max(PAPER_CLASSES.values())

    def __post_init__(self) -> None:
        number("seconds_per_sample", self.seconds_per_sample, above=0)
        number("model_bytes", self.model_bytes, least=0)
        number("cpu_hz", self.cpu_hz, above=0)

    @classmethod
    def read(cls, path: Path) -> Reference:
        """Read a reference from JSON; an InputError names the file."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            rule = "JSON with seconds_per_sample and model_bytes"
            raise complain("reference", rule, Phrase(f"{path}: {error}")) from error

    def price(self, learner: Learner | Relative, fleet: Fleet) -> Measured:
        """Return what the app costs a learner of a fleet."""
        if isinstance(learner, Measured):
            return learner
        costs: dict[str, Any]
        if isinstance(learner, Device) and fleet.workload:
            found = Coefficients.from_devices([learner], replace(fleet.workload, ship_data=False))
            costs = {key: float(getattr(found, key)[0]) for key in COEFFICIENTS}
        else:
            if isinstance(learner, Device):
                power = learner.joules_per_operation * learner.cpu_hz
                slowness = self.cpu_hz / learner.cpu_hz
                learner = Relative(
                    slowness, learner.rate_bps, power, learner.tx_power_w, learner.energy_limit_j
                )
            seconds = learner.slowness * self.seconds_per_sample
            sending = 8 * self.model_bytes / learner.rate_bps if learner.rate_bps else 0.0
            costs = {"c2": seconds, "c1": 0.0, "c0": 2 * sending}  # the model travels both ways
            costs |= {"g2": learner.power_w * seconds, "g1": 0.0, "g0": learner.tx_power_w * sending}
        return Measured(**costs, energy_limit_j=learner.energy_limit_j)


def devices_of(name: str, clients: int, reference: Reference) -> list[Measured]:
    """Return a priced device for each client.

    Parameters
    ----------
    name : str
        One of `BUILT_IN`, or a fleet file.
    clients : int
        How many: the first devices of a larger fleet; a smaller one, or one with shares, is spread over them.
    reference : Reference
        Of the app.
    """
    if name in BUILT_IN:
        with as_file(files(__package__) / f"{name}.toml") as file:
            fleet = read_fleet(file)
    else:
        fleet = read_fleet(name)
    shares = fleet.shares or [1.0] * len(fleet)
    whole, given, devices = sum(shares), [0] * len(fleet), list[Measured]()
    for k in range(clients):
        # The device that is furthest behind its share; the first of equals.
        behind = [share * (k + 1) / whole - n for share, n in zip(shares, given, strict=True)]
        i = behind.index(max(behind))
        given[i] += 1
        label = f"{fleet.names[i]}-{given[i]:02d}" if clients > len(fleet) or fleet.shares else fleet.names[i]
        devices.append(replace(reference.price(fleet.learners[i], fleet), name=label))
    return devices
