"""Plans for people: tables with bars, readable from 80 columns on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flwr_mel.allocation import AllocationProblem, Solution
from flwr_mel.allocation.limiting import Limit
from flwr_mel.allocation.objectives import Goal, Objective, in_words
from flwr_mel.cli.drawing import bar, some
from flwr_mel.cli.plan.content import Flooring, Row, Stragglers
from flwr_mel.report.numerals import short

#: Fleets above this size are shown by their first and last rows.
LONG_FLEET, ENDS = 60, 10
_COLOURS = {Limit.TIME: "cyan", Limit.ENERGY: "yellow", Limit.DATA: "magenta"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A scheme's allocation, and its value by the objective that schemes are compared by."""

    label: str
    solution: Solution
    value: float


@dataclass(frozen=True, slots=True)
class Layout:
    """How much room there is."""

    bar: int
    name: int
    ascii_only: bool
    value: bool = True
    percent: bool = False

    @classmethod
    def of(cls, out: Console) -> Layout:
        """Look at the console."""
        plain = out.options.ascii_only
        if out.width >= 110:
            return cls(16, 30, plain, percent=True)
        if out.width >= 96:
            return cls(10, 26, plain)
        return cls(6, 18, plain) if out.width >= 76 else cls(4, 18, plain, value=False, percent=True)


def learner_table(out: Console, rows: Sequence[Row], cycle_time_s: float, *, everything: bool) -> None:
    """Print who gets what, and what it takes of the limits.

    Parameters
    ----------
    out : Console
        Where.
    rows : sequence of Row
        The learners.
    cycle_time_s : float
        T.
    everything : bool
        Show all rows however many.
    """
    room = Layout.of(out)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    # The only column that may shrink: names end in an ellipsis, numbers stay whole.
    table.add_column("learner", min_width=8, max_width=room.name)
    table.add_column("epochs", justify="right", no_wrap=True)
    table.add_column("samples", justify="right", no_wrap=True)
    table.add_column(f"time, {cycle_time_s:.4g} s", no_wrap=True)
    table.add_column("energy of limit, J" if room.value else "energy", no_wrap=True)
    table.add_column("limit", no_wrap=True)
    hidden = 0 if everything or len(rows) <= LONG_FLEET else len(rows) - 2 * ENDS
    for row in rows[:ENDS] if hidden else rows:
        table.add_row(*_cells(row, cycle_time_s, room))
    if hidden:
        table.add_row(Text(f"{hidden:,} more", style="dim"), "", "", Text("--all shows them", style="dim"))
        for row in rows[-ENDS:]:
            table.add_row(*_cells(row, cycle_time_s, room))
    out.print(table)
    out.print()


def _cells(row: Row, cycle_time_s: float, room: Layout) -> list[Text]:
    if not row.epochs:
        cells = (row.name, "-", "-", "left out", "", "")
        return [Text(cell, style="dim", no_wrap=True, overflow="ellipsis") for cell in cells]
    return [
        Text(row.name, no_wrap=True, overflow="ellipsis"),
        Text(f"{row.epochs:,}", style="bold"),
        Text(f"{row.samples:,}"),
        _used(row.time_s, cycle_time_s, "s", room, row.limit is Limit.TIME),
        _used(row.energy_j, row.energy_limit_j, "J", room, row.limit is Limit.ENERGY),
        Text(row.limit or "", style=_COLOURS.get(row.limit or Limit.NONE, "")),
    ]


def _used(value: float, limit: float | None, unit: str, room: Layout, binds: bool) -> Text:
    if limit is None:
        return Text(" " * room.bar + (f" {_short(value)}, no limit" if room.value else " -"))
    share = value / limit
    text = Text(
        bar(share, room.bar, ascii_only=room.ascii_only),
        style=_COLOURS[Limit.TIME if unit == "s" else Limit.ENERGY],
    )
    number = f" {_short(value)}" + (f"/{_short(limit)}" if unit == "J" else "") if room.value else ""
    # Round down, so that 100% is said only of a limit that is used up.
    number += f" {int(share * 100)}%" if room.percent else ""
    return text.append(number, style="bold" if binds else "not bold default")


def _short(x: float) -> str:
    """Write a number in five characters or so."""
    return f"{x:.2f}" if x < 100 else f"{x:.1f}" if x < 1000 else f"{x:.0f}" if x < 1e5 else f"{x:.2g}"


