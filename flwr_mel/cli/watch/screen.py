"""The live view of a run: the last cycle, as much of it as fits the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flwr_mel._text import printable
from flwr_mel.allocation.objectives import in_words
from flwr_mel.cli.drawing import bar
from flwr_mel.cli.watch.lines import (
    ORDER,
    amount,
    clock,
    cycle_of,
    digits,
    figure,
    last_report,
    real_time,
    remarks,
    standing_of,
    used,
)
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome, Standing
from flwr_mel.records.follow import Entry, History
from flwr_mel.report.numerals import JOULES, SECONDS, finite, plural

_STEPS, _ASCII_STEPS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_STYLES = dict(zip(ORDER, ("red", "red", "yellow", "dim", "dim", ""), strict=True))
#: Remarks of a cycle that are shown.
_REMARKS = 4


def main_metric(history: History, asked: str = "") -> str:
    """Choose the metric to draw: the one asked for, else the accuracy, the loss or the first there is.

    Parameters
    ----------
    history : History
        The run so far.
    asked : str
        The user's choice.
    """
    if asked:
        return asked
    keys = list(dict.fromkeys(key for metrics in history.metrics.values() for key in metrics))
    for want in ("accuracy", "acc", "loss"):
        found = sorted((key for key in keys if want in key.lower()), key=len)
        if found:
            return found[0]
    return keys[0] if keys else ""


def sparkline(values: Sequence[float], *, ascii_only: bool = False) -> str:
    """Draw values between their least and their largest; unknown ones are gaps.

    Parameters
    ----------
    values : sequence of float
        NaN where not known.
    ascii_only : bool
        For terminals without block characters.
    """
    steps = _ASCII_STEPS if ascii_only else _STEPS
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return ""
    low, high = min(known), max(known)
    # Halves first: the difference of two huge numbers is not finite.
    scale = (high / 2 - low / 2) or 1.0
    places = ((v / 2 - low / 2) / scale * (len(steps) - 1) if math.isfinite(v) else None for v in values)
    return "".join(" " if p is None else steps[round(p)] for p in places)


def view(
    out: Console, history: History, title: str, state: str, *, cycles: int | None = None, metric: str = ""
) -> RenderableType:
    """Draw the last cycle so that it fits the terminal.

    Parameters
    ----------
    out : Console
        Whose size counts.
    history : History
        The run so far.
    title, state : str
        Which run, and how it is doing.
    cycles : int or None
        How many are planned.
    metric : str
        The one to draw; empty: the accuracy or what there is.
    """
    record, plain = history.last, out.options.ascii_only
    # A path is known by its end, and must leave room for what happens.
    name, room = printable(title), out.width // 2
    name = name if len(name) <= room else f"...{name[3 - room :]}"
    head = [Text.assemble((name, "bold"), "  ", (printable(state), "dim"))]
    if record is None:
        return _lines(head, plain)
    head += _facts(out, record, history, cycles, main_metric(history, metric))
    # Beside head and foot: two empty lines, the table's two, and the cursor's.
    room = out.height - len(head) - 5
    foot = [
        Text(text, style="yellow")
        for text in _first(remarks(record), min(_REMARKS, room // (4 if record.real else 2)))
    ]
    room = max(room - len(foot), 1)
    rows = [*record.learners, *_gone(record)]
    if len(rows) > room:
        rows = sorted(rows, key=lambda row: _rank(row, record))
        others = Counter(_word(row) for row in rows[room - 1 :])
        rows = rows[: room - 1]
        text = ", ".join(f"{n:,} {outcome}" for outcome, n in others.items())
        foot.insert(0, Text(f"and {plural(others.total(), 'more learner')}: {text}", style="dim"))
    return Group(_lines(head, plain), Text(), _table(out, rows, record), Text(), _lines(foot, plain))


def _first(texts: list[str], most: int) -> list[str]:
    if most < 1 or len(texts) <= most:
        return texts[: max(most, 0)]
    return [*texts[: most - 1], f"and {plural(len(texts) - most + 1, 'more remark')}"]


def _gone(record: CycleRecord) -> list[LearnerRecord]:
    """Return rows of learners that are not connected any more."""
    here = {row.learner for row in record.learners}
    rows = [(name, since) for name, since in record.gone.items() if name not in here]
    return [LearnerRecord(name, "", standing=Standing.GONE, since=since) for name, since in rows]


def _word(row: LearnerRecord) -> str:
    return str(row.standing if row.standing is Standing.GONE else row.outcome)


def _rank(row: LearnerRecord, record: CycleRecord) -> tuple[float, float]:
    """Order by what needs attention, and among equal ones by how much longer than planned they took."""
    longer = -finite(row.took_s) / (finite(row.time_s) or math.nan)
    longer = 0.0 if math.isnan(longer) else longer
    if row.standing is Standing.GONE:
        return -1.0, -finite(row.since)
    if row.outcome is Outcome.USED and (row.problem or _over(row, record)):
        return ORDER.index(Outcome.LATE) + (0.25 if row.problem else 0.5), longer
    return ORDER.index(row.outcome), longer


def _over(row: LearnerRecord, record: CycleRecord) -> bool:
    """Whether a learner took longer than it may, by the server's clock or else by its own word."""
    took = row.reported_time_s if row.took_s is None else row.took_s
    return finite(took) > finite(record.cycle_time_s) * row.span


