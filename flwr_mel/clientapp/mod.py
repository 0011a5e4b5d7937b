"""The client mod: answers probes, passes the app its epochs, reports what the app did."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from flwr_mel import wire
from flwr_mel._text import error_line
from flwr_mel.clientapp.call import Call, WatchedConfig, recorded
from flwr_mel.clientapp.capability import Source, capability_words, identity_words
from flwr_mel.clientapp.private import PrivateSteps
from flwr_mel.clientapp.virtual import device_of

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable

log = logging.getLogger("flwr.mel")

#: Characters of a problem that is reported.
_LONGEST = 300
# Record names of the classic API.
_FIT_INS, _FIT_RES = "fitins.config", "fitres.metrics"
_PROPERTIES_INS = "getpropertiesins.config"
_PROPERTIES_RES, _PROPERTIES_STATUS = "getpropertiesres.properties", "getpropertiesres.status"


class MelMod:
    """A Flower client mod for both APIs: ``ClientApp(mods=[MelMod(...)])``.

    It answers the server's probe without calling the app. For a training it overrides the number of epochs
    in the run config and in the message's config, times the app, and attaches a report to the reply. The app
    chooses its samples with one line, see `Assignment`. Put the mod first in the list, so that a probe does
    not reach mods that expect a model. Errors of the mod are logged and reported; they do not stop the
    training.

    Parameters
    ----------
    capability : Device, Measured, mapping, sequence of these, or callable, optional
        The costs and limits of this client. A mapping has keys of `flwr_mel.wire`. A sequence is for
        simulations: each client takes the entry of its partition-id. A callable ``(context, cycle)`` is
        called before every round. By default, the mod uses the ``mel-...`` keys of the node config
        (``--node-config``) and of the run config, and the profile that the node config names with
        ``mel-profile="/path/profile.toml"``.
    private : PrivateSteps, optional
        Rejects tasks that exceed the sampling rate and steps of this client's differential privacy.
    clock : callable, optional
        Returns seconds. Replace it to run apps on a clock of your own; for a fleet of virtual devices set
        ``FLWR_MEL_FLEET`` instead (see `flwr_mel.clientapp.virtual`), which replaces clock and capability.
    """

    def __init__(
        self,
        capability: Source = None,
        *,
        private: PrivateSteps | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._capability = capability
        self._private = private
        self._clock = clock

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Handle one message."""
        configs = dict(message.content.config_records) if message.has_content() else {}
        for config in configs.values():
            if wire.PROBE in config:
                return self._answer(message, context, config[wire.PROBE])
        task = next((config for config in configs.values() if wire.CYCLE in config), None)
        if task is None:
            call = Call()
            call.override(context.run_config)
            with recorded(call):
                return call_next(message, context)
        call = self.call(task, context)
        inner = _prepare(message, context, task, call)
        with recorded(call):
            reply = call_next(message, inner)
        context.state = inner.state
        if reply.has_content():
            try:
                report = self.report(context, task, call, _examples(reply.content))
                _attach(reply.content, report, classic=_FIT_INS in configs)
            except Exception:
                log.exception("no report is attached to the reply")
        return reply

    def call(self, task: Mapping[str, Any], context: Context) -> Call:
        """Start the clock of a task; raise ValueError if the task is rejected.

        Parameters
        ----------
        task : mapping
            Keys of the wire.
        context : Context
            Of the client.
        """
        call = Call(task, self._clock, device_of(context.node_config))
        if reason := self.refusal(task):
            raise ValueError(reason)
        return call

    def refusal(self, task: Mapping[str, Any]) -> str | None:
        """Return why a task is rejected; None if it is not.

        Parameters
        ----------
        task : mapping
            Keys of the wire.
        """
        epochs, samples = task.get(wire.EPOCHS), task.get(wire.SAMPLES)
        if self._private is None or not isinstance(epochs, int) or not isinstance(samples, int):
            return None
        return self._private.refusal(epochs, samples)

    def words(self, context: Context, cycle: int) -> dict[str, Any]:
        """Return what the client can do in the coming round; a problem if that is not known.

        Parameters
        ----------
        context : Context
            Of the client.
        cycle : int
            The coming round.
        """
        words: dict[str, Any] = {wire.MODDED: 1}
        try:
            words |= identity_words(context)
            source, device = self._capability, device_of(context.node_config)
            if device is not None:  # its costs are learned, as those of a real device
                source = {wire.ENERGY_LIMIT_J: device.energy_limit_j}
            words |= capability_words(source, context, cycle)
        except Exception as error:
            log.exception("the capability of this client is not known")
            words[wire.PROBLEM] = error_line(error, _LONGEST)
        return words

    def report(
        self, context: Context, task: Mapping[str, Any], call: Call, examples: int | None
    ) -> dict[str, Any]:
        """Return what is sent with the reply: the capability for the next round, and what the app did.

        Parameters
        ----------
        context : Context
            Of the client.
        task : mapping
            Keys of the wire.
        call : Call
            Of the app.
        examples : int, optional
            That the reply counts.
        """
        cycle = task[wire.CYCLE]
        words = self.words(context, cycle + 1 if isinstance(cycle, int) else 1)
        return {**words, **call.report(examples)}

    def _answer(self, message: Message, context: Context, cycle: object) -> Message:
        """Answer a probe in the form of the API that sent it."""
        coming = cycle if isinstance(cycle, int) else 1
        call = Call()
        call.override(context.run_config)
        own = {} if call.own_epochs is None else {wire.OWN_EPOCHS: call.own_epochs}
        answer = ConfigRecord({wire.PROBE: coming, **self.words(context, coming), **own})
        content = RecordDict({wire.RECORD: answer})
        if _PROPERTIES_INS in message.content.config_records:
            status = ConfigRecord({"code": 0, "message": ""})
            content = RecordDict({_PROPERTIES_RES: answer, _PROPERTIES_STATUS: status})
        return Message(content, reply_to=message)


def _prepare(message: Message, context: Context, task: ConfigRecord, call: Call) -> Context:
    """Set the epochs in the message and in the run config of a new context."""
    try:
        inner = copy.copy(context)
        for name, config in list(message.content.config_records.items()):
            key, changed = call.override(config, add=config is task)
            if key in changed:
                message.content[name] = ConfigRecord(changed)
                call.unobserved = True
        key, changed = call.override(context.run_config)
        inner.run_config = call.config = WatchedConfig(changed, key)
    except Exception as error:
        log.exception("the epochs cannot be set; the app does its own work")
        call.epochs, call.problem = None, error_line(error, _LONGEST)
        return context
    return inner


def _examples(content: RecordDict) -> int | None:
    """Return the samples that a reply of either API counts."""
    records = content.metric_records.values()
    found = [record.get(key) for record in records for key in ("num-examples", "num_examples")]
    return next((int(x) for x in found if isinstance(x, int | float) and 0 < x < math.inf), None)


def _attach(content: RecordDict, report: dict[str, Any], *, classic: bool) -> None:
    """Add the report to the reply; the app's own words, such as the energy it measured, stay."""
    name = _FIT_RES if classic else wire.RECORD
    own = {**content.config_records.get(name, {})}
    for metrics in content.metric_records.values():
        if wire.TRAIN_JOULES in metrics:
            own[wire.TRAIN_JOULES] = metrics[wire.TRAIN_JOULES]
    content[name] = ConfigRecord({**own, **report})


#: The mod with the capability of the node config and the run config.
mel_mod = MelMod()
