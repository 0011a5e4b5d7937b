"""The last gate: nothing leaves the library that breaks a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray

if TYPE_CHECKING:
    from flwr_mel.allocation.problem import AllocationProblem


class BrokenAllocation(AssertionError):
    """A solver returned an allocation that breaks a limit: a bug of the solver, not of the input."""


def violations(
    problem: AllocationProblem, epochs: IntArray, samples: IntArray, *, all_samples: bool = True
) -> list[str]:
    """List every broken constraint of an integer allocation, without any tolerance.

    Parameters
    ----------
    problem : AllocationProblem
        The limits.
    epochs, samples : int arrays
        tau_k and d_k.
    all_samples : bool
        Whether sum d_k = d is asked for; equal batches may leave samples unused.
    """
    for name, values in (("epochs", epochs), ("samples", samples)):
        if values.shape != (len(problem),) or values.dtype.kind != "i":
            return [f"{name} is not one integer per learner"]
    taking_part = (epochs > 0) | (samples > 0)
    if not taking_part.any():
        return ["nobody takes part"]
    time_s = problem.coefficients.time_s(epochs, samples)
    energy_j = problem.coefficients.energy_j(epochs, samples)
    tau, total = epochs[taking_part], int(samples.sum())
    broken = [
        _who("epochs and samples are positive together", (epochs > 0) & (samples > 0), taking_part),
        _who("d_k >= min_samples", samples >= problem.min_samples, taking_part),
        _who("d_k <= max_samples", samples <= problem.max_samples, taking_part),
        _who("tau_k <= max_epochs", epochs <= problem.max_epochs, taking_part),
        _who("t_k <= cycle_time_s", time_s <= problem.deadline_s, taking_part),
        _who("e_k <= energy_limit_j", energy_j <= problem.energy_limit_j, taking_part),
    ]
    if tau.max() - tau.min() > problem.staleness:
        broken.append(f"staleness is {tau.max() - tau.min()}, above {problem.staleness}")
    if all_samples and total != problem.total_samples:
        broken.append(f"sum d_k is {total}, not {problem.total_samples}")
    if total > problem.total_samples:
        broken.append(f"sum d_k is {total}, above {problem.total_samples}")
    return [text for text in broken if text]


def _who(rule: str, kept: npt.NDArray[np.bool_], taking_part: npt.NDArray[np.bool_]) -> str:
    if kept[taking_part].all():
        return ""
    return f"{rule} is broken by learners {np.flatnonzero(taking_part & ~kept)[:5].tolist()}"