def _lines(lines: Sequence[Text], plain: bool) -> RenderableType:
    for line in lines:
        line.no_wrap, line.overflow = True, "crop" if plain else "ellipsis"
    return Group(*lines)


def _facts(
    out: Console, record: CycleRecord, history: History, cycles: int | None, metric: str
) -> list[Text]:
    plain = out.options.ascii_only
    done = Text.assemble((cycle_of(record, cycles), "bold"), f"  {used(record)}  ")
    done.append(f"{in_words(record.objective)} {digits(record.value)}, bound {digits(record.bound)}")
    planned = "planned " if record.real else ""
    spent = Text(
        f"{planned}clock {amount(record.clock_s, SECONDS)}  {planned}energy "
        f"{amount(record.total_energy_j, JOULES)}, this cycle {amount(record.energy_j, JOULES)}"
    )
    came = record.makespan_s if record.waited_s is None else record.waited_s
    share = finite(came) / (finite(record.cycle_time_s) or math.nan)
    drawn = "" if math.isnan(share) else bar(min(max(share, 0.0), 1.0), 16, ascii_only=plain)
    last = Text.assemble(f"last report {last_report(record)} ", (drawn, "red" if share > 1 else "cyan"))
    lines = [done, spent, last]
    if record.real:
        lines = [done, Text.assemble(*_tally(record)), Text("  ".join(real_time(record))), last]
        # Where no energy is known the clock of the plan says little beside the real one.
        lines += [spent] if finite(record.total_energy_j) > 0 else []
    values = [metrics.get(metric, math.nan) for metrics in history.metrics.values()]
    if metric:
        text = Text(f"{printable(metric)} {figure(metric, values[-1])}  ", style="bold")
        room = max(out.width - len(text) - 1, 8)
        lines.append(text.append(sparkline(values[-room:], ascii_only=plain), style="not bold green"))
    others = [f"{printable(k)} {figure(k, v)}" for k, v in record.metrics.items() if k != metric]
    if others:
        lines.append(Text("  ".join(others)))
    return lines


def _tally(record: CycleRecord) -> list[str | tuple[str, str]]:
    """Count the learners by what became of them, those that need attention first."""
    gone = _gone(record)
    counts = Counter(_word(row) for row in [*gone, *record.learners])
    words = [str(Standing.GONE), *map(str, ORDER)]
    styles = {str(Standing.GONE): "red", **{str(x): style for x, style in _STYLES.items()}}
    known = [(f"{counts[word]:,} {word}", styles[word]) for word in words if counts[word]]
    parts: list[str | tuple[str, str]] = [f"{plural(len(record.learners) + len(gone), 'learner')}: "]
    for k, part in enumerate(known):
        parts += [", ", part] if k else [part]
    return parts


