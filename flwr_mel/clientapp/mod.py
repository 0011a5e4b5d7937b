"""The client mod: answers probes, passes the app its epochs, reports what the app did."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from flwr_mel import wire
from flwr_mel._text import error_line
from flwr_mel.clientapp.call import Call, WatchedConfig, recorded
from flwr_mel.clientapp.capability import Source, capability_words, identity_words
from flwr_mel.clientapp.private import PrivateSteps

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
    """

    def __init__(self, capability: Source = None, *, private: PrivateSteps | None = None) -> None:
        self._capability = capability
        self._private = private

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
        if reason := self.refusal(task):
            raise ValueError(reason)
        call, inner = _prepare(message, context, task)
        with recorded(call):
            start = perf_counter()
            reply = call_next(message, inner)
            seconds = perf_counter() - start
        context.state = inner.state
        if reply.has_content():
            try:
                report = self.report(context, task, call, seconds)
                _attach(reply.content, report, classic=_FIT_INS in configs)
            except Exception:
                log.exception("no report is attached to the reply")
        return reply

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
            words |= capability_words(self._capability, context, cycle)
        except Exception as error:
            log.exception("the capability of this client is not known")
            words[wire.PROBLEM] = error_line(error, _LONGEST)
        return words

    def report(self, context: Context, task: Mapping[str, Any], call: Call, seconds: float) -> dict[str, Any]:
        """Return what is sent with the reply: the capability for the next round, and what the app did.

        Parameters
        ----------
        context : Context
            Of the client.
        task : mapping
            Keys of the wire.
        call : Call
            Of the app.
        seconds : float
            In the app.
        """
        cycle = task[wire.CYCLE]
        words = self.words(context, cycle + 1 if isinstance(cycle, int) else 1)
        return {**words, wire.TRAIN_SECONDS: seconds, **call.report()}

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


def _prepare(message: Message, context: Context, task: ConfigRecord) -> tuple[Call, Context]:
    """Set the epochs in the message and in the run config of a new context."""
    try:
        call, inner = Call(task), copy.copy(context)
        for name, config in list(message.content.config_records.items()):
            key, changed = call.override(config, add=config is task)
            if key in changed:
                message.content[name] = ConfigRecord(changed)
                call.unobserved = True
        key, changed = call.override(context.run_config)
        inner.run_config = call.config = WatchedConfig(changed, key)
    except Exception as error:
        log.exception("the epochs cannot be set; the app does its own work")
        call = Call()
        call.problem = error_line(error, _LONGEST)
        return call, context
    return call, inner


def _attach(content: RecordDict, report: dict[str, Any], *, classic: bool) -> None:
    """Add the report to the reply; the app's own words, such as the energy it measured, stay."""
    name = _FIT_RES if classic else wire.RECORD
    for metrics in content.metric_records.values():
        if wire.TRAIN_JOULES in metrics:
            report[wire.TRAIN_JOULES] = metrics[wire.TRAIN_JOULES]
    own: Mapping[str, Any] = content.config_records.get(name, {})
    content[name] = ConfigRecord({**own, **report})


#: The mod with the capability of the node config and the run config.
mel_mod = MelMod()
