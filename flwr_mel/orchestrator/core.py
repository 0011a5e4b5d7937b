"""The holder of the state, for adapters that Flower calls step by step: it tells, logs and remembers.

An adapter asks `strangers`, tells it what they say (`hear_all`), gets the tasks (`plan`), reports what came
back (`settle`), what the metrics are (`observe`) and that the cycle is over (`close`). What is decided is
decided by the functions of `hearing` and `cycle`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flwr_mel._validate import count
from flwr_mel.orchestrator import cycle as cycles
from flwr_mel.orchestrator import flights, hearing
from flwr_mel.orchestrator.averaging import Average, Blend
from flwr_mel.orchestrator.cycle_time import deadline_s
from flwr_mel.orchestrator.echoes import given_up
from flwr_mel.orchestrator.nobody import STILL_UNTRAINED, NobodyWorks, all_failed, never_used, no_one_can
from flwr_mel.orchestrator.returned import Returned
from flwr_mel.orchestrator.settings import Settings
from flwr_mel.orchestrator.shares import blended
from flwr_mel.orchestrator.standing import flower_words
from flwr_mel.orchestrator.state import CyclePlan, State
from flwr_mel.orchestrator.telling import deliver, explain, log
from flwr_mel.records import Callback, CycleRecord, LearnerRecord, Outcome
from flwr_mel.records.cycle import title

#: How many records are kept: memory must not grow with the number of cycles.
KEEP_RECORDS = 100
#: Questions to learners that are not chosen, per cycle.
_ASKED_AT_ONCE = 200
_NOT_HANDED_ON = "the replies of this cycle were not handed on to MelStrategy"


class Orchestrator:
    """Plans cycles and keeps the record.

    Parameters
    ----------
    settings : Settings
        What the user asks for.
    callbacks : iterable of callables
        Each takes every finished `CycleRecord`. One that raises is logged and noted on the record.
    keep_records : int
        How many of the last cycles `records` has.
    """

    def __init__(
        self, settings: Settings, callbacks: Iterable[Callback] = (), *, keep_records: int = KEEP_RECORDS
    ) -> None:
        self.settings = settings
        self.callbacks = list(callbacks)
        self.keep_records = count("keep_records", keep_records, least=1)
        self.records: list[CycleRecord] = []
        self.state = State()
        self.record: CycleRecord | None = None
        self._settled = True
        #: The adapter's clock: the time of day and one that never jumps. None: there is no real one.
        self.clock: Callable[[], tuple[float, float]] | None = None
        self._began: tuple[float, float] | None = None

    @property
    def deadline_s(self) -> float | None:
        """Seconds until a real learner's reply is dropped; None when deadlines are not enforced.

        Known once the cycle is planned, where T is not given.
        """
        return deadline_s(self.settings, self.record)

    def cycle_of(self, server_round: int) -> int:
        """Return the cycle of one of Flower's rounds, which count from 1 in every run."""
        return self.state.resumed_after + server_round

    def restore(self, snapshot: Mapping[str, Any], records: Sequence[CycleRecord] = ()) -> None:
        """Go on where a snapshot of the state was taken; learners that have been heard already stay.

        Parameters
        ----------
        snapshot : mapping
            From `State.snapshot`.
        records : sequence of CycleRecord
            The last cycles before it.
        """
        self.state = given_up(State.restored(snapshot, self.state), self.settings)
        self.records = list(records[-self.keep_records :])

    def remark(self, kind: str, text: str) -> None:
        """Say something once per training: in the log, and on the next record.

        Parameters
        ----------
        kind : str
            What it is about.
        text : str
            With the remedy.
        """
        if kind not in self.state.remarked:
            log.warning("%s", text)
            told = {*self.state.remarked, kind}
            self.state = replace(self.state, notes=[*self.state.notes, text], remarked=told)

    # --- capabilities -------------------------------------------------------------------------------

    def bind(self, names: Mapping[str, str] | None) -> None:
        """Take note of who is who by the operator's word, before `hear_all`.

        Parameters
        ----------
        names : mapping of node to name, optional
            None: learners go by the names that they claim.
        """
        if names != self.state.names:
            self.state = replace(self.state, names=None if names is None else dict(names))

    def strangers(self, nodes: Collection[str], connected: Iterable[str] | None = None) -> list[str]:
        """Begin a cycle: return the nodes of which nothing has been heard. The one before is closed.

        Parameters
        ----------
        nodes : collection of str
            Who may be given work.
        connected : iterable of str, optional
            Who is there, if those are more. What is known of all others is kept under their names only.
        """
        self.close()
        self._began = None if self.clock is None else self.clock()
        self.state = hearing.meet(self.state, nodes, connected, self._began and self._began[0])
        return hearing.strangers(self.state, nodes)

    def unheard(self) -> list[str]:
        """Return connected nodes to be asked beside the training: strategies may choose them later.

        Otherwise a cycle that chooses one in ten would meet strangers for dozens of cycles.
        """
        return hearing.unheard(self.state, _ASKED_AT_ONCE)

    def awaited(self, nodes: Collection[str]) -> list[str]:
        """Return which strangers the cycle should wait for: nobody when half of the others are known.

        Everybody is waited for once at most.

        Parameters
        ----------
        nodes : collection of str
            Who may be given work.
        """
        self.state, awaited = hearing.wait_for(self.state, nodes)
        return awaited

    def hear(self, node: str, said: hearing.Words) -> None:
        """Take in what one learner says of itself; see `hearing.hear`.

        Parameters
        ----------
        node : str
            Flower's node id.
        said : mapping or None
            Keys of `flwr_mel.wire`; None: it did not answer.
        """
        self.hear_all({node: said})

    def hear_all(
        self, answers: Mapping[str, hearing.Words], took_s: Mapping[str, float] | None = None
    ) -> None:
        """Take in what learners say of themselves.

        Parameters
        ----------
        answers : mapping of node to mapping or None
            Who says what.
        took_s : mapping of node to float, optional
            Seconds from a question to its answer, by the server's clock.
        """
        told = len(self.state.notes)
        self.state = hearing.hear(self.state, self.settings, answers, took_s)
        for text in self.state.notes[told:]:
            log.warning("%s", text)

    def arrive(self, reports: Mapping[str, hearing.Words], round_trips: Mapping[str, float]) -> None:
        """Take in that replies to earlier cycles' tasks are there; see `flights.arrive`.

        Parameters
        ----------
        reports : mapping of node to mapping or None
            What learners said along with them; None: an error.
        round_trips : mapping of node to float
            By the server's clock.
        """
        told = len(self.state.notes)
        self.state = flights.arrive(self.state, self.settings, reports, round_trips)
        for text in self.state.notes[told:]:
            log.warning("%s", text)

    # --- planning -----------------------------------------------------------------------------------

    def plan(self, cycle: int, nodes: Sequence[str]) -> CyclePlan:
        """Allocate the coming cycle to the learners that are there.

        Parameters
        ----------
        cycle : int
            From 1.
        nodes : sequence of str
            Who may be given work.
        """
        self.close()
        before = self.state
        if before.stopped is not None:
            return CyclePlan(cycle, (), ())
        self.state, planned, record = cycles.plan(before, self.settings, cycle, nodes)
        if self._began is not None and not self.state.virtual:
            record.began_at = self._began[0]
        self.record, self._settled = record, False
        for node in nodes:
            learner = self.state.learners[node]
            known = before.learners.get(node)
            if learner.doubt is not None and (known is None or learner.doubt != known.doubt):
                log.warning("%s: %s", title(learner.name), learner.doubt)
        for text in record.notes[len(before.notes) :]:
            log.warning("cycle %d: %s", cycle, text)
        self._tell_time(before, record)
        explain(record)
        if not planned.tasks and not self._ever_worked and not any(row.asked for row in record.learners):
            doubted = [x for node in nodes if (x := self.state.learners[node]).doubt is not None]
            if nodes and len(doubted) == len(nodes):
                self.close()
                raise NobodyWorks(no_one_can(doubted))
        return planned

    @property
    def _ever_worked(self) -> bool:
        return self.state.cycles_done > 0

    def _tell_time(self, before: State, record: CycleRecord) -> None:
        """Log a cycle time that is not given when it changes."""
        now, then = self.state.cycle_time_s, before.cycle_time_s
        if now is not None and now != then and record.own_round_s is not None:
            text = "cycle %d: cycle time T = %.3g s for the work of the project's own round of %.3g s"
            log.info(text, record.cycle, now, record.own_round_s)
        if record.flower_s is not None and "flower" not in self.state.told:
            self.state = replace(self.state, told={*self.state.told, "flower"})
            log.info("cycle %d: %s", record.cycle, flower_words(record))

    @property
    def origins(self) -> set[int]:
        """The cycles with whose models tasks in progress began, and updates that count again."""
        tasks = (*self.state.flights.values(), *self.state.arrived.values())
        return {x.cycle for x in tasks} | {x.cycle for x in self.state.echoes}

    def due(self) -> list[str]:
        """Return the nodes whose tasks are over by the end of this cycle on the virtual clock."""
        return [] if self.record is None else flights.due(self.state, self.record)

    # --- after the work -------------------------------------------------------------------------------

    def settle(self, back: Returned) -> None:
        """Put on record what came back.

        Parameters
        ----------
        back : Returned
            As the adapter tells it.
        """
        if self.record is None or self._settled:
            return
        asked = self._settle(back)
        without = [row for row in asked if row.outcome in (Outcome.FAILED, Outcome.REFUSED)]
        if asked and len(without) == len(asked) and not self._ever_worked:
            self.close()
            raise NobodyWorks(all_failed(without))

    def _settle(self, back: Returned) -> list[LearnerRecord]:
        """Put on record what came back; return the rows of those who were given work."""
        record = self.record
        if record is None:
            return []
        self._settled = True
        told = len(record.notes)
        self.state, self.record = cycles.settle(self.state, self.settings, record, back)
        for row in self.record.failures:
            log.warning("cycle %d, %s %s: %s", record.cycle, title(row.learner), row.outcome, row.reason)
        for text in self.record.notes[told:]:
            log.warning("%s", text)
        return [row for row in self.record.learners if row.asked]

    def check_trained(self) -> None:
        """Raise `NobodyWorks` if all cycles are done, work was given and nobody's update was ever used."""
        asked = any(row.asked for record in self.records for row in record.learners)
        if asked and not self.state.trained:
            raise NobodyWorks(never_used(self.records[-1].learners))

    def blend(self, nodes: Sequence[str], moved: Sequence[str] = ()) -> Blend | None:
        """Return how the updates of these nodes are to be blended; None: by their weights, as they are.

        Parameters
        ----------
        nodes : sequence of str
            Whose updates are used, after `settle`.
        moved : sequence of str
            Whose updates of earlier cycles' tasks are, too; they come after the others, and after these come
            the record's echoes.
        """
        record = self.record
        if record is None:
            return None
        rows = {row.node: row for row in record.learners}
        own, earlier = [rows[node] for node in nodes], [rows[node] for node in moved]
        found = blended(record.cycle, own, earlier, self.settings, len(record.learners), record.echoes)
        plain = self.settings.average is Average.SAMPLES and not moved and not any(found.bounded)
        return None if plain else found

    def reject(self, reason: str) -> None:
        """Put on record that the model made of this cycle's updates is not used; the old one stays.

        Parameters
        ----------
        reason : str
            What was wrong with it.
        """
        if self.record is not None:
            self.state, self.record = cycles.reject(self.state, self.record, reason)
            log.warning("cycle %d: %s", self.record.cycle, self.record.notes[-1])

    def observe(self, metrics: Mapping[str, object]) -> None:
        """Add metrics to the running cycle's record; what is not a number is left out."""
        if self.record is not None:
            numbers = {
                key: float(value)
                for key, value in metrics.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
            self.record = replace(self.record, metrics={**self.record.metrics, **numbers})

    def close(self) -> None:
        """Finish the running cycle: decide about stopping, deliver the record."""
        if self.record is None:
            return
        if not self._settled:
            rows = [row for row in self.record.learners if row.asked]
            self._settle(Returned(failed={row.node: (Outcome.FAILED, _NOT_HANDED_ON) for row in rows}))
        self.state, record = cycles.close(self.state, self.settings, self.record)
        if record.began_at is not None and self.clock is not None and self._began is not None:
            record.ended_at, steady = self.clock()
            record.duration_s = steady - self._began[1]
        self.record = None
        if record.stopped:
            log.info("training stops after cycle %d: %s", record.cycle, record.stopped)
        self.records.append(record)
        # In the first cycle that may be as it should: long tasks take several.
        if len(self.records) > 1 and not self.state.trained and any(row.asked for row in record.learners):
            record.notes.append(STILL_UNTRAINED)
            log.warning("cycle %d: %s", record.cycle, STILL_UNTRAINED)
        del self.records[: -self.keep_records]
        failed = deliver(record, self.callbacks)
        self.state = replace(self.state, notes=[*self.state.notes, *failed])
