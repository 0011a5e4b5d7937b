"""Recompute a bout from its log alone: no learner does two things at once, no reply arrives early.

Written without a look at `World`'s bookkeeping: costs come from the paper's formulas, one learner at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from mel_simulation.arena.setting import Setting
from mel_simulation.arena.world import Event, Look

_CLOSE = 1e-9


def audit(setting: Setting, seed: int, log: Sequence[Event], looks: Sequence[Look]) -> list[str]:
    """Return what is wrong with a bout; empty: nothing.

    Parameters
    ----------
    setting, seed : Setting, int
        Of the bout.
    log : sequence of Event
        What happened, in order.
    looks : sequence of Look
        The curve.
    """
    costs = _costs(setting, seed)
    wrong: list[str] = []
    #: What each busy learner does; begin, end and joules of all jobs.
    out: dict[int, Event] = {}
    spans: list[tuple[float, float, float]] = []
    version, jobs, now = 0, 0, 0.0
    for event in log:
        if event.at_s < now:
            wrong.append(f"time runs backwards: {asdict(event)}")
        now = max(now, event.at_s)
        version += event.what == "model"
        if event.what in ("send", "model") and event.version != version:
            wrong.append(f"{event.what} with model {event.version} of {version} at {event.at_s:g} s")
        if event.what == "send":
            if event.learner in out or event.job != jobs:
                wrong.append(f"learner {event.learner} does two things at once at {event.at_s:g} s")
            jobs += 1
            out[event.learner] = event
        elif event.what != "model":
            job = out.pop(event.learner, None)
            if job is None or job.job != event.job:
                wrong.append(f"job {event.job} comes back at {event.at_s:g} s and is not out")
            else:
                wrong += _returned(job, event, *costs(job))
                spans.append((job.at_s, event.at_s, event.energy_j))
    for job in out.values():
        takes_s, energy_j = costs(job)
        spans.append((job.at_s, job.at_s + takes_s, energy_j))
    for look in looks:
        spent = sum(_spent(*span, look.at_s) for span in spans)
        if abs(spent - look.energy_j) > _CLOSE * max(1.0, spent):
            wrong.append(f"at {look.at_s:g} s {spent:g} J were spent, not {look.energy_j:g}")
    return wrong


def _costs(setting: Setting, seed: int) -> Callable[[Event], tuple[float, float]]:
    """Return what computes the seconds and joules of a job."""
    c = setting.coefficients(seed)

    def costs(job: Event) -> tuple[float, float]:
        k, d, work = job.learner, job.samples, job.epochs * job.samples
        time_s = c.c2[k] * work + c.c1[k] * d + c.c0[k]
        energy_j = c.g2[k] * work + c.g1[k] * d + c.g0[k]
        if setting.throttled:
            time_s = max(time_s, energy_j / setting.power_w)
        factor = setting.factor(seed, job.job)
        return factor * float(time_s), factor * float(energy_j)

    return costs


def _returned(job: Event, event: Event, takes_s: float, energy_j: float) -> list[str]:
    """Return what is wrong with the end of a job."""
    lasted = event.at_s - job.at_s
    stopped = event.what == "stop"
    close = _CLOSE * max(1.0, takes_s, event.at_s)
    if lasted > takes_s + close or (lasted < takes_s - close and not stopped):
        return [f"job {event.job} took {lasted:g} s instead of {takes_s:g}"]
    spent = energy_j * lasted / takes_s if stopped else energy_j
    if abs(event.energy_j - spent) > _CLOSE * max(1.0, energy_j):
        return [f"job {event.job} cost {event.energy_j:g} J instead of {spent:g}"]
    return []


def _spent(begin: float, end: float, energy_j: float, at_s: float) -> float:
    """Return what a job has spent by a time, evenly over its own."""
    if at_s <= begin:
        return 0.0
    return energy_j if at_s >= end else energy_j * (at_s - begin) / (end - begin)
