"""Cycles in words: one line per cycle, one per learner."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime

import typer

from flwr_mel._text import printable
from flwr_mel.cli.drawing import some
from flwr_mel.cli.shared import note
from flwr_mel.records import CycleRecord, Echo, LearnerRecord, Outcome, Standing
from flwr_mel.records.follow import Entry, History
from flwr_mel.report.numerals import DASH, JOULES, SECONDS, Units, measure, plural, short

#: From what needs attention to what does not.
ORDER = (
    Outcome.FAILED,
    Outcome.REFUSED,
    Outcome.LATE,
    Outcome.LEFT_OUT,
    Outcome.BUSY,
    Outcome.USED,
)


def amount(value: object, units: Units) -> str:
    """Write a number and the unit that fits it; a hyphen if it is not known."""
    return measure(value, units).replace(DASH, "-").replace("\u00a0", " ")


def digits(value: object, most: int = 4) -> str:
    """Write a number; a hyphen if it is not known."""
    return short(value, most).replace(DASH, "-")


def figure(key: str, value: float) -> str:
    """Write a metric; accuracies as percentages."""
    if "acc" in key.lower() and 0 <= value <= 1:
        return f"{100 * value:.2f} %"
    return digits(value)


def explain(row: LearnerRecord, echoes: Sequence[Echo] = ()) -> str:
    """Say what a learner was given, what keeps it from more and what became of it.

    Parameters
    ----------
    row : LearnerRecord
        One learner in one cycle.
    echoes : sequence of Echo
        Updates that count again in that cycle, of any learner.
    """
    text = row.task_words()
    if row.epochs and row.outcome is not Outcome.USED:
        text += f"; {row.outcome}" + (f": {printable(row.reason)}" if row.reason else "")
    if row.moved_weight:
        text += f"; its update of cycle {row.moved_from} is used"
    for x in echoes:
        text += f"; its update of cycle {x.cycle} counts again" if x.learner == row.learner else ""
    if row.took_s is not None:
        text += f"; took {amount(row.took_s, SECONDS)}, planned {amount(row.time_s, SECONDS)}"
    if standing := standing_of(row):
        text += f"; {standing}"
    if row.problem and row.problem not in row.reason:
        text += f"; it says: {printable(row.problem)}"
    return text


def clock(at: float) -> str:
    """Write a time of day, as this machine's clock shows it; with the date if it is another day's."""
    try:
        moment = datetime.fromtimestamp(at).astimezone()
    except (OverflowError, OSError, ValueError):
        return "-"
    return f"{moment:%H:%M:%S}" if moment.date() == datetime.now().date() else f"{moment:%Y-%m-%d %H:%M:%S}"


def standing_of(row: LearnerRecord) -> str:
    """Say what a real learner is doing and since when; empty where nobody knows, or where it is idle."""
    if row.standing in (None, Standing.IDLE):
        return ""
    return f"{row.standing}" + ("" if row.since is None else f" since {clock(row.since)}")


def cycle_line(record: CycleRecord, cycles: int | None, metric: str = "") -> str:
    """Write a cycle in one line.

    Parameters
    ----------
    record : CycleRecord
        The cycle.
    cycles : int or None
        How many are planned, if that is known.
    metric : str
        The only one to write; empty: all.
    """
    known = {k: v for k, v in record.metrics.items() if math.isfinite(v) and metric in ("", k)}
    return ", ".join(
        [
            f"{cycle_of(record, cycles)}: {used(record)}",
            *(f"{printable(key)} {figure(key, value)}" for key, value in known.items()),
            f"{digits(record.mean_epochs)} epochs in the mean",
            f"{record.total_samples:,} samples",
            f"last report {last_report(record)}",
            *real_time(record),
            f"{'planned ' if record.real else ''}clock {amount(record.clock_s, SECONDS)}",
            f"energy {amount(record.total_energy_j, JOULES)}",
        ]
    )


def cycle_of(record: CycleRecord, cycles: int | None) -> str:
    """Name the cycle."""
    return f"cycle {record.cycle:,}" + (f" of {cycles:,}" if cycles else "")


def remarks(record: CycleRecord) -> list[str]:
    """Return what people should know of a cycle: its notes, and who was not used by reason.

    Parameters
    ----------
    record : CycleRecord
        The cycle.
    """
    groups: dict[tuple[Outcome, str], list[str]] = {}
    for row in record.learners:
        if row.outcome not in (Outcome.USED, Outcome.BUSY):
            groups.setdefault((row.outcome, row.reason), []).append(printable(row.learner))
    ordered = sorted(groups.items(), key=lambda item: ORDER.index(item[0][0]))
    lost = [
        f"{outcome}, {len(names):,}: {some(names, 3)}" + (f": {printable(reason)}" if reason else "")
        for (outcome, reason), names in ordered
    ]
    gone = [f"{printable(name)} since {'-' if at is None else clock(at)}" for name, at in record.gone.items()]
    if gone:
        lost.insert(0, f"gone, {len(gone):,}: {some(gone, 3)}")
    ill: dict[str, list[str]] = {}
    for row in record.learners:
        if row.problem and row.problem not in row.reason:
            ill.setdefault(row.problem, []).append(printable(row.learner))
    said = [f"{some(names, 3)}: it says: {printable(problem)}" for problem, names in ill.items()]
    return [*map(printable, record.notes), *lost, *said]


def used(record: CycleRecord) -> str:
    """Say how many learners' work counts."""
    return f"{record.counted:,} of {plural(len(record.learners), 'learner')} used"


def last_report(record: CycleRecord) -> str:
    """Say when the last learner reported, by the server's clock where there is one, beside the plan and T."""
    planned = f"{digits(record.makespan_s)} of {digits(record.cycle_time_s)} s"
    return planned if record.waited_s is None else f"{amount(record.waited_s, SECONDS)}, planned {planned}"


def real_time(record: CycleRecord) -> list[str]:
    """Say when a real cycle ended, what it took and how much of that is Flower's."""
    said = []
    if record.ended_at is not None and record.duration_s is not None:
        said.append(f"ended {clock(record.ended_at)} after {amount(record.duration_s, SECONDS)}")
    if record.flower_s is not None:
        whole = f"of {digits(record.cycle_time_s)} s " if record.cycle_time_s else ""
        said.append(f"{whole}{amount(record.flower_s, SECONDS)} are Flower's")
    return said


class Lines:
    """Lines for logs and programs, each written once; remarks about the file go to stderr.

    Parameters
    ----------
    as_json : bool
        The records themselves.
    verbose : bool
        Every learner too.
    metric : str
        The only one to write; empty: all.
    """

    def __init__(self, *, as_json: bool, verbose: bool, metric: str = "") -> None:
        self.as_json, self.verbose, self.metric = as_json, verbose, metric

    def say(self, text: str) -> None:
        """Tell about the file."""
        note(text)

    def cycle(self, entry: Entry, cycles: int | None) -> None:
        """Write a cycle, unless it was written before."""
        record = entry.record
        if entry.again:
            return
        if self.as_json:
            typer.echo(json.dumps(record.as_dict(), allow_nan=False))
            return
        learners = [explain(row, record.echoes) for row in record.learners] if self.verbose else []
        said = [printable(text) for text in record.notes] + learners if self.verbose else remarks(record)
        typer.echo("\n  ".join([cycle_line(record, cycles, self.metric), *said]))

    def look(self, history: History, cycles: int | None, ending: str, age_s: float) -> None:  # noqa: ARG002
        """Say how the run ended."""
        if ending:
            (note if self.as_json else typer.echo)(ending)
