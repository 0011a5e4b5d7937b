"""Schedulers for fixed epochs by other authors, re-implemented: rivals of the inverse questions.

Tasks are samples, resources are learners; a learner's batch lies between the least batch and what its own
limits permit. All return optimal values of what they minimise.

* OLAR: Pilla, "Optimal Task Assignment for Heterogeneous Federated Learning Devices", IPDPS 2021. Minimum
  makespan: each next sample goes where it would finish first.
* MarIn, MarCo, (MC)^2MKP: Pilla, "Scheduling Algorithms for Federated Learning with Minimal Energy
  Consumption", 2022. Minimum energy: greedy for marginal costs that do not fall; filling by price where they
  are constant, as here; a dynamic programme over (learner, samples) for any costs.
* ECMTC: Nunes, Boeres, Drummond and Pilla, on time and energy-aware client selection and scheduling, 2024.
  Minimum energy within a deadline, then minimum makespan, by a dynamic programme over (learner, samples);
  clients may be left out. Written from the papers' descriptions, not from their code.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from flwr_mel import AllocationProblem

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def tables(problem: AllocationProblem, epochs: IntArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Seconds and joules of learner k for 0, 1, 2, ... samples, from the formula; 0 for none."""
    c, d = problem.coefficients, np.arange(problem.total_samples + 1)
    time_s = c.c2[k] * (epochs[k] * d) + c.c1[k] * d + c.c0[k]
    energy_j = c.g2[k] * (epochs[k] * d) + c.g1[k] * d + c.g0[k]
    time_s[0] = energy_j[0] = 0.0
    return time_s, energy_j


def limits(problem: AllocationProblem, epochs: IntArray, *, timed: bool) -> list[int]:
    """The most samples of every learner within its limits, with or without the deadline."""
    most = []
    for k in range(len(problem)):
        time_s, energy_j = tables(problem, epochs, k)
        good = energy_j <= problem.energy_limit_j[k]
        good &= np.arange(len(good)) <= problem.max_samples[k]
        if timed:
            good &= time_s <= problem.deadline_s[k]
        most.append(int(np.flatnonzero(good)[-1]))
    return most


def _quick_limits(problem: AllocationProblem, epochs: IntArray) -> list[int]:
    """The same within the deadline, without a table: costs are linear. Float64 may be off by one sample."""
    c, d = problem.coefficients, problem.total_samples
    with np.errstate(divide="ignore", invalid="ignore"):
        by_time = (problem.deadline_s - c.c0) / (c.c2 * epochs + c.c1)
        by_energy = (problem.energy_limit_j - c.g0) / (c.g2 * epochs + c.g1)
    most = np.minimum(np.minimum(by_time, np.nan_to_num(by_energy, nan=np.inf)), problem.max_samples)
    limits: list[int] = np.minimum(most + 1e-9, d).astype(int).tolist()
    return limits


def olar(problem: AllocationProblem, epochs: IntArray) -> float:
    """Minimum makespan: each next sample goes where it would finish first."""
    most, least = limits(problem, epochs, timed=problem.own_deadlines), problem.min_samples
    cost = [tables(problem, epochs, k)[0].tolist() for k in range(len(problem))]
    batch = [least] * len(problem)
    heap = [(cost[k][least + 1], k) for k in range(len(problem)) if least < most[k]]
    heapify(heap)
    for _ in range(problem.total_samples - least * len(problem)):
        _, k = heappop(heap)
        batch[k] += 1
        if batch[k] < most[k]:
            heappush(heap, (cost[k][batch[k] + 1], k))
    return float(max(cost[k][n] for k, n in enumerate(batch)))


def marin(problem: AllocationProblem, epochs: IntArray) -> float:
    """Minimum energy for marginal costs that do not fall: each next sample goes where it costs least."""
    most, least = limits(problem, epochs, timed=True), problem.min_samples
    price = problem.coefficients.g2 * epochs + problem.coefficients.g1
    batch = [least] * len(problem)
    heap = [(float(price[k]), k) for k in range(len(problem)) if least < most[k]]
    heapify(heap)
    for _ in range(problem.total_samples - least * len(problem)):
        step, k = heappop(heap)
        batch[k] += 1
        if batch[k] < most[k]:
            heappush(heap, (step, k))
    return float(problem.coefficients.energy_j(epochs, np.array(batch)).sum())


def marco(problem: AllocationProblem, epochs: IntArray) -> float:
    """Minimum energy for constant marginal costs: fill the learners in the order of their price."""
    most, least = _quick_limits(problem, epochs), problem.min_samples
    price = problem.coefficients.g2 * epochs + problem.coefficients.g1
    batch = np.full(len(problem), least)
    left = problem.total_samples - least * len(problem)
    for k in np.argsort(price, kind="stable").tolist():
        more = min(left, most[k] - least)
        batch[k] += more
        left -= more
        if not left:
            break
    return float(problem.coefficients.energy_j(epochs, batch).sum())


def mc2mkp(problem: AllocationProblem, epochs: IntArray) -> float:
    """Minimum energy for any costs: a dynamic programme over (learner, samples), everybody taking part."""
    most, d, least = limits(problem, epochs, timed=True), problem.total_samples, problem.min_samples
    best = np.full(d + 1, np.inf)
    best[0] = 0.0
    for k in range(len(problem)):
        energy_j = tables(problem, epochs, k)[1]
        after = np.full(d + 1, np.inf)
        for n in range(least, most[k] + 1):
            np.minimum(after[n:], best[: d + 1 - n] + energy_j[n], out=after[n:])
        best = after
    return float(best[d])


def ecmtc(problem: AllocationProblem, epochs: IntArray, *, leave_out: bool = True) -> tuple[float, float]:
    """Minimum energy within the deadline, then minimum makespan; learners may be left out."""
    most, d, least = limits(problem, epochs, timed=True), problem.total_samples, problem.min_samples
    energy, makespan = np.full(d + 1, np.inf), np.full(d + 1, np.inf)
    energy[0] = makespan[0] = 0.0
    for k in range(len(problem)):
        time_s, energy_j = tables(problem, epochs, k)
        sizes = [0] * leave_out + list(range(least, most[k] + 1))
        after, last = np.full(d + 1, np.inf), np.full(d + 1, np.inf)
        for n in sizes:
            joules = energy[: d + 1 - n] + energy_j[n]
            seconds = np.maximum(makespan[: d + 1 - n], time_s[n])
            equal = np.isclose(joules, after[n:], rtol=1e-13, atol=0)
            better = np.where(equal, seconds < last[n:], joules < after[n:])
            after[n:] = np.where(better, joules, after[n:])
            last[n:] = np.where(better, seconds, last[n:])
        energy, makespan = after, last
    return float(energy[d]), float(makespan[d])
