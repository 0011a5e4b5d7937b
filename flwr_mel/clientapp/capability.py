"""What a learner says of itself, in the words of the wire."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Context

from flwr_mel import wire
from flwr_mel.learners import Device, Measured
from flwr_mel.learners.measured import COEFFICIENTS
from flwr_mel.profile_file import PROFILE, ProfileReader

log = logging.getLogger("flwr.mel")
_profiles = ProfileReader()

Said = Device | Measured | Mapping[str, Any]
#: Tells what the learner can do in the coming cycle.
CapabilityFn = Callable[[Context, int], Said | None]
Source = Said | Sequence[Said] | CapabilityFn | None


def said(source: Source, context: Context, cycle: int) -> dict[str, Any]:
    """Return what the learner says of the coming cycle, ready for the wire.

    Parameters
    ----------
    source : Device, Measured, mapping, sequence of these, callable or None
        As for `MelMod`.
    context : Context
        Of the learner.
    cycle : int
        The coming one.
    """
    told = source(context, cycle) if callable(source) else source
    if isinstance(told, str | bytes) or not isinstance(told, Device | Measured | Mapping | Sequence | None):
        raise TypeError(
            "the capability must be a Device, a Measured, a mapping with keys of flwr_mel.wire, a sequence "
            f"of these or a function (context, cycle) that returns one, got {told!r}"
        )
    if isinstance(told, Sequence):
        told = _entry(told, context)
    if isinstance(told, Mapping) and told and not set(told) & set(wire.CAPABILITY_KEYS):
        raise ValueError(
            f"none of the keys {', '.join(sorted(map(str, told)))} is known. Use those of flwr_mel.wire, "
            f"such as {wire.CPU_HZ}, {wire.RATE_BPS} and {wire.TX_POWER_W}, or give a Device"
        )
    if told is None:
        settings = {**context.run_config, **_profile(context.node_config), **context.node_config}
        told = {key: settings[key] for key in wire.CAPABILITY_KEYS if key in settings}
    return _sayable(describe(told) if isinstance(told, Device | Measured) else told)


def _entry(fleet: Sequence[Said], context: Context) -> Said:
    """Take the entry of this learner's partition-id."""
    if "partition-id" not in context.node_config:
        raise ValueError("a fleet is given, but the node config has no partition-id to choose from it")
    k = int(context.node_config["partition-id"])
    if not 0 <= k < len(fleet):
        raise ValueError(
            f"the fleet has {len(fleet)} devices, and this learner's partition-id is {k}: give as many "
            "devices as there are nodes"
        )
    return fleet[k]


def name_of(context: Context) -> str | None:
    """Return how the learner's node calls it.

    Parameters
    ----------
    context : Context
        Of the learner.
    """
    names = (context.node_config[key] for key in ("name", "partition-id") if key in context.node_config)
    return next((str(name) for name in names), None)


def _profile(node_config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read the profile that this device names. Neither a message nor the run config may: it is a path."""
    if PROFILE not in node_config:
        return {}
    words = _profiles.words(node_config[PROFILE])
    physical = {wire.CPU_HZ, wire.RATE_BPS, wire.TX_POWER_W} & set(node_config)
    if physical and not set(wire.COEFFICIENTS) & set(node_config):
        # Measured coefficients beat physical values, but what the node config says itself comes first.
        return {key: value for key, value in words.items() if key not in wire.COEFFICIENTS}
    return words


def _sayable(words: Mapping[str, Any]) -> dict[str, Any]:
    """Turn numpy scalars into numbers and drop what no record can carry."""
    plain = {key: x.item() if isinstance(x, np.generic) else x for key, x in words.items()}
    odd = {key for key, x in plain.items() if x is not None and not isinstance(x, int | float | str | bytes)}
    if odd:
        log.warning("not reported, because no record carries such values: %s", ", ".join(sorted(odd)))
    return {str(key): x for key, x in plain.items() if x is not None and key not in odd}


def describe(
    device: Device | Measured, *, battery_j: float | None = None, learner: str | None = None
) -> dict[str, Any]:
    """Put a device into the words of the wire.

    Parameters
    ----------
    device : Device or Measured
        Physical values or measured coefficients, and limits.
    battery_j : float, optional
        What is left in the battery.
    learner : str, optional
        A name, in place of the device's.
    """
    words: dict[str, Any]
    if isinstance(device, Measured):
        fields = zip(wire.COEFFICIENTS, COEFFICIENTS, strict=True)
        words = {key: float(getattr(device, field)) for key, field in fields}
    else:
        words = {
            wire.CPU_HZ: float(device.cpu_hz),
            wire.RATE_BPS: float(device.rate_bps),
            wire.TX_POWER_W: float(device.tx_power_w),
            wire.CAPACITANCE: float(device.capacitance),
            wire.EXPONENT: float(device.exponent),
        }
    name = learner if learner is not None else device.name
    optional = {wire.LEARNER: name or None, wire.BATTERY_J: battery_j}
    optional |= {wire.ENERGY_LIMIT_J: device.energy_limit_j, wire.MAX_SAMPLES: device.max_samples}
    return words | {key: value for key, value in optional.items() if value is not None}
