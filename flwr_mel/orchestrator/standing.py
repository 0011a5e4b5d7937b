"""What the server's clock tells of real learners: what each is doing since when, and what Flower takes of T.

There is no clock here: adapters pass times in. Simulated learners have none, so that one seed gives one
record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from flwr_mel import wire
from flwr_mel.devices import Costs
from flwr_mel.learning import Learning
from flwr_mel.orchestrator.own_work import measurement
from flwr_mel.orchestrator.returned import Times
from flwr_mel.orchestrator.settings import InForce
from flwr_mel.orchestrator.state import LearnerState, State
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome, Standing

#: Less than this share of T is not worth a plan: replies teach it.
_LEAST_SHARE = 0.01


def missed(gone: LearnerState, now: float | None) -> LearnerState:
    """Return a learner that is not connected any more, and since when that is known.

    Parameters
    ----------
    gone : LearnerState
        As it was.
    now : float, optional
        The time, where a real clock runs.
    """
    if now is None or gone.simulated or _is(gone, Standing.GONE):
        return gone
    return replace(gone, standing=(Standing.GONE, now))


def flower_time(said: Mapping[str, object], took_s: float | None) -> float | None:
    """Return the seconds of a question's way that are not the learner's own code; None: not known.

    Parameters
    ----------
    said : mapping
        The answer. Its own seconds are the learner's word: more than the whole they cannot be.
    took_s : float, optional
        From the question to the answer, by the server's clock.
    """
    own_s = measurement(said.get(wire.ANSWER_SECONDS))
    if took_s is None or own_s is None or wire.SIMULATED in said:
        return None
    return max(took_s - own_s, 0.0)


def with_flower_time(x: LearnerState, costs: Costs, settings: InForce) -> Costs:
    """Return what a learner declares with what Flower takes besides, where plans follow what is measured.

    Parameters
    ----------
    x : LearnerState
        With the time of its first answer.
    costs : tuple of six floats
        c2, c1, c0, g2, g1, g0 by its own words.
    settings : InForce
        T, and whether to learn. Where T is not given, everybody's own round tells it all.
    """
    flower_s = x.flower_s or 0.0
    believed = settings.paced or not isinstance(settings.learning, Learning)
    if believed or flower_s < _LEAST_SHARE * settings.cycle_time_s:
        return costs
    c2, c1, c0, g2, g1, g0 = costs
    return c2, c1, c0 + flower_s, g2, g1, g0


def expected_flower_s(present: Sequence[LearnerState]) -> float | None:
    """Return what Flower takes of a cycle by the questions; None: not known."""
    known = [x.flower_s for x in present if x.flower_s is not None]
    return median(known) if known else None


def flower_words(record: CycleRecord) -> str:
    """Say how much of T is Flower's."""
    whole = f"of {record.cycle_time_s:.3g} s, " if record.cycle_time_s else ""
    return f"{whole}{record.flower_s or 0.0:.3g} s are Flower's"


def stand(state: State, record: CycleRecord, times: Times) -> tuple[State, CycleRecord]:
    """Put on record when tasks left and replies came, and what everybody is doing at the end of the cycle.

    Parameters
    ----------
    state : State
        After what came back was taken in.
    record : CycleRecord
        Likewise.
    times : Times
        By the server's clock.
    """
    if state.virtual:
        return state, record
    new, rows = state.copy(), []
    for planned in record.learners:
        x = new.learners.get(planned.node)
        if x is not None and x.simulated:
            rows.append(planned)
            continue
        sent_at, received_at = times.sent_at.get(planned.node), times.received_at.get(planned.node)
        row = replace(planned, sent_at=sent_at, received_at=received_at)
        word, since = _standing(row, record, times)
        if x is not None:
            row.problem = x.problem
            # Who reported in this cycle was at work since it was idle before.
            if x.standing is not None and _is(x, word) and received_at is None:
                since = x.standing[1]
            new.learners[row.node] = replace(x, standing=(word, since))
        row.standing, row.since = word, since
        rows.append(row)
    beside = [max(took - own, 0.0) for row in rows if (took := row.took_s) and (own := row.reported_time_s)]
    back = {x.name for x in new.learners.values()}  # and not heard yet
    gone: dict[str, float | None] = {
        x.name: x.standing[1]
        for x in new.absent.values()
        if x.standing and _is(x, Standing.GONE) and x.name not in back
    }
    return new, replace(
        record,
        learners=rows,
        waited_s=times.waited_s,
        flower_s=median(beside) if beside else record.flower_s,
        gone=gone,
    )


def _standing(row: LearnerRecord, record: CycleRecord, times: Times) -> tuple[Standing, float]:
    """Return what a learner is doing, and since when if it was not doing it before."""
    sent = row.sent_at or times.now
    if times.here is not None and row.node not in times.here:
        return Standing.GONE, times.now
    if row.outcome is Outcome.LATE:
        return Standing.LATE, min(sent + record.cycle_time_s * row.span, times.now)
    if row.outcome is Outcome.BUSY:
        return Standing.WORKING, sent
    return Standing.IDLE, row.received_at or times.now


def _is(x: LearnerState, word: Standing) -> bool:
    return x.standing is not None and x.standing[0] is word
