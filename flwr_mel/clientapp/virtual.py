"""A virtual fleet: the time and energy of counted work, in place of this machine's clock.

The environment variable ``FLWR_MEL_FLEET`` is the path of a JSON file, ``{"devices": [...]}``. A device is
``{"name": "pi", "c2": ..., "c1": ..., "c0": ..., "g2": ..., "g1": ..., "g0": ..., "energy_limit_j": null}``.

The mod then reports the price of the work instead of measured time. Work is what `Assignment.loader` or
`Assignment.trained` counted. Without a count it is epochs times samples: the epochs of the task, or the
project's own if the app did not read those; the samples chosen, or else the num-examples of the reply.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr_mel._text import error_line
from flwr_mel.devices import COEFFICIENTS, Measured

#: The environment variable that switches the virtual fleet on, in every process of a simulation.
FLEET = "FLWR_MEL_FLEET"
_KEYS = ("name", *COEFFICIENTS, "energy_limit_j")


def device_of(node_config: Mapping[str, Any]) -> Measured | None:
    """Return the virtual device of a client by its partition-id; None without a virtual fleet.

    Nothing is kept between calls, because the clients of a simulation share processes.

    Parameters
    ----------
    node_config : mapping
        Of the client.
    """
    path = os.environ.get(FLEET)
    if not path:
        return None
    devices = read_fleet(path)
    if not devices:
        raise ValueError(f"the virtual fleet {path} has no devices")
    if "partition-id" not in node_config:
        raise ValueError(f"{FLEET} is set, but the node config has no partition-id to choose a device")
    return devices[int(node_config["partition-id"]) % len(devices)]


def price(device: Measured, drawn: float, samples: float) -> tuple[float, float]:
    """Return the seconds and joules of a task.

    Parameters
    ----------
    device : Measured
        That does it.
    drawn : float
        Samples over all epochs.
    samples : float
        Distinct samples.
    """
    return (
        device.c2 * drawn + device.c1 * samples + device.c0,
        device.g2 * drawn + device.g1 * samples + device.g0,
    )


def read_fleet(path: str | Path) -> tuple[Measured, ...]:
    """Read the devices of a file; raise ValueError with the reason if they cannot be used.

    Parameters
    ----------
    path : str or Path
        Of the file.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))["devices"]
        return tuple(Measured(**{key: entry[key] for key in _KEYS}) for entry in entries)
    except (OSError, ValueError, TypeError, LookupError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error_line(error, 200)
        raise ValueError(f"the virtual fleet {path} cannot be used: {reason}") from error


def write_fleet(path: str | Path, devices: Sequence[Measured]) -> None:
    """Write devices to a file that `read_fleet` reads.

    Parameters
    ----------
    path : str or Path
        Of the file.
    devices : sequence of Measured
        In the order of the partition-ids.
    """
    entries = [{key: value for key, value in asdict(device).items() if key in _KEYS} for device in devices]
    Path(path).write_text(json.dumps({"devices": entries}, indent=1) + "\n", encoding="utf-8")
