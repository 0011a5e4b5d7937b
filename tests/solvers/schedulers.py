"""Schedulers for fixed epochs by other authors: oracles of the inverse questions, written from their papers.

Tasks are samples, resources are learners; a learner's batch lies between the least batch and what its own
limits permit.

* OLAR: Pilla, "Optimal Task Assignment for Heterogeneous Federated Learning Devices", IPDPS 2021. Minimum
  makespan: each next sample goes where it would finish first.
* ECMTC: Nunes, Boeres, Drummond and Pilla, on time and energy-aware client selection and scheduling, 2024.
  Minimum energy within a deadline, then minimum makespan, by a dynamic programme over (learner, samples);
  clients may be left out.
"""

from heapq import heapify, heappop, heappush

import numpy as np


def tables(problem, epochs, k):
    """Seconds and joules of learner k for 0, 1, 2, ... samples, from the formula; 0 for none."""
    c, d = problem.coefficients, np.arange(problem.total_samples + 1)
    time_s = c.c2[k] * (epochs[k] * d) + c.c1[k] * d + c.c0[k]
    energy_j = c.g2[k] * (epochs[k] * d) + c.g1[k] * d + c.g0[k]
    time_s[0] = energy_j[0] = 0.0
    return time_s, energy_j


def limits(problem, epochs, *, timed):
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


def olar(problem, epochs):
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


def ecmtc(problem, epochs, *, leave_out=True):
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
