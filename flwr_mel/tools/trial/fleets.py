"""Virtual fleets: built in or from a file, spread over an app's clients, priced by what the app takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flwr_mel._validate import Phrase, complain, count, number
from flwr_mel.costs import Coefficients
from flwr_mel.devices import COEFFICIENTS, Device, Measured
from flwr_mel.paper import PAPER_CLASSES, PaperFleet
from flwr_mel.tools.fleetfile import Fleet, Learner, Relative, read_fleet
from flwr_mel.tools.phones import phone_fleet

#: Fleets by name; any other name is a file.
BUILT_IN = ("paper", "phones", "1-2-5-10")


@dataclass(frozen=True, slots=True)
class Reference:
    """What an app takes on one machine.

    Parameters
    ----------
    seconds_per_sample : float
        And epoch.
    model_bytes : int
        Of the message with the model.
    cpu_hz : float
        The clock of the device by data sheet that is as fast as the machine; by default the paper's fastest.
    """

    seconds_per_sample: float
    model_bytes: int
    cpu_hz: float = max(PAPER_CLASSES.values())

    def __post_init__(self) -> None:
        number("seconds_per_sample", self.seconds_per_sample, above=0)
        count("model_bytes", self.model_bytes)
        number("cpu_hz", self.cpu_hz, above=0)

    def price(self, learner: Learner, fleet: Fleet) -> Measured:
        """Return what the app costs a learner of a fleet."""
        if isinstance(learner, Measured):
            return learner
        if isinstance(learner, Device) and fleet.workload:
            costs = Coefficients.from_devices([learner], replace(fleet.workload, ship_data=False))
            each: dict[str, Any] = {key: float(getattr(costs, key)[0]) for key in COEFFICIENTS}
            return Measured(**each, energy_limit_j=learner.energy_limit_j, name=learner.name)
        if isinstance(learner, Device):
            power = learner.joules_per_operation * learner.cpu_hz
            link = learner.rate_bps, power, learner.tx_power_w, learner.energy_limit_j, learner.name
            learner = Relative(self.cpu_hz / learner.cpu_hz, *link)
        seconds = learner.slowness * self.seconds_per_sample
        sending = 8 * self.model_bytes / learner.rate_bps if learner.rate_bps else 0.0
        time: dict[str, Any] = {"c2": seconds, "c1": 0.0, "c0": 2 * sending}  # the model travels both ways
        energy: dict[str, Any] = {
            "g2": learner.power_w * seconds,
            "g1": 0.0,
            "g0": learner.tx_power_w * sending,
        }
        return Measured(**time, **energy, energy_limit_j=learner.energy_limit_j, name=learner.name)


def read_reference(path: Path) -> Reference:
    """Read what `write_reference` wrote; an InputError names the file."""
    try:
        given: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Reference(**given)
    except (OSError, ValueError, TypeError) as error:
        rule = "JSON with seconds_per_sample and model_bytes"
        raise complain("reference", rule, Phrase(f"{path}: {error}")) from error


def write_reference(path: Path, reference: Reference) -> None:
    """Write a reference as JSON."""
    path.write_text(json.dumps(asdict(reference), indent=1) + "\n", encoding="utf-8")


def devices_of(name: str, clients: int, seed: int, reference: Reference) -> list[Measured]:
    """Return a priced device for each client.

    Parameters
    ----------
    name : str
        One of `BUILT_IN`, or a fleet file.
    clients : int
        How many. A fleet of another size is spread over them, by its shares.
    seed : int
        Draws places, phones and links of the built-in fleets.
    reference : Reference
        Of the app.
    """
    if name == "paper":
        fleet = Fleet(PaperFleet(seed, clients, 0.0, 0.0).devices(1))  # its limits are those of another app
    elif name == "phones":
        fleet = Fleet(phone_fleet(seed, clients))
    elif name == "1-2-5-10":
        fleet = Fleet([Relative(slowness, name=f"{slowness:g}x") for slowness in (1.0, 2.0, 5.0, 10.0)])
    else:
        fleet = read_fleet(name)
    prices = [reference.price(learner, fleet) for learner in fleet.learners]
    prices = [replace(price, name=name) for price, name in zip(prices, fleet.names, strict=True)]
    if len(prices) == clients and not fleet.shares:
        return prices
    shares = fleet.shares or [1.0] * len(prices)
    whole, given, devices = sum(shares), [0] * len(prices), []
    for k in range(clients):
        # The device that is furthest behind its share; the first of equals.
        i = max(range(len(prices)), key=lambda i: shares[i] * (k + 1) / whole - given[i])
        given[i] += 1
        devices.append(replace(prices[i], name=f"{prices[i].name}-{given[i]:02d}"))
    return devices
