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
    out: dict[int, Event] = {}
    seen: set[int] = set()
    version, now = 0, 0.0
    #: Begin, end and joules of all jobs.
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
            if event.learner in (job.learner for job in out.values()):
                wrong.append(f"learner {event.learner} does two things at once at {event.at_s:g} s")
            if event.job in seen or event.version != version:
                wrong.append(f"job {event.job} was sent twice or with model {event.version} of {version}")
            seen.add(event.job)
            out[event.job] = event
        elif event.job not in out:
            wrong.append(f"job {event.job} comes back at {event.at_s:g} s and is not out")
        else:
            sent = out.pop(event.job)
            wrong += _returned(sent, event, *_costs(costs, sent, power_w, factor(sent.job)))
            spans.append((sent.at_s, event.at_s, event.energy_j))
    for job in out.values():
        takes, joules = _costs(costs, job, power_w, factor(job.job))
        spans.append((job.at_s, job.at_s + takes, joules))
    for look in looks:
        spent = sum(_spent(span, look.at_s) for span in spans)
        if abs(spent - look.energy_j) > _CLOSE * max(1.0, spent):
            wrong.append(f"at {look.at_s:g} s {spent:g} J were spent, not {look.energy_j:g}")
    return wrong


def _returned(sent: Event, event: Event, takes: float, joules: float) -> list[str]:
    """Return what is wrong with the end of a job."""
    lasted = event.at_s - sent.at_s
    stopped = event.what == "stop"
    close = _CLOSE * max(1.0, takes, event.at_s)
    if lasted > takes + close or (lasted < takes - close and not stopped):
        return [f"job {event.job} took {lasted:g} s instead of {takes:g}"]
    spent = joules * lasted / takes if stopped else joules
    if abs(event.energy_j - spent) > _CLOSE * max(1.0, joules):
        return [f"job {event.job} cost {event.energy_j:g} J instead of {spent:g}"]
    return []


def _costs(costs: Coefficients, job: Event, power_w: float, factor: float) -> tuple[float, float]:
    """Return the seconds and joules of a job."""
    k, work = job.learner, job.epochs * job.samples
    time_s = costs.c2[k] * work + costs.c1[k] * job.samples + costs.c0[k]
    energy_j = costs.g2[k] * work + costs.g1[k] * job.samples + costs.g0[k]
    if power_w:
        time_s = max(time_s, energy_j / power_w)
    return factor * float(time_s), factor * float(energy_j)


def _spent(span: tuple[float, float, float], at_s: float) -> float:
    """Return what a job has spent by a time, evenly over its own."""
    begin, end, energy_j = span
    if at_s <= begin:
        return 0.0
    return energy_j if at_s >= end else energy_j * (at_s - begin) / (end - begin)
