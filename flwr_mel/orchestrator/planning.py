"""From what is known of the learners to their tasks: costs, the allocation problem, shards, seeds."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flwr_mel import wire
from flwr_mel._validate import MAX_COUNT, FloatArray, IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible, Solution, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import screen
from flwr_mel.costs import Coefficients
from flwr_mel.orchestrator.capability import Capability
from flwr_mel.orchestrator.settings import Mode, OnInfeasible, Settings
from flwr_mel.orchestrator.state import LearnerState
from flwr_mel.orchestrator.trust import REFUSED, assume_costs, planned_costs, start_estimates
from flwr_mel.records import CycleRecord

log = logging.getLogger("flwr.mel")

NO_WORKLOAD = (
    "gives physical values (clock, link, power), so the strategy needs workload=, e.g. "
    "Workload.mlp((784, 300, 10)), to turn them into time and energy"
)
NO_TOTAL = (
    f"does not say how many samples it holds ({wire.MAX_SAMPLES}), which is needed because total_samples= "
    "is not given"
)
#: Doubts that the user's settings raise, not the learner.
OF_SETTINGS = (NO_WORKLOAD, NO_TOTAL)
# Epochs times samples must be exact in float64, as AllocationProblem demands.
_MOST_STEPS = 2.0**53


def fill_costs(learners: Sequence[LearnerState], settings: Settings) -> None:
    """Derive the costs of learners whose capability is new, all at once; doubt those that cannot be used.

    Parameters
    ----------
    learners : sequence of LearnerState
        Who is there; changed in place.
    settings : Settings
        The workload, and what else is needed to use a learner.
    """
    new = [x for x in learners if x.costs is None and x.capability is not None and x.capability.able]
    described = [x for x in new if x.capability is not None and x.capability.measured is None]
    for learner in new:
        learner.costs = learner.capability.measured if learner.capability is not None else None
        learner.doubt = ""
    if described and settings.workload is not None:
        devices = [x.capability.device for x in described if x.capability and x.capability.device]
        c = Coefficients.from_devices(devices, settings.workload)
        columns = np.column_stack((c.c2, c.c1, c.c0, c.g2, c.g1, c.g0)).tolist()
        for learner, (c2, c1, c0, g2, g1, g0) in zip(described, columns, strict=True):
            learner.costs = (c2, c1, c0, g2, g1, g0)
    if settings.learning is not None:
        start_estimates(learners, settings.learning)
        new += assume_costs(learners, settings)
    needs_data = settings.total_samples is None and settings.mode is Mode.FEDERATED
    for learner in new:
        if learner.costs is None:
            learner.doubt = NO_WORKLOAD
        elif settings.cycle_time_s / learner.costs[0] > _MOST_STEPS:
            learner.doubt = f"{REFUSED}: {learner.costs[0]:g} s per sample is too fast"
        elif needs_data and learner.capability is not None and learner.capability.max_samples is None:
            learner.doubt = NO_TOTAL
        if learner.doubt:
            learner.costs = None
            log.warning("%s: %s", learner.name, learner.doubt)
    if settings.learning is not None:
        start_estimates(learners, settings.learning)


def build_problem(
    able: Sequence[LearnerState], settings: Settings, record: CycleRecord
) -> tuple[AllocationProblem, list[LearnerState]] | None:
    """Return the cycle's allocation problem and whom it is about; None: nobody works in this cycle.

    Where there are too few samples for everybody's least batch, those who cannot take part anyway do not
    count; of the others the strongest take part, unless the policy is "skip" or "error".

    Parameters
    ----------
    able : sequence of LearnerState
        With costs.
    settings : Settings
        The limits.
    record : CycleRecord
        Told how many samples are asked for.
    """
    capabilities = [x.capability for x in able if x.capability is not None]
    total = _asked_samples(capabilities, settings)
    record.asked_samples = total
    least, who = settings.min_samples, list(able)
    if total >= least * len(who):
        return _problem(who, settings, total), who
    capacities = Capacities.of(_problem(who, settings, least * len(who)))
    index, excluded = screen(capacities)
    reasons = {who[k].node: str(reason) for k, reason in excluded.items()}
    room = total // least
    if room < len(index) or not room:
        text = f"{total:,} samples are too few for {len(index)} learners of at least {least:,} each"
        if settings.on_infeasible is OnInfeasible.ERROR:
            raise ValueError(f"{text}; lower min_samples or use more samples")
        if settings.on_infeasible is OnInfeasible.SKIP or not room:
            note(record, f"nobody works in this cycle: {text}")
            return None
        note(record, f"{text}: the {room} strongest take part")
        strongest = np.argsort(-capacities.at(1)[index], kind="stable")
        for k in index[strongest[room:]]:
            reasons[who[k].node] = "too few samples for everybody's least batch"
        index = np.sort(index[strongest[:room]])
    for row in record.learners:
        row.reason = reasons.get(row.node, row.reason)
    who = [who[int(k)] for k in index]
    if not who:
        note(record, "nobody works in this cycle: no learner can take part")
        return None
    return _problem(who, settings, total), who


def _problem(who: Sequence[LearnerState], settings: Settings, samples: int) -> AllocationProblem:
    capabilities = [x.capability for x in who if x.capability is not None]
    return AllocationProblem(
        Coefficients(*planned_costs(who, settings).T),
        settings.cycle_time_s,
        [_energy_limit(c) for c in capabilities],
        total_samples=samples,
        staleness=settings.staleness,
        min_samples=settings.min_samples,
        max_samples=[_most_samples(c, settings) for c in capabilities],
        max_epochs=settings.max_epochs,
    )


def _asked_samples(capabilities: Sequence[Capability], settings: Settings) -> int:
    if settings.total_samples is not None:
        return settings.total_samples
    if settings.dataset is not None:
        return len(settings.dataset[0])
    held = (min(c.max_samples or 0, settings.max_samples or MAX_COUNT) for c in capabilities)
    return min(max(sum(held), 1), MAX_COUNT)


def _most_samples(capability: Capability, settings: Settings) -> int | None:
    limits = [x for x in (capability.max_samples, settings.max_samples) if x is not None]
    return min(limits) if limits else None


def _energy_limit(capability: Capability) -> float | None:
    limits = [x for x in (capability.energy_limit_j, capability.battery_j) if x is not None]
    return max(min(limits), 1e-12) if limits else None


def solve(problem: AllocationProblem, settings: Settings, record: CycleRecord) -> Solution | None:
    """Solve, or do what the policy says when there is no solution; None: nobody works in this cycle.

    Parameters
    ----------
    problem : AllocationProblem
        Of this cycle.
    settings : Settings
        Solver and policy.
    record : CycleRecord
        Told what had to be given up.
    """
    try:
        return allocate(problem, settings.solver)
    except Infeasible as infeasible:
        policy, fits = settings.on_infeasible, infeasible.diagnosis.carried
        if policy is OnInfeasible.ERROR:
            raise
        if policy is OnInfeasible.RELAX and fits >= problem.min_samples * len(problem):
            text = f"{problem.total_samples:,} samples do not fit, {fits:,} do: {infeasible.diagnosis}"
            note(record, text)
            return allocate(problem.replace(total_samples=fits), settings.solver)
        note(record, f"nobody works in this cycle: {infeasible}")
        return None


def note(record: CycleRecord, text: str) -> None:
    """Put on record and log what people should know."""
    record.notes.append(text)
    log.warning("cycle %d: %s", record.cycle, text)


def cut_shards(settings: Settings, cycle: int, samples: IntArray) -> list[IntArray] | None:
    """Cut a fresh shuffle of the dataset into disjoint shards, one per learner; None in federated mode.

    The shuffle depends on the seed and the cycle alone, so that a resumed run cuts the same shards.

    Parameters
    ----------
    settings : Settings
        Dataset and seed.
    cycle : int
        From 1.
    samples : int array
        d_k.
    """
    if settings.mode is Mode.FEDERATED or settings.dataset is None:
        return None
    order = np.random.default_rng([settings.seed, cycle]).permutation(len(settings.dataset[0]))
    ends = np.cumsum(samples)
    return [order[end - n : end] for end, n in zip(ends, samples, strict=True)]


def draw_seeds(seed: int, cycle: int, learners: int) -> list[int]:
    """Return one seed per learner, by its place among all that are there, in the order of names.

    Whether a learner gets work or not does not change the seeds of the others.

    Parameters
    ----------
    seed, cycle : int
        One pair, one result.
    learners : int
        How many are there.
    """
    words = np.random.SeedSequence([seed, cycle, 1]).generate_state(learners, np.uint64)
    seeds: list[int] = (words >> np.uint64(1)).tolist()  # 63 bits: the wire carries signed integers
    return seeds


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
