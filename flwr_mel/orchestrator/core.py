"""The orchestrator's cycle (the paper's Algorithm 1) in plain Python, without Flower types.

An adapter asks `strangers`, tells it what they say (`hear`), gets the tasks (`plan`), reports what came
back (`settle`), what the metrics are (`observe`) and that the cycle is over (`close`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from flwr_mel import wire
from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible, Solution, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import screen
from flwr_mel.costs import Coefficients
from flwr_mel.orchestrator.capability import Capability, Costs
from flwr_mel.orchestrator.settings import Mode, OnInfeasible, Settings
from flwr_mel.records import Callback, CycleRecord, LearnerRecord, Outcome

log = logging.getLogger("flwr_mel")

#: A late learner's time is taken for this much longer; a punctual one's is believed again step by step.
_LATE_FACTOR, _TRUST_FACTOR = 1.5, 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What one learner is to do in one cycle.

    Parameters
    ----------
    node, learner : str
        Flower's id and the learner's own name.
    cycle, epochs, samples : int
        The task.
    seed : int
        For the learner's own randomness: one seed, one result.
    shard : int array, optional
        Rows of the server's dataset to ship (parallelized learning).
    """

    node: str
    learner: str
    cycle: int
    epochs: int
    samples: int
    seed: int
    shard: IntArray | None = None


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """Tasks in the order of the learners' names, and who is only to be asked again."""

    cycle: int
    tasks: tuple[Task, ...]
    ask_again: tuple[str, ...]


