"""What the server's clock says of a run on real devices, beside the plan."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median

from flwr_mel.records import LearnerRecord, Standing
from flwr_mel.report.ledger import named
from flwr_mel.report.markup import Html, el
from flwr_mel.report.numerals import DASH, SECONDS, finite, measure, plural
from flwr_mel.report.run import Run
from flwr_mel.report.tables import table

_MOST_ROWS = 200


def by_the_clock(run: Run) -> list[Html]:
    """Say whether T was kept, cycle by cycle, and what every device did last.

    Parameters
    ----------
    run : Run
        With the server's clock on record.
    """
    kept = [r for r in run.records if finite(r.waited_s) <= finite(r.cycle_time_s)]
    text = f"The last report came within T in {len(kept):,} of {plural(len(run.records), 'cycle')}."
    shares = [r.flower_s for r in run.records if r.flower_s is not None]
    if shares:
        text += f" Of a cycle, {measure(median(shares), SECONDS, 3)} are Flower's (median)."
    heads = ("cycle", "began (UTC)", "T", "planned", "last report", "cycle in all", "Flower's", "gone")
    rows = [
        [
            f"{r.cycle:,}",
            moment(r.began_at),
            *(
                measure(x, SECONDS)
                for x in (r.cycle_time_s, r.makespan_s, r.waited_s, r.duration_s, r.flower_s)
            ),
            ", ".join(r.gone) or DASH,
        ]
        for r in run.records[-_MOST_ROWS:]
    ]
    heads_of_devices = ("device", "is", "since (UTC)", "planned", "took", "late", "says")
    devices = list(_devices(run))[:_MOST_ROWS]
    return [
        el("p", text, class_="lead"),
        table(heads, rows, words=(0, 1, 7)),
        table(heads_of_devices, devices, words=(0, 1, 2, 6)),
    ]


def _devices(run: Run) -> Iterator[list[object]]:
    """Yield what each device is doing, its median task by plan and clock, how often it was over T."""
    rows: dict[str, list[tuple[float, LearnerRecord]]] = {}
    for record in run.records:
        for name, row in named(record):
            rows.setdefault(name, []).append((finite(record.cycle_time_s), row))
    gone = run.records[-1].gone
    for name, some in rows.items():
        last = some[-1][1]
        timed = [(row.time_s, row.took_s) for _, row in some if row.took_s is not None and row.samples]
        over = sum(finite(row.took_s) > limit * row.span for limit, row in some)
        standing, since = (Standing.GONE, gone[name]) if name in gone else (last.standing, last.since)
        yield [
            name,
            standing or DASH,
            moment(since),
            measure(median(planned for planned, _ in timed), SECONDS) if timed else DASH,
            measure(median(took for _, took in timed), SECONDS) if timed else DASH,
            f"{over:,} of {len(timed):,}",
            last.problem or last.reason or DASH,
        ]


def moment(at: float | None) -> str:
    """Write a time of day in UTC, which is the same wherever the page is made."""
    try:
        return DASH if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):
        return DASH
