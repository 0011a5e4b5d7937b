"""The client mod: answers questions, lays the task where the app reads it, reports what was done."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from flwr_mel import wire
from flwr_mel._text import error_line
from flwr_mel.clientapp.capability import CapabilityFn, Source, describe, name_of, said
from flwr_mel.clientapp.drawn import counting
from flwr_mel.clientapp.limits import PrivateSteps
from flwr_mel.clientapp.report import LONGEST, examples_in, report_of, simulated
from flwr_mel.clientapp.watch import Watch, laid_over

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable

__all__ = ["CapabilityFn", "MelMod", "describe", "mel_mod"]

log = logging.getLogger("flwr.mel")

# Record names of the classic API.
_FIT_INS, _FIT_RES = "fitins.config", "fitres.metrics"
_PROPERTIES_INS = "getpropertiesins.config"
_UNDECLARED = (
    "Opacus is loaded here and nothing is declared of it: epochs or samples other than the project's own "
    "change epsilon. Keep tasks within what it was computed for by "
    "ClientApp(mods=[MelMod(private=PrivateSteps(...))])"
)
_PROPERTIES_RES, _PROPERTIES_STATUS = "getpropertiesres.properties", "getpropertiesres.status"


class MelMod:
    """A Flower client mod for both APIs: ``ClientApp(mods=[MelMod(...)])``.

    It answers the capability probe for any app without calling it. During a training it lays the allocated
    epochs over the run config and the message where the app reads its own, times the app, and attaches a
    report to the reply; see `flwr_mel.wire` for what it says. Samples are the app's to choose: one line with
    `Assignment`. Put it first in the list, so that the probe does not reach mods that expect a model.
    Whatever goes wrong here is logged and reported, and never stops the training.

    Parameters
    ----------
    capability : Device, Measured, mapping, sequence of these, or callable, optional
        What this learner can do. A mapping has keys of `flwr_mel.wire`. Of a sequence, for simulations, each
        learner takes the entry of its partition-id. A callable ``(context, cycle)`` is asked before every
        cycle. By default the ``mel-...`` keys of the node config (``--node-config``) and the run config are
        used, and between the two the file that ``flwr-mel profile`` wrote on this device, if the node config
        names one: ``mel-profile="/path/profile.toml"``. It is read again whenever it changes.
    private : PrivateSteps, optional
        Keeps every task within the sampling rate and steps of the learner's differential privacy.
    """

    def __init__(self, capability: Source = None, *, private: PrivateSteps | None = None) -> None:
        self._capability = capability
        self._private = private

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Handle one message."""
        records = dict(message.content.config_records) if message.has_content() else {}
        for record in records.values():
            if wire.PROBE in record:
                return self._answer(message, context, record[wire.PROBE])
        task = next((record for record in records.values() if wire.CYCLE in record), None)
        if task is None:
            return call_next(message, context)
        watch, problem = self.begin(task)
        with ExitStack() as laid:
            try:
                laid.enter_context(laid_over(context, list(records.values()), task, watch))
            except Exception as error:
                log.exception("the epochs could not be laid over the config; the app does as it likes")
                problem, watch.blind = problem or error_line(error, LONGEST), True
            watch.loaders = laid.enter_context(counting())
            start = perf_counter()
            reply = call_next(message, context)
            seconds = perf_counter() - start
        if reply.has_content():
            try:
                examples = examples_in(reply.content.metric_records.values())
                report = self.report(context, task, watch, seconds, examples, problem)
                _attach(reply.content, report, classic=_FIT_INS in records)
            except Exception:
                log.exception("no report is attached to the reply")
        return reply

    def begin(self, task: Any) -> tuple[Watch, str | None]:
        """Cut a task to the declared limits, in place; return who watches it, and what was wrong with it.

        Parameters
        ----------
        task : mutable mapping
            Record or config with the words of the task.
        """
        named = task.get(wire.EPOCHS_KEY)
        named = named if isinstance(named, str) and named else None
        epochs, samples = task.get(wire.EPOCHS), task.get(wire.SAMPLES)
        if not isinstance(epochs, int) or epochs < 1:
            free = epochs is None and wire.FREE in task
            return Watch(None, named), None if free else f"{wire.EPOCHS} is {epochs!r}: not followed"
        if self._private is not None and isinstance(samples, int):
            epochs, samples = self._private.within(epochs, samples)
            task.update({wire.EPOCHS: epochs, wire.SAMPLES: samples})
        return Watch(epochs, named), None

    def report(
        self,
        context: Context,
        task: Mapping[str, Any],
        watch: Watch,
        seconds: float,
        examples: float | None,
        problem: str | None,
    ) -> dict[str, Any]:
        """Put together what rides on the reply: fresh capabilities and what was done.

        Parameters
        ----------
        context : Context
            Of the learner.
        task : mapping
            The words of the task.
        watch : Watch
            What was seen.
        seconds : float
            In the app.
        examples : float, optional
            The app's own num-examples.
        problem : str, optional
            What went wrong in the kit.
        """
        cycle = task.get(wire.CYCLE)
        words = self.words(context, cycle + 1 if isinstance(cycle, int) else 1)
        if problem is None and self._private is None and "opacus" in sys.modules:
            problem = _UNDECLARED
        if problem:
            words[wire.PROBLEM] = problem
        return words | report_of(watch, seconds, examples)

    def words(self, context: Context, cycle: int) -> dict[str, Any]:
        """Say what the learner can do in a cycle; if it cannot be known, why.

        Parameters
        ----------
        context : Context
            Of the learner.
        cycle : int
            The coming one.
        """
        words: dict[str, Any] = {}
        try:
            words = said(self._capability, context, cycle)
        except Exception as error:
            log.exception("the capability of this learner is not known; nothing is reported")
            words = {wire.PROBLEM: error_line(error, LONGEST)}
        if wire.LEARNER not in words and (name := name_of(context)) is not None:
            words[wire.LEARNER] = name
        if self._private is not None:
            words |= self._private.words()
        return words | ({wire.SIMULATED: 1} if simulated() else {})

    def _answer(self, message: Message, context: Context, cycle: object) -> Message:
        coming = cycle if isinstance(cycle, int) else 1
        start = perf_counter()
        words = self.words(context, coming)
        answer = ConfigRecord({wire.PROBE: coming, **words, wire.ANSWER_SECONDS: perf_counter() - start})
        content = RecordDict({wire.RECORD: answer})
        if _PROPERTIES_INS in message.content.config_records:
            status = ConfigRecord({"code": 0, "message": ""})
            content = RecordDict({_PROPERTIES_RES: answer, _PROPERTIES_STATUS: status})
        return Message(content, reply_to=message)


def _attach(content: RecordDict, report: dict[str, Any], *, classic: bool) -> None:
    """Add the report to what the app itself has to say, e.g. the energy it measured."""
    name = _FIT_RES if classic else wire.RECORD
    own: Mapping[str, Any] = content.config_records.get(name, {})
    content[name] = ConfigRecord({**own, **report})


#: The mod with capabilities from the node config and the run config.
mel_mod = MelMod()