def _table(out: Console, rows: Sequence[LearnerRecord], record: CycleRecord) -> Table:
    # What the server's clock says of a real learner's task stands in the place of its own word.
    real = record.real
    names = ["learner", "epochs", "samples", *(("planned", "took") if real else ("predicted", "reported"))]
    # In a narrow terminal what became of a real learner needs the room.
    limits = out.width >= 100 or not real
    names += [*(["limited by" if out.width >= 100 else "limit"] if limits else []), "outcome"]
    cells = [
        [*_task(row, real=real), *([str(row.limited_by)] if limits else []), _outcome(row)] for row in rows
    ]
    # Numbers stay whole; names may take a quarter of the room, and the outcome what is left.
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    widths[0] = max(min(widths[0], out.width // 4), len(names[0]))
    widths[-1] = max(min(widths[-1], out.width - sum(widths[:-1]) - 2 * len(names)), len(names[-1]))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    overflow: OverflowMethod = "crop" if out.options.ascii_only else "ellipsis"
    for k, (name, width) in enumerate(zip(names, widths, strict=True)):
        table.add_column(
            name, justify="right" if 1 <= k <= 4 else "left", width=width, no_wrap=True, overflow=overflow
        )
    for row, texts in zip(rows, cells, strict=True):
        # As texts, because names may have brackets, which are markup in strings.
        line = [Text(text, no_wrap=True, overflow=overflow) for text in texts]
        if _over(row, record):
            line[4].stylize("red")
        table.add_row(*line, style="red" if row.standing is Standing.GONE else _STYLES[row.outcome])
    return table


def _task(row: LearnerRecord, *, real: bool) -> list[str]:
    task = [f"{row.epochs:,}", f"{row.samples:,}", f"{digits(row.time_s)} s"] if row.epochs else ["-"] * 3
    took = row.took_s if real else row.reported_time_s
    return [
        printable(row.learner),
        *task,
        "-" if took is None else f"{digits(took)} s",
    ]


def _outcome(row: LearnerRecord) -> str:
    text = f"{row.outcome}: {printable(row.reason)}" if row.reason else str(row.outcome)
    if row.standing is Standing.GONE:
        return standing_of(row) + (f"; {text}" if row.asked else "")
    if standing := standing_of(row):
        text = f"{text}, since {clock(row.since)}" if row.since is not None else f"{text}, {standing}"
    if row.problem and row.problem not in row.reason:
        text += f"; {printable(row.problem)}"
    text += f", task of {row.span} cycles" if row.span > 1 else ""
    slow = finite(row.slowdown) > 1
    return f"{text}, planned {digits(row.slowdown, 3)} times slower than it says" if slow else text


class Screen:
    """A view that is drawn anew, and once more for good when it is left.

    Parameters
    ----------
    out : Console
        The terminal.
    title : str
        Which run.
    metric : str
        The one to draw.
    live : bool
        Drawn again and again.
    leave : str
        What Ctrl-C does.
    """

    def __init__(
        self, out: Console, title: str, metric: str, *, live: bool, leave: str = "Ctrl-C leaves"
    ) -> None:
        self.out, self.title, self.metric, self.leave = out, title, metric, leave
        self._live = Live(console=out, screen=True, auto_refresh=False) if live else None
        self._text = ""
        self._last: tuple[History, int | None, str] | None = None

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()
        if self._last and self._last[0].last:
            history, cycles, state = self._last
            self.out.print(view(self.out, history, self.title, state, cycles=cycles, metric=self.metric))

    def say(self, text: str) -> None:
        """Tell about the file; the last word stays until the next cycle."""
        self._text = text

    def cycle(self, entry: Entry, cycles: int | None) -> None:  # noqa: ARG002
        """Take note that the run goes on; drawing waits for the end of the look."""
        self._text = self._text if entry.again else ""

    def look(self, history: History, cycles: int | None, ending: str, age_s: float) -> None:
        """Draw."""
        quiet = f"last cycle {amount(round(age_s), SECONDS)} ago" if history.last else ""
        state = ending or ", ".join(filter(None, [quiet, self._text]))
        self._last = (history, cycles, state if ending else self._text)
        if self._live:
            drawn = view(
                self.out, history, self.title, f"{state}, {self.leave}", cycles=cycles, metric=self.metric
            )
            self._live.update(drawn, refresh=True)
