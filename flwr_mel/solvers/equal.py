"""The heterogeneity-unaware schemes: equal batches for all learners (HU-Sync, HU-Asyn)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import Phrase
from flwr_mel.allocation.allocate import Proposal
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import smallest
from flwr_mel.allocation.solution import Diagnosis, Infeasible, Reason, Status


@dataclass(frozen=True, slots=True)
class EqualBatches:
    """Give every learner d/K samples and the epochs that staleness then allows.

    tau_k = min(own maximum, least own maximum + c). The d mod K samples that do not divide go one each
    to the first learners. A learner that cannot do one epoch on its batch has tau_k = 0, which counts
    as the least, and does not take part: its samples stay unused and the status is PARTIAL. With c = 0
    one such learner stops all, and the problem is infeasible for this scheme.
    """

    def solve(self, problem: AllocationProblem) -> Proposal:
        """Propose equal batches, or raise `Infeasible`."""
        batch = equal_batches(problem)
        if batch[-1] < problem.min_samples:
            least = f"{problem.min_samples:,}"
            detail = Phrase(f"an equal batch of {batch[-1]:,} samples is below {{}} = {least}", "min_samples")
            raise Infeasible(Diagnosis(problem.total_samples, 0, None, detail))
        own = _own_most(problem, batch)
        epochs = np.minimum(own, int(own.min()) + problem.staleness)
        if not epochs.any():
            raise Infeasible(diagnose_equal(problem))
        samples = np.where(epochs > 0, batch, 0)
        left_out = {int(k): Reason.BATCH for k in np.flatnonzero(epochs == 0)}
        status = Status.PARTIAL if left_out else Status.OPTIMAL
        # Given the batches nothing better exists: the bound is the objective.
        return Proposal(epochs, samples, int(epochs.sum()), status, left_out)


def equal_batches(problem: AllocationProblem) -> npt.NDArray[np.int64]:
    """Return d/K per learner, in integers that sum to d."""
    share, rest = divmod(problem.total_samples, len(problem))
    return share + (np.arange(len(problem)) < rest).astype(np.int64)


def _own_most(
    problem: AllocationProblem, batch: npt.NDArray[np.int64], cycle_time_s: float | None = None
) -> npt.NDArray[np.int64]:
    """Return the most epochs each learner can do on its batch, whatever the others do."""
    return Capacities.of(problem, cycle_time_s).epochs(batch)


def diagnose_equal(problem: AllocationProblem) -> Diagnosis:
    """Say which learners cannot carry an equal batch, and which cycle time would be enough."""
    batch = equal_batches(problem)
    own = _own_most(problem, batch)
    stuck = np.flatnonzero(own == 0)
    detail = Phrase(
        f"{len(stuck)} of {len(problem)} learners cannot do one epoch on an equal batch of "
        f"{int(batch[-1]):,} samples (the first: {{}})",
        f"learner {int(stuck[0])}",
    )
    # With staleness the others may go on without the slowest.
    enough = np.any if problem.staleness else np.all
    time_s = smallest(problem.cycle_time_s, lambda t: bool(enough(_own_most(problem, batch, t))))
    return Diagnosis(problem.total_samples, 0, time_s, detail)
