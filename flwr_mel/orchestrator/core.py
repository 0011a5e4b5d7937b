"""The orchestrator's cycle (the paper's Algorithm 1) in plain Python, without Flower types.

An adapter asks `strangers`, tells it what they say (`hear`), gets the tasks (`plan`), reports what came
back (`settle`), what the metrics are (`observe`) and that the cycle is over (`close`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from flwr_mel import wire
from flwr_mel.allocation import AllocationProblem, Solution
from flwr_mel.orchestrator.capability import Capability, read_name
from flwr_mel.orchestrator.names import Names
from flwr_mel.orchestrator.planning import (
    OF_SETTINGS,
    build_problem,
    cut_shards,
    draw_seeds,
    fill_costs,
    limiting,
    note,
    solve,
)
from flwr_mel.orchestrator.settings import Settings
from flwr_mel.orchestrator.state import CyclePlan, LearnerState, State, Stopped, Task
from flwr_mel.orchestrator.stopping import stop_reason
from flwr_mel.orchestrator.trust import REFUSED, SILENT, adjust_trust, learn, measurement, slowdown_of
from flwr_mel.records import Callback, CycleRecord, LearnerRecord, Outcome

# Below Flower's own logger, so that its console shows what we say.
log = logging.getLogger("flwr.mel")

#: Larger fleets are explained at level DEBUG.
_EXPLAINED = 50
_NOT_HANDED_ON = "the replies of this cycle were not handed on to MelStrategy"


class Orchestrator:
    """Plans cycles and keeps the record.

    Parameters
    ----------
    settings : Settings
        What the user asks for.
    callbacks : iterable of callables
        Each takes every finished `CycleRecord`.
    """

    def __init__(self, settings: Settings, callbacks: Iterable[Callback] = ()) -> None:
        self.settings = settings
        self.callbacks = list(callbacks)
        self.state = State()
        self.record: CycleRecord | None = None
        self._rows: dict[str, LearnerRecord] = {}
        self._settled = True
        self._notes: list[str] = []
        self._names = Names()

    @property
    def deadline_s(self) -> float | None:
        """Seconds until a real learner's reply is dropped; None when deadlines are not enforced."""
        if not self.settings.enforce_deadline:
            return None
        return self.settings.cycle_time_s * (1 + self.settings.deadline_slack)

    def cycle_of(self, server_round: int) -> int:
        """Return the cycle of one of Flower's rounds, which count from 1 in every run."""
        return self.state.resumed_after + server_round

    # --- capabilities -------------------------------------------------------------------------------

    def strangers(self, nodes: Iterable[str]) -> list[str]:
        """Return the nodes that have never been asked what they can do."""
        present = list(nodes)
        self._names.meet(present)
        return [node for node in present if node not in self.state.learners]

    def hear(self, node: str, said: Mapping[str, object] | None) -> None:
        """Take in what a learner says of itself.

        Neither silence nor words that cannot be right replace what was known before. A learner of which
        nothing is known gets the default profile, if there is one; with learning, one that is silent, but not
        one that is refused, gets assumed costs in the plan.

        Parameters
        ----------
        node : str
            Flower's node id.
        said : mapping or None
            Keys of `flwr_mel.wire`; None: it did not answer.
        """
        known = self.state.learners.setdefault(node, LearnerState(node))
        words = {key: said[key] for key in wire.CAPABILITY_KEYS if key in said} if said else {}
        if not words and (known.capability is not None or known.doubt.startswith(REFUSED)):
            return
        heard, doubt = None, SILENT
        if words:
            asked = read_name(words)
            if trouble := self._names.give(known, asked, self.state.learners):
                self._notes.append(f"{known.name}: {trouble}")
                log.warning("%s: %s", known.name, trouble)
            if asked is not None:
                words[wire.LEARNER] = known.name
            try:
                heard = Capability.parse(words, fallback_name=known.name)
            except ValueError as error:
                doubt = f"{REFUSED}: {error}"
                self._notes.append(f"{known.name}: {doubt}")
                log.warning("%s: %s", known.name, doubt)
                if known.capability is not None:
                    return
        base = known.capability or self.settings.default_capability(known.name)
        capability = base if heard is None else heard.over(base)
        if capability is None and doubt == SILENT and self.settings.learning is not None:
            capability = Capability(known.name)
        known.declared = known.declared or (heard is not None and heard.able)
        if capability is None or capability != known.capability:
            known.capability, known.costs = capability, None
            known.doubt = "" if capability is not None and capability.able else doubt
        known.slowdown = self.state.remembered.pop(known.name, known.slowdown)
        known.estimate = self.state.estimates.pop(known.name, known.estimate)

    # --- planning -----------------------------------------------------------------------------------

    def plan(self, cycle: int, nodes: Sequence[str]) -> CyclePlan:
        """Allocate the coming cycle to the learners that are there.

        Parameters
        ----------
        cycle : int
            From 1.
        nodes : sequence of str
            Who is there. Leavers are forgotten only as participants: their profile is kept.
        """
        self.close()
        if self.state.stopped is not None:
            return CyclePlan(cycle, (), ())
        present = [self.state.learners.setdefault(node, LearnerState(node)) for node in nodes]
        present.sort(key=lambda learner: learner.order)
        fill_costs(present, self.settings)
        record = CycleRecord(cycle, self.settings.cycle_time_s, staleness=self.settings.staleness)
        record.learners = [
            LearnerRecord(x.name, x.node, reason=x.doubt, slowdown=slowdown_of(x)) for x in present
        ]
        self.record, self._settled = record, False
        self._rows = {row.node: row for row in record.learners}
        record.notes, self._notes = self._notes, []
        tasks = self._tasks(record, present)
        if not tasks:
            for row in record.learners:
                row.reason = row.reason or "nobody works in this cycle"
        _explain(record)
        busy = {task.node for task in tasks}
        return CyclePlan(cycle, tasks, tuple(x.node for x in present if x.node not in busy))

    def _tasks(self, record: CycleRecord, present: Sequence[LearnerState]) -> tuple[Task, ...]:
        able = [learner for learner in present if learner.costs is not None]
        if not able:
            # Everybody's, or else one learner could end the run while the others are silent.
            if present and all(learner.doubt in OF_SETTINGS for learner in present):
                raise ValueError(f"learner {present[0].name!r} {present[0].doubt}")
            note(record, "nobody works in this cycle: no learner says what it can do")
            return ()
        built = build_problem(able, self.settings, record)
        if built is None:
            return ()
        problem, who = built
        solution = solve(problem, self.settings, record)
        if solution is None:
            return ()
        self._write(record, who, problem, solution)
        shards = cut_shards(self.settings, record.cycle, solution.samples)
        seeds = draw_seeds(self.settings.seed, record.cycle, len(present))
        seed_of = {learner.node: seed for learner, seed in zip(present, seeds, strict=True)}
        return tuple(
            Task(
                node=x.node,
                learner=x.name,
                cycle=record.cycle,
                epochs=int(solution.epochs[k]),
                samples=int(solution.samples[k]),
                seed=seed_of[x.node],
                shard=None if shards is None else shards[k],
            )
            for k, x in enumerate(who)
            if solution.epochs[k]
        )

    def _write(
        self,
        record: CycleRecord,
        who: Sequence[LearnerState],
        problem: AllocationProblem,
        solution: Solution,
    ) -> None:
        """Put the allocation on record."""
        record.total_samples = int(solution.samples.sum())
        record.status = str(solution.status)
        record.mean_epochs, record.bound = solution.mean_epochs, solution.bound
        limited = limiting(problem, solution.epochs, solution.samples)
        for k, learner in enumerate(who):
            row = self._rows[learner.node]
            limit = problem.energy_limit_j[k]
            row.energy_limit_j = None if np.isinf(limit) else float(limit)
            if not solution.epochs[k]:
                row.reason = str(solution.excluded[k])
                continue
            row.epochs, row.samples = int(solution.epochs[k]), int(solution.samples[k])
            row.time_s, row.energy_j = float(solution.time_s[k]), float(solution.energy_j[k])
            row.limited_by, row.reason, row.outcome = limited[k], "", Outcome.FAILED
            row.slowdown = slowdown_of(learner, row)

    # --- after the work -------------------------------------------------------------------------------

    def settle(
        self,
        used: Mapping[str, int],
        failed: Mapping[str, tuple[Outcome, str]],
        reports: Mapping[str, Mapping[str, object]],
        round_trips: Mapping[str, float] | None = None,
    ) -> None:
        """Put on record what came back.

        Parameters
        ----------
        used : mapping of node to weight
            Whose update is averaged, with how many samples.
        failed : mapping of node to (outcome, reason)
            Whose is not.
        reports : mapping of node to mapping
            What learners said along with their replies (measurements and fresh capabilities).
        round_trips : mapping of node to float, optional
            Seconds from sending a task to the arrival of the reply, by the server's clock. Without learning
            they are not kept: records of simulations do not depend on the wall clock.
        """
        record = self.record
        if record is None or self._settled:
            return
        self._settled = True
        for node, weight in used.items():
            self._rows[node].outcome, self._rows[node].weight = Outcome.USED, weight
        for node, (outcome, reason) in failed.items():
            self._rows[node].outcome, self._rows[node].reason = outcome, reason
            log.warning("cycle %d: %s %s: %s", record.cycle, self._rows[node].learner, outcome, reason)
        for node, said in reports.items():
            row = self._rows.get(node)
            if row is not None and row.samples:
                row.reported_time_s = measurement(said.get(wire.TRAIN_SECONDS))
                row.reported_energy_j = measurement(said.get(wire.TRAIN_JOULES))
        for node, seconds in (round_trips or {}).items() if self.settings.learning else ():
            if node in self._rows and self._rows[node].samples:
                self._rows[node].round_trip_s = measurement(seconds)
        # Before the new words: what was planned rests on the old ones.
        learn(self.state.learners, record.learners, self.settings, self.deadline_s or record.cycle_time_s)
        for node, said in reports.items():
            self.hear(node, said)
        record.notes, self._notes = record.notes + self._notes, []
        if self.settings.learning is None:
            adjust_trust(self.state.learners, record.learners)
        asked = [row for row in record.learners if row.samples]
        missing = any(row.outcome in (Outcome.FAILED, Outcome.LATE) for row in asked)
        longest = max((row.time_s for row in asked), default=0.0)
        record.makespan_s = record.cycle_time_s if missing else longest
        record.energy_j = float(sum(row.energy_j for row in asked))
        self.state.clock_s += record.makespan_s
        self.state.energy_j += record.energy_j

    def observe(self, metrics: Mapping[str, object]) -> None:
        """Add metrics to the running cycle's record; what is not a number is left out."""
        if self.record is not None:
            for key, value in metrics.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self.record.metrics[key] = float(value)

    def close(self) -> None:
        """Finish the running cycle: decide about stopping, deliver the record."""
        record = self.record
        if record is None:
            return
        if not self._settled:
            lost = {row.node: (Outcome.FAILED, _NOT_HANDED_ON) for row in record.learners if row.samples}
            self.settle({}, lost, {})
        self.record = None
        record.clock_s, record.total_energy_j = self.state.clock_s, self.state.energy_j
        self.state.cycles_done = record.cycle
        reason = stop_reason(self.settings.stopping, record, self.state)
        if reason:
            self.state.stopped = Stopped(record.cycle, reason)
            record.stopped = reason
            log.info("training stops after cycle %d: %s", record.cycle, reason)
        for callback in self.callbacks:
            callback(record)


def _explain(record: CycleRecord) -> None:
    """Log what everybody was given and why; of a large fleet at level DEBUG."""
    level = logging.INFO if len(record.learners) <= _EXPLAINED else logging.DEBUG
    for row in record.learners:
        log.log(level, "cycle %d, %s", record.cycle, row.task_words())
