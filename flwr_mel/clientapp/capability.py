"""How a client describes its device, under the keys of the wire."""

from __future__ import annotations

import logging
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context

from flwr_mel import wire
from flwr_mel.devices import COEFFICIENTS, Device, Measured

log = logging.getLogger("flwr.mel")

Capability = Device | Measured | Mapping[str, Any]
#: Returns what the client can do in the coming round.
CapabilityFn = Callable[[Context, int], Capability | None]
Source = Capability | Sequence[Capability] | CapabilityFn | None


def capability_words(source: Source, context: Context, cycle: int) -> dict[str, Any]:
    """Return what a client can do in the coming round, ready for a ConfigRecord.

    Parameters
    ----------
    source : Device, Measured, mapping, sequence of these, callable or None
        As for `MelMod`.
    context : Context
        Of the client.
    cycle : int
        The coming round.
    """
    given = source(context, cycle) if callable(source) else source
    if isinstance(given, str | bytes) or not isinstance(given, Device | Measured | Mapping | Sequence | None):
        raise TypeError(
            "the capability must be a Device, a Measured, a mapping with keys of flwr_mel.wire, a sequence "
            f"of these or a function (context, cycle) that returns one, got {given!r}"
        )
    if isinstance(given, Sequence):
        given = _entry(given, context)
    if isinstance(given, Mapping) and given and not set(given) & set(wire.CAPABILITY_KEYS):
        raise ValueError(
            f"none of the keys {', '.join(sorted(map(str, given)))} is known. Use those of flwr_mel.wire, "
            f"such as {wire.CPU_HZ}, {wire.RATE_BPS} and {wire.TX_POWER_W}, or give a Device"
        )
    if given is None:
        given = _configured(context)
    return _sendable(describe(given) if isinstance(given, Device | Measured) else given)


def identity_words(context: Context) -> dict[str, Any]:
    """Return the client's label and, in a simulation, its partition.

    Parameters
    ----------
    context : Context
        Of the client.
    """
    node = context.node_config
    label = node.get("name", node.get("partition-id"))
    words: dict[str, Any] = {} if label is None else {wire.LEARNER: str(label)}
    if in_simulation():
        words[wire.SIMULATED] = 1
        if "partition-id" in node:
            words[wire.PARTITION] = int(node["partition-id"])
    return words


def in_simulation() -> bool:
    """Whether this process is an actor of Ray, as in Flower's simulation engine."""
    ray = sys.modules.get("ray")
    try:
        return ray is not None and bool(ray.is_initialized() and ray.get_runtime_context().get_actor_id())
    except Exception:
        return False


def describe(device: Device | Measured) -> dict[str, Any]:
    """Return a device under the keys of the wire.

    Parameters
    ----------
    device : Device or Measured
        Physical values or measured coefficients, and limits.
    """
    if isinstance(device, Measured):
        costs = (float(getattr(device, name)) for name in COEFFICIENTS)
        words: dict[str, Any] = dict(zip(wire.COEFFICIENTS, costs, strict=True))
    else:
        words = {
            wire.CPU_HZ: float(device.cpu_hz),
            wire.RATE_BPS: float(device.rate_bps),
            wire.TX_POWER_W: float(device.tx_power_w),
            wire.CAPACITANCE: float(device.capacitance),
            wire.EXPONENT: float(device.exponent),
        }
    limits = {wire.ENERGY_LIMIT_J: device.energy_limit_j, wire.MAX_SAMPLES: device.max_samples}
    words |= {key: value for key, value in limits.items() if value is not None}
    return words | ({wire.LEARNER: device.name} if device.name else {})


def _entry(fleet: Sequence[Capability], context: Context) -> Capability:
    """Take the entry of this client's partition-id."""
    if "partition-id" not in context.node_config:
        raise ValueError("a fleet is given, but the node config has no partition-id to choose from it")
    k = int(context.node_config["partition-id"])
    if not 0 <= k < len(fleet):
        raise ValueError(
            f"the fleet has {len(fleet)} devices, and this client's partition-id is {k}: give as many "
            "devices as there are nodes"
        )
    return fleet[k]


def _configured(context: Context) -> dict[str, Any]:
    """Take the keys of the run config, of the profile and of the node config; the last one wins."""
    node = context.node_config
    profile = _profile(node[wire.PROFILE]) if wire.PROFILE in node else {}
    if {wire.CPU_HZ, wire.RATE_BPS, wire.TX_POWER_W} & set(node) and wire.COEFFICIENTS[0] not in node:
        # Coefficients take precedence over physical values, but the node config over the profile.
        profile = {key: value for key, value in profile.items() if key not in wire.COEFFICIENTS}
    settings = {**context.run_config, **profile, **node}
    return {key: settings[key] for key in wire.CAPABILITY_KEYS if key in settings}


def _profile(path: object) -> dict[str, Any]:
    """Read the file that ``flwr-mel profile`` wrote; its path comes from the device's own node config."""
    if not isinstance(path, str) or not path:
        raise ValueError(f"{wire.PROFILE} must be the path of a profile file, got {path!r}")
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"the profile {path} is not valid TOML: {error}") from None


def _sendable(words: Mapping[str, Any]) -> dict[str, Any]:
    """Turn numpy scalars into numbers and drop what no record can carry."""
    plain = {str(key): x.item() if isinstance(x, np.generic) else x for key, x in words.items()}
    odd = [key for key, x in plain.items() if x is not None and not isinstance(x, int | float | str | bytes)]
    if odd:
        log.warning("not reported, because a record cannot carry such values: %s", ", ".join(odd))
    return {key: x for key, x in plain.items() if x is not None and key not in odd}
