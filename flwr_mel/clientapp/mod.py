"""The client mod: answers the server's questions, times the training, attaches a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from flwr_mel import wire
from flwr_mel.learners import Device

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable

Said = Device | Mapping[str, Any]
#: Tells what the learner can do in the coming cycle.
CapabilityFn = Callable[[Context, int], Said]

# Record names of the classic API.
_FIT_INS, _FIT_RES = "fitins.config", "fitres.metrics"
_PROPERTIES_INS = "getpropertiesins.config"
_PROPERTIES_RES, _PROPERTIES_STATUS = "getpropertiesres.properties", "getpropertiesres.status"


class MelMod:
    """A Flower client mod for both APIs: ``ClientApp(mods=[MelMod(...)])``.

    It answers the capability probe for any app without calling it, times every training and attaches a
    report with fresh capabilities to the reply. It does not choose epochs or samples for the app: the app
    reads them (`Assignment`).

    Parameters
    ----------
    capability : Device, mapping or callable, optional
        What this learner can do. A callable ``(context, cycle)`` is asked before every cycle. By default the
        ``mel-...`` keys of the node config (``--node-config``) and the run config are used.
    """

    def __init__(self, capability: Said | CapabilityFn | None = None) -> None:
        self._capability = capability

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Handle one message."""
        records = message.content.config_records if message.has_content() else {}
        for record in records.values():
            if wire.PROBE in record:
                return self._answer(message, context, int(record[wire.PROBE]))  # type: ignore[arg-type]
        task = next((r for r in records.values() if wire.EPOCHS in r), None)
        start = perf_counter()
        reply = call_next(message, context)
        seconds = perf_counter() - start
        if task is not None and reply.has_content():
            report = self._describe(context, int(task[wire.CYCLE]) + 1)  # type: ignore[arg-type]
            report[wire.TRAIN_SECONDS] = seconds
            _attach(reply.content, report, classic=_FIT_INS in records)
        return reply

    def _answer(self, message: Message, context: Context, cycle: int) -> Message:
        said = ConfigRecord(self._describe(context, cycle))
        content = RecordDict({wire.RECORD: said})
        if _PROPERTIES_INS in message.content.config_records:
            status = ConfigRecord({"code": 0, "message": ""})
            content = RecordDict({_PROPERTIES_RES: said, _PROPERTIES_STATUS: status})
        return Message(content, reply_to=message)

    def _describe(self, context: Context, cycle: int) -> dict[str, Any]:
        source = self._capability
        said = source(context, cycle) if callable(source) else source
        if said is None:
            settings = {**context.run_config, **context.node_config}
            said = {key: settings[key] for key in wire.CAPABILITY_KEYS if key in settings}
        words = describe(said) if isinstance(said, Device) else dict(said)
        if wire.LEARNER not in words:
            for key in ("name", "partition-id"):
                if key in context.node_config:
                    words[wire.LEARNER] = str(context.node_config[key])
                    break
        return words


def describe(device: Device, *, battery_j: float | None = None, learner: str | None = None) -> dict[str, Any]:
    """Put a device into the words of the wire.

    Parameters
    ----------
    device : Device
        Physical values and limits.
    battery_j : float, optional
        What is left in the battery.
    learner : str, optional
        A name, in place of the device's.
    """
    words: dict[str, Any] = {
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
    if classic:
        metrics = content.config_records.get(_FIT_RES, ConfigRecord())
        content[_FIT_RES] = ConfigRecord({**metrics, **report})
    else:
        content[wire.RECORD] = ConfigRecord(report)


#: The mod with capabilities from the node config and the run config.
mel_mod = MelMod()
