"""From what is known of the learners to their tasks: costs, the allocation, shards, seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flwr_mel._slots import changed
from flwr_mel._validate import IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible, Solution, Solver, allocate
from flwr_mel.costs import Coefficients
from flwr_mel.orchestrator.doubts import Doubt, Why
from flwr_mel.orchestrator.privacy import solve_privately
from flwr_mel.orchestrator.problems import Share
from flwr_mel.orchestrator.settings import InForce, Mode, OnInfeasible, Settings
from flwr_mel.orchestrator.standing import with_flower_time
from flwr_mel.orchestrator.state import LearnerState
from flwr_mel.orchestrator.trust import assume_costs, recall_costs, start_estimates
from flwr_mel.records import CycleRecord

# Epochs times samples must be exact in float64, as AllocationProblem demands.
_MOST_STEPS = 2.0**53


def fill_costs(learners: Sequence[LearnerState], settings: InForce) -> list[LearnerState]:
    """Return the learners with the costs of those whose capability is new, or with the doubt about them.

    Parameters
    ----------
    learners : sequence of LearnerState
        Who is there.
    settings : InForce
        The workload, and what else is needed to use a learner.
    """
    found = start_estimates(_derived(learners, settings), settings)
    found = assume_costs([recall_costs(x) for x in found], settings)
    found = [
        x if x is old else _doubted(x, settings, old.doubt) for x, old in zip(found, learners, strict=True)
    ]
    return start_estimates(found, settings)


def _derived(learners: Sequence[LearnerState], settings: InForce) -> list[LearnerState]:
    """Turn capabilities into costs, all at once."""
    found = list(learners)
    new = [k for k, x in enumerate(learners) if x.costs is None and x.capability and x.capability.able]
    told = (learners[k].capability for k in new)
    costs = {k: said.measured for k, said in zip(new, told, strict=True) if said is not None}
    described = [k for k in new if costs[k] is None]
    if described and settings.workload is not None:
        capabilities = [learners[k].capability for k in described]
        devices = [c.device for c in capabilities if c is not None and c.device is not None]
        c = Coefficients.from_devices(devices, settings.workload)
        columns = np.column_stack((c.c2, c.c1, c.c0, c.g2, c.g1, c.g0)).tolist()
        costs |= {
            k: (c2, c1, c0, g2, g1, g0)
            for k, (c2, c1, c0, g2, g1, g0) in zip(described, columns, strict=True)
        }
    for k, mine in costs.items():
        found[k] = changed(
            learners[k], costs=mine and with_flower_time(learners[k], mine, settings), doubt=None
        )
    return found


def _doubted(learner: LearnerState, settings: InForce, before: Doubt | None) -> LearnerState:
    """Take away the costs of a learner that cannot be used, and say why."""
    if learner.capability is None:
        return learner
    needs_data = settings.total_samples is None and settings.mode is Mode.FEDERATED and learner.own is None
    doubt = None
    if learner.costs is None:
        doubt = Doubt(Why.NO_WORKLOAD)
    elif settings.cycle_time_s / learner.costs[0] > _MOST_STEPS:
        doubt = Doubt(Why.REFUSED, f"{learner.costs[0]:g} s per sample is too fast")
    elif needs_data and learner.capability.max_samples is None:
        doubt = Doubt(Why.PROBLEM, learner.problem) if learner.problem else Doubt(Why.NO_TOTAL)
        if before is not None and before.why in (Why.UNANSWERED, Why.SILENT):
            doubt = before  # it could not say how many it holds
    return learner if doubt is None else replace(learner, costs=None, doubt=doubt)


def solve(share: Share, settings: InForce, record: CycleRecord) -> Solution | None:
    """Solve, or do what the policy says when there is no solution; None: nobody works in this cycle.

    Parameters
    ----------
    share : Share
        Problem and solver.
    settings : InForce
        The policy.
    record : CycleRecord
        Told what had to be given up.
    """
    return solve_privately(
        share.problem, share.who, record, lambda problem: _solved(problem, share.solver, settings, record)
    )


def _solved(
    problem: AllocationProblem, solver: Solver, settings: InForce, record: CycleRecord
) -> Solution | None:
    try:
        return allocate(problem, solver)
    except Infeasible as infeasible:
        policy, fits = settings.on_infeasible, infeasible.diagnosis.carried
        if policy is OnInfeasible.ERROR:
            raise
        if policy is OnInfeasible.RELAX and fits:
            text = f"{problem.total_samples:,} samples do not fit, {fits:,} do: {infeasible.diagnosis}"
            record.notes.append(text)
            return allocate(problem.replace(total_samples=fits), solver)
        record.notes.append(f"nobody works in this cycle: {infeasible}")
        return None


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
    order = shuffled(settings, cycle)
    if order is None:
        return None
    ends = np.cumsum(samples)
    return [order[end - n : end] for end, n in zip(ends, samples, strict=True)]


def shuffled(settings: Settings, cycle: int) -> IntArray | None:
    """Return the rows of the dataset in a cycle's order; None in federated mode.

    Parameters
    ----------
    settings : Settings
        Dataset and seed.
    cycle : int
        From 1.
    """
    if settings.mode is Mode.FEDERATED or settings.dataset is None:
        return None
    return np.random.default_rng([settings.seed, cycle]).permutation(len(settings.dataset[0]))


def draw_seed(seed: int, cycle: int, learner: str) -> int:
    """Return the seed of one learner's work in one cycle: it follows the learner, whoever else is there.

    Parameters
    ----------
    seed, cycle : int
        The run's seed, and the cycle from 1.
    learner : str
        The learner's name.
    """
    digest = hashlib.blake2b(f"{seed}/{cycle}/{learner}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # 63 bits: the wire carries signed integers
