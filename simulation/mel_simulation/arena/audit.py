"""Recompute a bout from its log alone: no learner does two things at once, no reply arrives early.

Written without a look at `World`'s bookkeeping: costs come from the paper's formulas, one learner at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from flwr_mel.costs import Coefficients
from mel_simulation.arena.world import Event, Look

_CLOSE = 1e-9


def audit(
    costs: Coefficients,
    log: Sequence[Event],
    looks: Sequence[Look],
    power_w: float = 0.0,
    factor: Callable[[int], float] = lambda _: 1.0,
) -> list[str]:
    """Return what is wrong with a bout; empty: nothing.

    Parameters
    ----------
    costs : Coefficients
        Of the learners.
    log : sequence of Event
        What happened, in order.
    looks : sequence of Look
        The curve that is to be believed.
    power_w : float
        The power limit of a job; 0: none.
    factor : callable
        By how much a job differs from its costs.
    """
    wrong: list[str] = []
    open_jobs: dict[int, Event] = {}
    seen: set[int] = set()
    version, now = 0, 0.0
    spans: list[tuple[float, float, float]] = []
    for event in log:
        if event.at_s < now:
            wrong.append(f"time runs backwards: {asdict(event)}")
        now = max(now, event.at_s)
        if event.what == "model":
            version += 1
            if event.version != version:
                wrong.append(f"model {event.version} follows {version - 1}")
        elif event.what == "send":
            if event.learner in (job.learner for job in open_jobs.values()):
                wrong.append(f"learner {event.learner} does two things at once at {event.at_s:g} s")
            if event.job in seen or event.version != version:
                wrong.append(f"job {event.job} was sent twice or with model {event.version} of {version}")
            seen.add(event.job)
            open_jobs[event.job] = event
        elif event.job not in open_jobs:
            wrong.append(f"job {event.job} comes back at {event.at_s:g} s and is not out")
        else:
            sent = open_jobs.pop(event.job)
            wrong += _returned(
                factor(sent.job) * _time(costs, sent, power_w),
                factor(sent.job) * _energy(costs, sent),
                sent,
                event,
            )
            spans.append((sent.at_s, event.at_s, event.energy_j))
    for e in open_jobs.values():
        takes, spends = factor(e.job) * _time(costs, e, power_w), factor(e.job) * _energy(costs, e)
        spans.append((e.at_s, e.at_s + takes, spends))
    for look in looks:
        spent = sum(_spent(span, look.at_s) for span in spans)
        if abs(spent - look.energy_j) > _CLOSE * max(1.0, spent):
            wrong.append(f"at {look.at_s:g} s {spent:g} J were spent, not {look.energy_j:g}")
    return wrong


def _returned(takes: float, costs_j: float, sent: Event, event: Event) -> list[str]:
    lasted = event.at_s - sent.at_s
    if event.what == "arrive":
        if abs(lasted - takes) > _CLOSE * max(1.0, takes, event.at_s):
            return [f"job {event.job} took {lasted:g} s instead of {takes:g}"]
        share = 1.0
    else:
        if lasted > takes * (1 + _CLOSE):
            return [f"job {event.job} was stopped after its end"]
        share = lasted / takes
    if abs(event.energy_j - share * costs_j) > _CLOSE * max(1.0, costs_j):
        return [f"job {event.job} cost {event.energy_j:g} J instead of {share * costs_j:g}"]
    return []


def _time(costs: Coefficients, job: Event, power_w: float) -> float:
    k, work = job.learner, job.epochs * job.samples
    takes = float(costs.c2[k] * work + costs.c1[k] * job.samples + costs.c0[k])
    return max(takes, _energy(costs, job) / power_w) if power_w else takes


def _energy(costs: Coefficients, job: Event) -> float:
    k, work = job.learner, job.epochs * job.samples
    return float(costs.g2[k] * work + costs.g1[k] * job.samples + costs.g0[k])


def _spent(span: tuple[float, float, float], at_s: float) -> float:
    begin, end, energy_j = span
    if at_s <= begin:
        return 0.0
    return energy_j if at_s >= end else energy_j * (at_s - begin) / (end - begin)
