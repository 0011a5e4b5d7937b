"""The client mod: answers the server's questions, times the training, attaches a report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

from flwr_mel import wire
from flwr_mel.learners import Device, Measured
from flwr_mel.learners.fleet import COEFFICIENTS
from flwr_mel.profiling.reader import PROFILE, ProfileReader

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable

log = logging.getLogger("flwr.mel")
_profiles = ProfileReader()

Said = Device | Measured | Mapping[str, Any]
#: Tells what the learner can do in the coming cycle.
CapabilityFn = Callable[[Context, int], Said | None]

# Record names of the classic API.
_FIT_INS, _FIT_RES = "fitins.config", "fitres.metrics"
_PROPERTIES_INS = "getpropertiesins.config"
_PROPERTIES_RES, _PROPERTIES_STATUS = "getpropertiesres.properties", "getpropertiesres.status"


class MelMod:
    """A Flower client mod for both APIs: ``ClientApp(mods=[MelMod(...)])``.

    It answers the capability probe for any app without calling it, times every training and attaches a
    report with fresh capabilities to the reply. It does not choose epochs or samples for the app: the app
    reads them (`Assignment`). Put it first in the list, so that the probe does not reach mods that expect a
    model. Whatever goes wrong here is logged and never stops the training.

    Parameters
    ----------
    capability : Device, Measured, mapping, sequence of these, or callable, optional
        What this learner can do. A mapping has keys of `flwr_mel.wire`. Of a sequence, for simulations, each
        learner takes the entry of its partition-id. A callable ``(context, cycle)`` is asked before every
        cycle. By default the ``mel-...`` keys of the node config (``--node-config``) and the run config are
        used, and between the two the file that ``flwr-mel profile`` wrote on this device, if the node config
        names one: ``mel-profile="/path/profile.toml"``. It is read again whenever it changes.
    """

    def __init__(self, capability: Said | Sequence[Said] | CapabilityFn | None = None) -> None:
        self._capability = capability

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Handle one message."""
        records = message.content.config_records if message.has_content() else {}
        for record in records.values():
            if wire.PROBE in record:
                return self._answer(message, context, record[wire.PROBE])
        task = next((record for record in records.values() if wire.EPOCHS in record), None)
        start = perf_counter()
        reply = call_next(message, context)
        seconds = perf_counter() - start
        if task is not None and reply.has_content():
            cycle = task.get(wire.CYCLE)
            report = self._describe(context, cycle + 1 if isinstance(cycle, int) else 1)
            report[wire.TRAIN_SECONDS] = seconds
            _attach(reply.content, report, classic=_FIT_INS in records)
        return reply

    def _answer(self, message: Message, context: Context, cycle: object) -> Message:
        said = ConfigRecord(self._describe(context, cycle if isinstance(cycle, int) else 1))
        content = RecordDict({wire.RECORD: said})
        if _PROPERTIES_INS in message.content.config_records:
            status = ConfigRecord({"code": 0, "message": ""})
            content = RecordDict({_PROPERTIES_RES: said, _PROPERTIES_STATUS: status})
        return Message(content, reply_to=message)

    def _describe(self, context: Context, cycle: int) -> dict[str, Any]:
        words: dict[str, Any] = {}
        try:
            words = _sayable(self._said(context, cycle))
        except Exception:
            log.exception("the capability of this learner is not known; nothing is reported")
        if wire.LEARNER not in words:
            for key in ("name", "partition-id"):
                if key in context.node_config:
                    words[wire.LEARNER] = str(context.node_config[key])
                    break
        return words

    def _said(self, context: Context, cycle: int) -> Mapping[str, Any]:
        source = self._capability
        said = source(context, cycle) if callable(source) else source
        if isinstance(said, Sequence):
            said = said[int(context.node_config["partition-id"])]
        if said is None:
            settings = {**context.run_config, **_profile(context.node_config), **context.node_config}
            return {key: settings[key] for key in wire.CAPABILITY_KEYS if key in settings}
        return describe(said) if isinstance(said, Device | Measured) else said


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


def _attach(content: RecordDict, report: dict[str, Any], *, classic: bool) -> None:
    """Add the report to what the app itself has to say, e.g. the energy it measured."""
    name = _FIT_RES if classic else wire.RECORD
    own: Mapping[str, Any] = content.config_records.get(name, {})
    content[name] = ConfigRecord({**own, **report})


#: The mod with capabilities from the node config and the run config.
mel_mod = MelMod()