def left_out(out: Console, rows: Sequence[Row]) -> None:
    """Print who does not take part, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.left_out:
            reasons.setdefault(row.left_out, []).append(row.name)
    for reason, names in reasons.items():
        out.print(Text.assemble((f"Left out, {len(names):,}: ", "bold red"), f"{some(names)}: {reason}."))
    if reasons:
        out.print()


def solution_facts(
    solution: Solution, problem: AllocationProblem, rounded: Flooring | None
) -> list[tuple[str, str]]:
    """Return the footer of a plan."""
    total = int(solution.epochs.sum())
    gap = f"gap {solution.gap:.2%}" if solution.gap else "no gap"
    mean = ("mean epochs", f"{solution.mean_epochs:.4g} (sum {total:,} over {len(problem):,} learners)")
    made_for = mean
    if solution.objective is not Objective.EPOCHS:
        made_for = (in_words(solution.objective), f"{short(solution.value)}, what this plan is made for")
    return [
        made_for,
        ("bound", f"{short(solution.bound)}, {gap}. {solution.status.explanation}"),
        *([] if made_for is mean else [mean]),
        ("epochs", spread(solution)),
        ("samples", f"{int(solution.samples.sum()):,} of {problem.total_samples:,}"),
        ("last report", f"{float(solution.time_s.max()):.4g} of {problem.cycle_time_s:.4g} s"),
        ("energy", f"{float(solution.energy_j.sum()):.4g} J in sum"),
        ("bias", f"{solution.bias:.3g}: chi^2 between shares of samples and what a plain average weighs"),
        *flooring_facts(rounded),
        ("solved in", f"{1000 * float(solution.stats['seconds']):.1f} ms"),
    ]


def flooring_facts(rounded: Flooring | None) -> list[tuple[str, str]]:
    """Return the line about tau*, if there is one."""
    if rounded is None:
        return []
    text = f"{rounded.tau:.4g} / {rounded.floor} = {rounded.ratio:.2f}: what whole epochs cost HA-Sync"
    return [("tau*/floor", text)]


def spread(answer: Solution) -> str:
    """Say how many learners do how many epochs."""
    groups = sorted(Counter(int(tau) for tau in answer.epochs if tau).items())
    if len(groups) > 6:
        return f"from {groups[0][0]:,} to {groups[-1][0]:,}"
    return ", ".join(f"{n:,} {'learner does' if n == 1 else 'learners do'} {tau:,}" for tau, n in groups)


def hint(out: Console, found: Stragglers, learners: int) -> None:
    """Point stragglers out."""
    text = (
        f"Without {some(found.names)} the others could do {found.gain:,} more epochs: "
        f"{found.sum_epochs:,} in sum, mean {found.sum_epochs / learners:.4g}. "
        "Add --exclude optimal to plan so."
    )
    out.print()
    out.print(Text.assemble(("Stragglers: ", "bold yellow"), text))


def scheme_table(out: Console, schemes: Sequence[Measured], goal: Goal, bound: float | None) -> None:
    """Print schemes side by side, all measured by the same objective.

    Parameters
    ----------
    out : Console
        Where.
    schemes : sequence of Measured
        The schemes.
    goal : Goal
        What they are measured by.
    bound : float or None
        On that objective, for any allocation of all samples; None if there is none.
    """
    room = Layout.of(out)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("scheme", no_wrap=True)
    table.add_column(in_words(goal), no_wrap=True)
    for name in ("epochs", "active", "samples", "joules", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    width = room.bar if out.width >= 96 else 6
    top = max([bound or 0.0, *(m.value for m in schemes)]) or 1.0
    for m in schemes:
        s = m.solution
        if not s.status.ok:
            table.add_row(m.label, "-", "-", "-", "-", "-", "-", Text("infeasible", style="red"))
            continue
        drawn = Text(bar(m.value / top, width, ascii_only=room.ascii_only), style="green")
        tau = s.epochs[s.epochs > 0]
        table.add_row(
            m.label,
            drawn.append(f" {short(m.value)}", style="bold default"),
            f"{tau.min()}" if s.staleness == 0 else f"{tau.min()}-{tau.max()}",
            f"{len(tau):,}/{len(s.epochs):,}",
            f"{int(s.samples.sum()):,}",
            f"{float(s.energy_j.sum()):.4g}",
            f"{float(s.time_s.max()):.4g}",
            str(s.status),
        )
    if bound is not None:
        limit = Text(bar(bound / top, width, ascii_only=room.ascii_only), style="dim")
        table.add_row(Text("bound", style="dim"), limit.append(f" {short(bound)}"))
    out.print(table)
    out.print()
