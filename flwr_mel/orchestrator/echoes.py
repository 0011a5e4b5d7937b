"""Updates that count in several cycles: which of them stand, and for how long.

Where data count as they are held (`average="nova-held"`), an update that took m cycles counts in each of m
cycles from its arrival on, for n_k / sqrt(m), each time moved onto the model that is present then. So what
slow learners know is in every cycle's average, and not in one of m, in which it would swing the model. A
learner's next update does not end the last one's: by then that has counted as often as it should, or nearly.
Nor does it matter whether its learner is still there.

Alone an echo does not count: it balances what the others change. In a cycle without any new update the model
stays as it is, and the cycle is one of the m. Else old changes would be made again and again at full size.

For an update that takes at most 2 max_span + 1 cycles, as tasks are given up after that, at most as many
stand as came within so many cycles.
"""

from __future__ import annotations

from dataclasses import replace

from flwr_mel._slots import changed
from flwr_mel.orchestrator.averaging import Average
from flwr_mel.orchestrator.returned import Returned
from flwr_mel.orchestrator.settings import Settings, Stragglers
from flwr_mel.orchestrator.state import State
from flwr_mel.records import CycleRecord, Echo, Outcome


def lasting(settings: Settings) -> bool:
    """Whether updates that took several cycles count in as many."""
    return settings.stragglers is Stragglers.SPAN and settings.average is Average.NOVA_HELD


def given_up(state: State, settings: Settings) -> State:
    """Return a restored state without what other settings than before do not go on with.

    Parameters
    ----------
    state : State
        From a checkpoint.
    settings : Settings
        Of the process that goes on.
    """
    notes = list(state.notes)
    if settings.stragglers is not Stragglers.SPAN and state.flights:
        notes.append(
            f"{len(state.flights)} tasks in progress are given up: stragglers is not 'span' any more"
        )
        state = replace(state, flights={})
    if not lasting(settings) and state.echoes:
        notes.append(
            f"{len(state.echoes)} updates of slow learners do not count again: average is not 'nova-held' or "
            "stragglers not 'span' any more"
        )
        state = replace(state, echoes=())
    return replace(state, notes=notes)


def count_again(state: State, settings: Settings, record: CycleRecord, back: Returned) -> CycleRecord:
    """Put on record which updates count again in this cycle; the state is changed.

    Parameters
    ----------
    state : State
        A copy, with those that stand. Afterwards it has those of the next cycle.
    settings : Settings
        The rule.
    record : CycleRecord
        With what came back.
    back : Returned
        What came back, and which that stand cannot be used any more.
    """
    for x in state.echoes:
        if x.name in back.dropped:
            text = f"{x.learner}: its update of cycle {x.cycle} does not count again: {back.dropped[x.name]}"
            state.notes.append(text)
    counted = [changed(x, left=x.left - 1) for x in state.echoes if x.name not in back.dropped]
    came = [
        Echo(row.learner, row.moved_from, m, m - 1, row.moved_epochs, row.moved_weight, row.held)
        for row in record.learners
        if row.moved_weight and (m := record.cycle - row.moved_from + 1) > 1
    ]
    stand = [x for x in counted if x.left] + (came if lasting(settings) else [])
    # By name within a cycle, so that sums have the same bits in every run.
    state.echoes = tuple(sorted(stand, key=lambda x: (x.cycle, x.learner)))
    new = any(row.outcome is Outcome.USED or row.moved_weight for row in record.learners)
    return replace(record, echoes=counted if new else [])
