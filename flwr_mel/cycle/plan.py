"""Plan a cycle: from what is known about the learners to one task each.

Three steps: decide what each learner does (`flwr_mel.cycle.verdict`), allocate epochs and samples to those
that get a plan, and write the record. Every allocation is verified (`flwr_mel.allocation.allocate`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from flwr_mel._validate import MAX_COUNT, IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible, Solution, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.limiting import limiting
from flwr_mel.allocation.solution import Diagnosis, Reason
from flwr_mel.cycle.advice import SHORT_ROUNDS
from flwr_mel.cycle.candidates import MOST_EPOCHS, Candidates, held
from flwr_mel.cycle.errors import NoWork, unable_text
from flwr_mel.cycle.learner import Learner
from flwr_mel.cycle.options import OnInfeasible, Options
from flwr_mel.cycle.population import Follows, Population
from flwr_mel.cycle.round_time import Fleet
from flwr_mel.cycle.state import State, Task
from flwr_mel.cycle.verdict import Do, Verdict, again, decide, own_costs
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from flwr_mel.solvers.rate import best_round

#: Reasons that another round time, or a faster client, would remove.
_SLOW = (Reason.DEADLINE, Reason.MIN_BATCH_TIME)
_ANY_TIME_S = 1e9
_NO_PLAN = "the samples of this round do not fit, see the notes of the round"
#: The samples of a task on all the data of a client whose number of samples is not known.
ALL_SAMPLES = MAX_COUNT


def plan(
    state: State, options: Options, cycle: int, nodes: Sequence[str], connected: int = 0
) -> tuple[State, tuple[Task, ...], CycleRecord]:
    """Return the tasks of a cycle, and its record, which `settle` completes.

    Parameters
    ----------
    state : State
        What is known.
    options : Options
        What the user asks for.
    cycle : int
        From 1.
    nodes : sequence of str
        Clients that may be given work.
    connected : int
        How many clients there are in all: if these are more, the cycle gets its share of `total_samples`.
    """
    learners = state.present(nodes)
    population = Population.of(state, options)
    verdicts = {x.key: decide(x, options, population, cycle) for x in learners}
    job = _Job(state, options, population, verdicts, CycleRecord(cycle, staleness=options.staleness))
    _check_shards(job.those(learners, Do.PLAN, Do.SMALL), options)
    _check_able(state, learners, verdicts)
    allocated = job.solve(learners, len(nodes), max(connected, len(nodes)))
    tasks = job.write(learners, allocated)
    if not tasks:
        _check_workable(state, options, learners, job, connected)
    return job.after(tasks), tasks, job.record


@dataclass(frozen=True, slots=True, eq=False)
class _Planned:
    """What the allocation gives one learner."""

    epochs: int
    samples: int
    time_s: float
    energy_j: float
    limited_by: str


@dataclass(slots=True, eq=False)
class _Job:
    """One cycle while it is planned."""

    state: State
    options: Options
    population: Population
    verdicts: dict[str, Verdict]
    record: CycleRecord
    #: Learners that are too slow for T, as they are asked again.
    waiting: list[Learner] = field(default_factory=list)

    def those(self, learners: Sequence[Learner], *kinds: Do) -> list[Learner]:
        """Return the learners with one of these verdicts."""
        return [x for x in learners if self.verdicts[x.key].do in kinds]

    def skip(self, x: Learner, reason: object) -> None:
        """Give a learner no task."""
        self.verdicts[x.key] = Verdict.skip(reason)

    # --- allocation -----------------------------------------------------------------------------------

    def solve(self, learners: Sequence[Learner], sampled: int, connected: int) -> dict[str, _Planned]:
        """Set T, and allocate epochs and samples to the learners that get a plan."""
        chosen, own = self.those(learners, Do.PLAN), self.those(learners, Do.OWN)
        some = Candidates.of(chosen, self.options, self.population) if chosen else None
        best = self.options.best and self.population.follows in (Follows.BOTH, Follows.SAMPLES)
        found: dict[str, _Planned] = {}
        try:
            if not best:
                self.record.cycle_time_s, some = self._time(some, own, sampled)
                found = self._within_time(some, sampled / connected) if some else {}
            elif some is not None:
                found = self._best(some)
        except Infeasible as infeasible:
            if self.options.rounds.on_infeasible is OnInfeasible.ERROR:
                raise
            self.record.notes.append(f"no client gets a plan in this round: {infeasible}")
            self._explain(chosen)
        for x in self.those(chosen, Do.PLAN):
            if x.key not in found:
                self.skip(x, _NO_PLAN if self.record.notes else "its smallest task does not fit")
        return found

    def _time(
        self, some: Candidates | None, own: Sequence[Learner], sampled: int
    ) -> tuple[float, Candidates | None]:
        """Return T, given or derived from all that are known, and the learners with their most epochs."""
        options, population = self.options, self.population
        if options.time_s is not None or options.rounds.observe:
            return options.time_s or 0.0, some
        own_s = max((own_costs(x)[0] for x in own), default=0.0)
        if not population.measured:
            return 0.0, some
        if population.follows is Follows.NOTHING:
            return own_s, some
        fleet = Fleet.of(Candidates.of(population.learners, options, population, expected=True))
        time_s = max(fleet.round_s(sampled), own_s)
        if some is not None and some.whole:
            some = replace(some, max_epochs=fleet.epochs_for_own_work(time_s))
        return time_s, some

    def _best(self, some: Candidates) -> dict[str, _Planned]:
        """Choose T, participants and samples together: T follows from the expected costs."""
        options, pause_s = self.options, self.state.pause_s
        shared = MAX_COUNT if options.shards is None else len(options.shards) // len(some.learners)
        choose = partial(
            best_round,
            energy_limit_j=some.energy_limit_j,
            max_samples=np.minimum(some.data, max(shared, 1)),
            min_samples=some.min_samples,
            objective=options.rate,
        )
        expected = Candidates.of(some.learners, options, self.population, expected=True).costs
        # The pause between two rounds is spread over more work by a longer round.
        time_s = choose(replace(expected, c0=expected.c0 + pause_s)).cycle_time_s - pause_s
        found = choose(some.costs, cycle_time_s=time_s)
        self.record.cycle_time_s = found.cycle_time_s
        self.record.asked_samples = int(found.solution.samples.sum())
        if not self.state.planned:
            self.record.notes.append(SHORT_ROUNDS)
        return self._planned(some, found.problem, found.solution)

    def _within_time(self, some: Candidates, part: float) -> dict[str, _Planned]:
        """Allocate epochs and samples within T, if there are samples to allocate."""
        time_s, least = self.record.cycle_time_s, some.min_samples
        whole = min(int(some.data.sum()), MAX_COUNT)
        room = Capacities.of(some.problem(self.options, time_s, max(whole, least))).at(1)
        fits = room >= (some.data if some.whole else least)
        total = self._asked(part, least) or int(room[fits].sum())
        if some.whole:
            self._use_all(some, np.flatnonzero(~fits))
            some, total = some.take(np.flatnonzero(fits)), int(some.data[fits].sum())
        elif fits.any() and total < least * int(fits.sum()):
            some, total = self._fewer(some, room, total, int(fits.sum()))
        elif not fits.any():
            total = least
        self.record.asked_samples = total
        if not some.learners or total < least:
            return {}
        problem = some.problem(self.options, time_s, total)
        return self._planned(some, *self._solved(problem))

    def _explain(self, chosen: Sequence[Learner]) -> None:
        """Skip the learners whose smallest task does not fit, each with its reason."""
        some = Candidates.of(chosen, self.options, self.population)
        time_s = self.record.cycle_time_s or _ANY_TIME_S
        problem = some.problem(self.options, time_s, some.min_samples)
        self._excluded(some, allocate(problem, throw=False))

    def _asked(self, part: float, least: int) -> int | None:
        """Return how many samples are asked for, at least one batch; None: all data of these learners."""
        options = self.options
        total = options.total_samples
        if total is None and options.shards is not None:
            total = len(options.shards)
        return None if total is None else max(int(total * part), min(least, total))

    def _use_all(self, some: Candidates, slow: IntArray) -> None:
        """Skip the learners that cannot use all their samples in time."""
        took = some.costs.time_s(1, some.data)
        for k in slow.tolist():
            self.skip(
                some.learners[k],
                f"it uses all its {some.data[k]:,} samples, which takes {took[k]:.3g} s of "
                f"T = {self.record.cycle_time_s:.3g} s or more energy than it has. Use "
                "Assignment.choose or loader in the client",
            )

    def _fewer(self, some: Candidates, room: IntArray, total: int, able: int) -> tuple[Candidates, int]:
        """Follow `on_infeasible` where there are too few samples for the smallest task of every client."""
        least = some.min_samples
        why = f"{total:,} samples are too few for the smallest tasks of {able} clients, {least:,} each"
        policy = self.options.rounds.on_infeasible
        if policy is OnInfeasible.ERROR:
            raise Infeasible(Diagnosis(total, 0, None, why))
        places = total // least
        if policy is OnInfeasible.SKIP or not places:
            self.record.notes.append(f"no client gets a plan in this round: {why}")
            return some, 0
        strongest = np.sort(np.argsort(-room, kind="stable")[:places])
        for k in set(range(len(some.learners))) - set(strongest.tolist()):
            self.skip(some.learners[k], "there are too few samples for the smallest task of every client")
        self.record.notes.append(f"{why}: the {places} strongest take part")
        return some.take(strongest), total

    def _solved(self, problem: AllocationProblem) -> tuple[AllocationProblem, Solution]:
        """Solve, with fewer samples if these do not fit and `on_infeasible` allows that."""
        try:
            return problem, allocate(problem, self.options.allocator)
        except Infeasible as infeasible:
            fits = infeasible.diagnosis.carried
            if self.options.rounds.on_infeasible is not OnInfeasible.RELAX or not fits:
                raise
            self.record.notes.append(
                f"{problem.total_samples:,} samples do not fit, so {fits:,} are used: {infeasible.diagnosis}"
            )
            problem = problem.replace(total_samples=fits)
            return problem, allocate(problem, self.options.allocator)

    def _planned(self, some: Candidates, problem: AllocationProblem, found: Solution) -> dict[str, _Planned]:
        """Return an allocation by learner; write its certificate into the record."""
        epochs = found.epochs if some.follows is not Follows.SAMPLES else found.epochs * some.own_epochs
        limits = limiting(problem, found.epochs, found.samples)
        record = self.record
        record.status, record.objective = str(found.status), str(found.objective)
        record.value, record.bound = found.value, found.bound
        record.total_samples = int(found.samples.sum())
        self._excluded(some, found)
        columns = (epochs, found.samples, found.time_s, found.energy_j)
        rows = zip(some.learners, *(x.tolist() for x in columns), limits, strict=True)
        return {x.key: _Planned(tau, d, s, j, str(by)) for x, tau, d, s, j, by in rows if tau}

    def _excluded(self, some: Candidates, found: Solution) -> None:
        """Skip the learners that the solver left out; one that is too slow is asked again later.

        One that is expected to finish a small task in time gets that, although the promised quantile of its
        time does not fit: it is measured, and the quantile shrinks.
        """
        for k, reason in found.excluded.items():
            x = some.learners[k]
            if reason in _SLOW and not some.whole and self._small_fits(x):
                self.verdicts[x.key] = again(x, self.options)
                continue
            self.skip(x, reason)
            if reason in _SLOW:
                self._wait(x)

    def _small_fits(self, x: Learner) -> bool:
        """Whether a learner is expected to finish a small task in time."""
        n, e = self._small(x), x.estimate
        return e is not None and e.expected(n, n) <= self.record.cycle_time_s

    def _wait(self, x: Learner) -> None:
        """Ask a learner again after some rounds, unless its costs are taken as declared."""
        learned = self.options.learning(declared=x.profile.costs is not None)
        if x.estimate is None or (learned is None and not x.estimate.misses):
            return
        patience = x.patience.after(self.record.cycle, slow=True)
        self.waiting.append(replace(x, patience=patience, estimate=x.estimate.doubted()))

    # --- record and tasks -------------------------------------------------------------------------------

    def write(self, learners: Sequence[Learner], allocated: Mapping[str, _Planned]) -> tuple[Task, ...]:
        """Write a row for each learner into the record, and return the tasks."""
        record, shards = self.record, self._shards(learners, allocated)
        tasks: list[Task] = []
        for x in learners:
            verdict = self.verdicts[x.key]
            row = LearnerRecord(
                x.label,
                x.identity.node,
                reason=verdict.reason,
                energy_limit_j=x.profile.energy_limit_j,
                held=held(x, self.options),
            )
            record.learners.append(row)
            if verdict.do is not Do.SKIP:
                tasks.append(self._task(x, verdict, row, allocated.get(x.key), shards.get(x.key)))
        if not allocated and tasks:
            kinds = {self.verdicts[task.key] for task in tasks}
            first = any(v.do in (Do.SMALL, Do.TIMED) for v in kinds)
            own = any(v.first or self.options.rounds.observe for v in kinds)
            record.status = "first tasks" if first else "baseline" if own else "own work"
        return tuple(tasks)

    def _task(
        self, x: Learner, verdict: Verdict, row: LearnerRecord, given: _Planned | None, shard: IntArray | None
    ) -> Task:
        """Return the task of one learner; write it into its row."""
        options, do = self.options, verdict.do
        own = x.behaviour.own_epochs or self.population.own_epochs or 1
        if given is not None:
            row.epochs, row.samples, row.time_s, row.energy_j = (
                given.epochs,
                given.samples,
                given.time_s,
                given.energy_j,
            )
            row.limited_by = given.limited_by
        elif do is Do.OWN:
            row.baseline = True
            row.time_s, row.energy_j = own_costs(x)
        elif do is Do.TIMED:
            row.epochs = 1 if options.best else options.max_epochs or MOST_EPOCHS * own
            most = options.rate.most if options.best else options.robust.max_samples or ALL_SAMPLES
            samples, row.time_s = min(x.data or ALL_SAMPLES, most), self._seconds_known()
            row.samples = samples if samples < ALL_SAMPLES else 0  # not known before the reply
        else:
            row.epochs = own if self.population.follows is Follows.SAMPLES else 1
            row.samples = self._small(x)
        row.outcome, row.stop_after_s = Outcome.FAILED, self._stop_after_s(x, do)
        return Task(
            x.identity.node,
            x.key,
            self.record.cycle,
            row.epochs,
            row.samples or (0 if row.baseline else ALL_SAMPLES),
            draw_seed(options.seed, self.record.cycle, x.name),
            baseline=row.baseline,
            shard=shard,
            seconds=row.stop_after_s,
        )

    def _small(self, x: Learner) -> int:
        """Return the samples of a small first task."""
        there = ALL_SAMPLES if self.options.shards is None else len(self.options.shards)
        return min(self.options.least_samples, there, x.data or there)

    def _seconds_known(self) -> float:
        """Return T; with "best" and no plan in this round, that of the last one."""
        return self.record.cycle_time_s or self.state.time_s

    def _stop_after_s(self, x: Learner, do: Do) -> float | None:
        """Return after how many seconds a client stops: T without what the exchange itself takes.

        There is none where T is still to be derived from the project's own work, and none in a simulation
        with declared costs, whose results must not depend on a clock.
        """
        time_s = self._seconds_known()
        own = do is Do.OWN and self.options.time_s is None
        if not time_s or own or x.on_model_time or self.options.rounds.observe:
            return None
        if x.estimate is not None and x.estimate.seen:
            return max(time_s - x.estimate.exchange_s, 0.0)
        return max(time_s - self.population.exchange_s, time_s / 2)

    def _shards(self, learners: Sequence[Learner], allocated: Mapping[str, _Planned]) -> dict[str, IntArray]:
        """Cut fresh shuffles of the server's data into shards; they depend on seed, cycle and place alone."""
        options, cycle = self.options, self.record.cycle
        if options.shards is None:
            return {}
        order = np.random.default_rng([options.seed, cycle]).permutation(len(options.shards))
        planned = [x.key for x in learners if x.key in allocated]
        ends = np.cumsum(np.array([allocated[key].samples for key in planned], dtype=np.int64)).tolist()
        cut = {key: order[end - allocated[key].samples : end] for key, end in zip(planned, ends, strict=True)}
        for place, x in enumerate(self.those(learners, Do.SMALL)):
            rows = np.random.default_rng([options.seed, cycle, place]).permutation(len(options.shards))
            cut[x.key] = rows[: self._small(x)]
        return cut

    def after(self, tasks: Sequence[Task]) -> State:
        """Return the state after planning."""
        planned = self.state.planned or any(self.verdicts[task.key].do is Do.PLAN for task in tasks)
        state = self.state.with_learners(self.waiting) if self.waiting else self.state
        return replace(state, planned=planned, time_s=self.record.cycle_time_s or state.time_s)


