"""Cycles in words: one line per cycle, one per learner."""

from __future__ import annotations

import json
import math

import typer

from flwr_mel._text import printable
from flwr_mel.cli.drawing import some
from flwr_mel.cli.shared import note
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
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


def explain(row: LearnerRecord) -> str:
    """Say what a learner was given, what keeps it from more and what became of it.

    Parameters
    ----------
    row : LearnerRecord
        One learner in one cycle.
    """
    text = row.task_words()
    if row.epochs and row.outcome is not Outcome.USED:
        text += f"; {row.outcome}" + (f": {printable(row.reason)}" if row.reason else "")
    if row.moved_weight:
        text += f"; its update of cycle {row.moved_from} is used"
    return text


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
            f"clock {amount(record.clock_s, SECONDS)}",
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
    return [*map(printable, record.notes), *lost]


def used(record: CycleRecord) -> str:
    """Say how many learners' work counts."""
    counted = sum(row.outcome is Outcome.USED or row.moved_weight > 0 for row in record.learners)
    return f"{counted:,} of {plural(len(record.learners), 'learner')} used"


def last_report(record: CycleRecord) -> str:
    """Say when the last learner reported, and T."""
    return f"{digits(record.makespan_s)} of {digits(record.cycle_time_s)} s"


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
        learners = [explain(row) for row in record.learners] if self.verbose else []
        said = [printable(text) for text in record.notes] + learners if self.verbose else remarks(record)
        typer.echo("\n  ".join([cycle_line(record, cycles, self.metric), *said]))

    def look(self, history: History, cycles: int | None, ending: str, age_s: float) -> None:  # noqa: ARG002
        """Say how the run ended."""
        if ending:
            (note if self.as_json else typer.echo)(ending)
