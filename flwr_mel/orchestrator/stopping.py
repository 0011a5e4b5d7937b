"""When enough is enough: the stopping criteria of Algorithm 1."""

from __future__ import annotations

import math

from flwr_mel.orchestrator.settings import Stopping
from flwr_mel.orchestrator.state import State
from flwr_mel.records import CycleRecord


def stop_reason(stop: Stopping, record: CycleRecord, state: State) -> str:
    """Say why training stops after this cycle; empty when it goes on.

    Parameters
    ----------
    stop : Stopping
        The criteria.
    record : CycleRecord
        The finished cycle.
    state : State
        Its best metric so far is brought up to date.
    """
    value = record.metrics.get(stop.metric)
    if value is not None:
        if math.isfinite(value) and stop.better(value, state.best):
            state.best, state.since_best = value, 0
        else:
            state.since_best += 1
        if stop.reached(value):
            return f"{stop.metric} reached {value:g} (target {stop.target:g})"
    if stop.cycles is not None and record.cycle >= stop.cycles:
        return f"{record.cycle} cycles done"
    if stop.virtual_time_s is not None and state.clock_s >= stop.virtual_time_s:
        return f"{state.clock_s:g} s of virtual time used (limit {stop.virtual_time_s:g})"
    if stop.energy_j is not None and state.energy_j >= stop.energy_j:
        return f"{state.energy_j:g} J used (limit {stop.energy_j:g})"
    if stop.patience is not None and state.since_best >= stop.patience:
        return f"no better {stop.metric} for {state.since_best} cycles"
    return _empty_battery(record, state) if stop.battery else ""


def _empty_battery(record: CycleRecord, state: State) -> str:
    for row in record.learners:
        learner = state.learners.get(row.node)
        capability = None if learner is None else learner.capability
        if capability is None or capability.battery_j is None or not row.samples:
            continue
        if capability.battery_j < row.energy_j:
            return (
                f"the battery of {row.learner} ({capability.battery_j:g} J) does not last for another "
                f"cycle of {row.energy_j:g} J"
            )
    return ""