@dataclass(slots=True)
class LearnerState:
    """What is known of one learner."""

    node: str
    capability: Capability | None = None
    costs: Costs | None = None
    doubt: str = "has not been asked yet"
    slowdown: float = 1.0

    @property
    def name(self) -> str:
        """The learner's own name, or its node id."""
        return self.capability.learner if self.capability else self.node

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Numbers before words, so that 2 comes before 10."""
        name = self.name
        number = int(name) if name.isdecimal() and len(name) < 19 else None
        return (0, number, "", self.node) if number is not None else (1, 0, name, self.node)


@dataclass(frozen=True, slots=True)
class Stopped:
    """That training stopped, after which cycle and why."""

    cycle: int
    reason: str


@dataclass(slots=True)
class State:
    """Everything that a cycle leaves to the next."""

    learners: dict[str, LearnerState] = field(default_factory=dict)
    clock_s: float = 0.0
    energy_j: float = 0.0
    best: float | None = None
    since_best: int = 0
    stopped: Stopped | None = None


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

    # --- capabilities -------------------------------------------------------------------------------

    def strangers(self, nodes: Iterable[str]) -> list[str]:
        """Return the nodes that have never been asked what they can do."""
        return [node for node in nodes if node not in self.state.learners]

    def hear(self, node: str, said: Mapping[str, object] | None) -> None:
        """Take in what a learner says of itself.

        Parameters
        ----------
        node : str
            Flower's node id.
        said : mapping or None
            Keys of `flwr_mel.wire`. None or nothing usable: the default profile, if there is one. Words that
            cannot be right never replace what was known before.
        """
        known = self.state.learners.setdefault(node, LearnerState(node))
        doubt = "does not say what it can do (no mel_mod, or no profile)"
        capability = None
        if said and any(key in said for key in wire.CAPABILITY_KEYS):
            try:
                capability = Capability.parse(said, fallback_name=node)
            except ValueError as error:
                doubt = f"its capabilities are refused: {error}"
                log.warning("node %s: %s", node, doubt)
                if known.costs is not None:
                    return
        if capability is None or (capability.device is None and capability.measured is None):
            name = capability.learner if capability else node
            default = self.settings.default_capability(name)
            capability = _merge(default, capability) if default else capability
        known.capability = capability
        known.costs = capability.costs(self.settings.workload) if capability else None
        known.doubt = "" if known.costs else doubt

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
        record = CycleRecord(cycle, self.settings.cycle_time_s, staleness=self.settings.staleness)
        self.record, self._rows = record, {}
        if self.state.stopped is not None:
            record.notes.append(
                f"stopped after cycle {self.state.stopped.cycle}: {self.state.stopped.reason}"
            )
            return CyclePlan(cycle, (), ())
        present = sorted((self.state.learners.setdefault(n, LearnerState(n)) for n in nodes), key=_by_name)
        for learner in present:
            row = LearnerRecord(learner.name, learner.node, reason=learner.doubt)
            self._rows[learner.node] = row
            record.learners.append(row)
        able = [learner for learner in present if learner.costs is not None]
        tasks: tuple[Task, ...] = ()
        if able:
            problem, who = self._problem(able)
            solution = self._allocate(problem)
            if solution is not None:
                tasks = self._tasks(cycle, who, problem, solution)
        else:
            record.notes.append("no learner says what it can do, and there is no default_profile")
        busy = {task.node for task in tasks}
        return CyclePlan(cycle, tasks, tuple(x.node for x in present if x.node not in busy))

    def _problem(self, able: Sequence[LearnerState]) -> tuple[AllocationProblem, list[LearnerState]]:
        costs = np.array([x.costs for x in able])
        costs[:, :3] *= np.array([x.slowdown for x in able])[:, None]
        capabilities = [x.capability for x in able if x.capability is not None]
        limits = [_energy_limit(c) for c in capabilities]
        most = [c.max_samples for c in capabilities]
        total = self._asked_samples(most)
        assert self.record is not None
        self.record.asked_samples = total
        least = self.settings.min_samples

        def build(samples: int) -> AllocationProblem:
            return AllocationProblem(
                Coefficients(*costs.T),
                self.settings.cycle_time_s,
                limits,
                total_samples=samples,
                staleness=self.settings.staleness,
                min_samples=least,
                max_samples=most,
                max_epochs=self.settings.max_epochs,
            )

        if total >= least * len(able):
            return build(total), list(able)
        # Too few samples for everybody's least batch: those who cannot take part anyway do not count.
        index, _ = screen(Capacities.of(build(least * len(able))))
        who = [able[int(k)] for k in index]
        if not who or total < least * len(who):
            raise ValueError(
                f"total_samples = {total} is less than min_samples = {least} for each of {len(who)} "
                "learners; lower min_samples or use more samples"
            )
        costs, limits, most = costs[index], [limits[int(k)] for k in index], [most[int(k)] for k in index]
        return build(total), who

    def _asked_samples(self, most: Sequence[int | None]) -> int:
        if self.settings.total_samples is not None:
            return self.settings.total_samples
        if self.settings.dataset is not None:
            return len(self.settings.dataset[0])
        known = [n for n in most if n is not None]
        if len(known) < len(most):
            raise ValueError(
                "total_samples is not given and some learners do not say how many samples they hold; give "
                f"total_samples=, or let every learner report {wire.MAX_SAMPLES!r}"
            )
        return max(sum(known), 1)

    def _allocate(self, problem: AllocationProblem) -> Solution | None:
        """Solve, or do what the policy says when there is no solution."""
        assert self.record is not None
        try:
            return allocate(problem, self.settings.solver)
        except Infeasible as infeasible:
            policy, fits = self.settings.on_infeasible, infeasible.diagnosis.carried
            if policy is OnInfeasible.ERROR:
                raise
            if policy is OnInfeasible.RELAX and fits >= problem.min_samples * len(problem):
                note = f"{problem.total_samples:,} samples do not fit, {fits:,} do: {infeasible.diagnosis}"
                self._note(note)
                return allocate(problem.replace(total_samples=fits), self.settings.solver)
            self._note(f"nobody works in this cycle: {infeasible}")
            return None

    def _note(self, text: str) -> None:
        assert self.record is not None
        self.record.notes.append(text)
        log.warning("cycle %d: %s", self.record.cycle, text)

    def _tasks(
        self, cycle: int, who: Sequence[LearnerState], problem: AllocationProblem, solution: Solution
    ) -> tuple[Task, ...]:
        assert self.record is not None
        record = self.record
        record.total_samples = int(solution.samples.sum())
        record.status, record.mean_epochs, record.bound = (
            str(solution.status),
            solution.mean_epochs,
            solution.bound,
        )
        limited = limiting(problem, solution.epochs, solution.samples)
        shards = self._shards(cycle, solution.samples)
        tasks = []
        for k, learner in enumerate(who):
            row = self._rows[learner.node]
            limit = problem.energy_limit_j[k]
            row.energy_limit_j = None if np.isinf(limit) else float(limit)
            if not solution.epochs[k]:
                row.reason = str(solution.excluded[k])
                log.info("%s: left out, %s", row.learner, row.reason)
                continue
            row.epochs, row.samples = int(solution.epochs[k]), int(solution.samples[k])
            row.time_s, row.energy_j = float(solution.time_s[k]), float(solution.energy_j[k])
            row.limited_by, row.reason = limited[k], ""
            row.outcome = Outcome.FAILED
            log.info(
                "%s: %d epochs, %d samples, limited by %s",
                row.learner,
                row.epochs,
                row.samples,
                row.limited_by,
            )
            seed = int(
                np.random.SeedSequence([self.settings.seed, cycle, k]).generate_state(1, np.uint64)[0] >> 1
            )
            shard = shards[k] if shards is not None else None
            tasks.append(Task(learner.node, row.learner, cycle, row.epochs, row.samples, seed, shard))
        return tuple(tasks)

    def _shards(self, cycle: int, samples: IntArray) -> list[IntArray] | None:
        """Cut a fresh shuffle of the dataset into disjoint shards, one per learner.

        The shuffle depends on the seed and the cycle alone, so that a resumed run cuts the same shards.
        """
        if self.settings.mode is Mode.FEDERATED or self.settings.dataset is None:
            return None
        rng = np.random.default_rng([self.settings.seed, cycle])
        order = rng.permutation(len(self.settings.dataset[0]))
        ends = np.cumsum(samples)
        return [order[end - n : end] for end, n in zip(ends, samples, strict=True)]

    # --- after the work -------------------------------------------------------------------------------

    def settle(
        self,
        used: Mapping[str, int],
        failed: Mapping[str, tuple[Outcome, str]],
        reports: Mapping[str, Mapping[str, object]],
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
        """
        record = self.record
        if record is None:
            return
        for node, weight in used.items():
            self._rows[node].outcome, self._rows[node].weight = Outcome.USED, weight
        for node, (outcome, reason) in failed.items():
            self._rows[node].outcome, self._rows[node].reason = outcome, reason
            log.warning("cycle %d: %s %s: %s", record.cycle, self._rows[node].learner, outcome, reason)
        for node, said in reports.items():
            row = self._rows.get(node)
            if row is not None and row.samples:
                row.reported_time_s = _measurement(said.get(wire.TRAIN_SECONDS))
                row.reported_energy_j = _measurement(said.get(wire.TRAIN_JOULES))
            self.hear(node, said)
        self._adjust_trust()
        asked = [row for row in record.learners if row.samples]
        missing = any(row.outcome in (Outcome.FAILED, Outcome.LATE) for row in asked)
        longest = max((row.time_s for row in asked), default=0.0)
        record.makespan_s = record.cycle_time_s if missing else longest
        record.energy_j = float(sum(row.energy_j for row in asked))
        self.state.clock_s += record.makespan_s
        self.state.energy_j += record.energy_j
        record.clock_s, record.total_energy_j = self.state.clock_s, self.state.energy_j

    def _adjust_trust(self) -> None:
        for node, row in self._rows.items():
            learner = self.state.learners[node]
            if row.outcome is Outcome.LATE:
                learner.slowdown *= _LATE_FACTOR
            elif row.outcome is Outcome.USED:
                learner.slowdown = max(1.0, learner.slowdown * _TRUST_FACTOR)

    def observe(self, metrics: Mapping[str, object]) -> None:
        """Add metrics to the running cycle's record; what is not a number is left out."""
        if self.record is not None:
            for key, value in metrics.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self.record.metrics[key] = float(value)

    def close(self) -> None:
        """Finish the running cycle: decide about stopping, deliver the record."""
        record, self.record = self.record, None
        if record is None or self.state.stopped is not None:
            return
        reason = self._stop_reason(record)
        if reason:
            self.state.stopped = Stopped(record.cycle, reason)
            record.stopped = reason
            log.info("training stops after cycle %d: %s", record.cycle, reason)
        for callback in self.callbacks:
            callback(record)

    def _stop_reason(self, record: CycleRecord) -> str:
        stop, state = self.settings.stopping, self.state
        value = record.metrics.get(stop.metric)
        if value is not None:
            if stop.better(value, state.best):
                state.best, state.since_best = value, 0
            else:
                state.since_best += 1
            if stop.reached(value):
                return f"{stop.metric} reached {value:g} (target {stop.target:g})"
        if stop.cycles is not None and record.cycle >= stop.cycles:
            return f"{record.cycle} cycles done"
        if stop.virtual_time_s is not None and state.clock_s >= stop.virtual_time_s:
            return f"{state.clock_s:g} s of virtual time used (limit {stop.virtual_time_s:g})"
        if stop.energy_j is not None and state.energy_j >= stop.energy_j:
            return f"{state.energy_j:g} J used (limit {stop.energy_j:g})"
        if stop.patience is not None and state.since_best >= stop.patience:
            return f"no better {stop.metric} for {state.since_best} cycles"
        return self._empty_battery(record) if stop.battery else ""

    def _empty_battery(self, record: CycleRecord) -> str:
        for row in record.learners:
            capability = self.state.learners[row.node].capability
            if capability is None or capability.battery_j is None or not row.samples:
                continue
            if capability.battery_j < row.energy_j:
                return (
                    f"the battery of {row.learner} ({capability.battery_j:g} J) does not last for another "
                    f"cycle of {row.energy_j:g} J"
                )
        return ""

    @property
    def deadline_s(self) -> float | None:
        """Seconds until a real learner's reply is dropped; None when deadlines are not enforced."""
        if not self.settings.enforce_deadline:
            return None
        return self.settings.cycle_time_s * (1 + self.settings.deadline_slack)