def draw_seed(seed: int, cycle: int, name: str) -> int:
    """Return the seed of one learner's work in one cycle; it does not depend on the other learners."""
    digest = hashlib.blake2b(f"{seed}/{cycle}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # 63 bits: the wire carries signed integers


def _check_shards(learners: Sequence[Learner], options: Options) -> None:
    """Raise if data would be sent to clients outside a simulation without the operator's statement."""
    outside = [x.label for x in learners if not x.identity.simulated]
    if options.shards is not None and not options.shards.over_tls and outside:
        raise PermissionError(
            f"shards would be sent to {', '.join(outside[:3])}, outside a simulation. If all clients connect "
            "over TLS with registered keys, declare this with Shards(..., over_tls=True)"
        )


def _check_able(state: State, learners: Sequence[Learner], verdicts: Mapping[str, Verdict]) -> None:
    """Raise if no client can be given work before the first success."""
    reasons = [(x.label, verdicts[x.key].reason) for x in learners]
    if reasons and all(reason for _, reason in reasons) and not state.trained and not _waiting(learners):
        raise NoWork(unable_text(reasons))


def _waiting(learners: Sequence[Learner]) -> bool:
    """Whether any of these learners is asked again later."""
    return any(x.patience.until for x in learners)


def _check_workable(
    state: State, options: Options, learners: Sequence[Learner], job: _Job, connected: int
) -> None:
    """Raise if the given T is too short for every client and no task was ever planned."""
    able = job.those(learners, Do.SKIP)
    if options.time_s is None or state.trained or not able or len(able) < len(learners):
        return
    known = [x for x in state.learners.values() if x.estimate is not None]
    if len(known) < max(len(able), connected) or _waiting(learners):
        return
    some = Candidates.of(known, options, job.population)
    smallest = some.data if some.whole else np.minimum(some.min_samples, some.data)
    shortest = float(some.costs.time_s(1, smallest).min())
    if shortest > options.time_s:
        raise NoWork(
            f"cycle_time_s={options.time_s:g} is too short for every client: the smallest cycle time in "
            f"which any client can finish a task is {1.005 * shortest:.3g} s. Give at least that, or leave "
            "cycle_time_s out"
        )