def limiting(problem: AllocationProblem, epochs: IntArray, samples: IntArray) -> list[str]:
    """Say for every learner which limit is nearest: time, energy or data, counted in samples.

    Parameters
    ----------
    problem : AllocationProblem
        The limits.
    epochs, samples : int arrays
        The allocation.
    """
    c = problem.coefficients
    with np.errstate(divide="ignore", invalid="ignore"):
        spare: list[FloatArray] = [
            (problem.cycle_time_s - c.time_s(epochs, samples)) / (c.c2 * epochs + c.c1),
            (problem.energy_limit_j - c.energy_j(epochs, samples)) / (c.g2 * epochs + c.g1),
            (problem.max_samples - samples).astype(np.float64),
        ]
    spare[1][np.isnan(spare[1])] = np.inf
    nearest: npt.NDArray[np.intp] = np.argmin(np.array(spare), axis=0)
    names = ("time", "energy", "data")
    return [names[i] if epochs[k] else "" for k, i in enumerate(nearest)]


def _by_name(learner: LearnerState) -> tuple[int, int, str, str]:
    return learner.order


def _merge(default: Capability, said: Capability | None) -> Capability:
    """Fill a learner's silence with the default profile, keeping the limits it did give."""
    if said is None:
        return default
    return Capability(
        learner=said.learner,
        device=default.device,
        energy_limit_j=default.energy_limit_j if said.energy_limit_j is None else said.energy_limit_j,
        max_samples=default.max_samples if said.max_samples is None else said.max_samples,
        battery_j=said.battery_j,
    )


def _energy_limit(capability: Capability) -> float | None:
    limits = [x for x in (capability.energy_limit_j, capability.battery_j) if x is not None]
    return max(min(limits), 1e-12) if limits else None


def _measurement(value: object) -> float | None:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value) and value >= 0
    return float(value) if ok else None  # type: ignore[arg-type]
