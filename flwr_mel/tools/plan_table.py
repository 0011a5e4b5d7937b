"""The table of a plan: what each learner gets, its share of the limits, and which learners are skipped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from flwr_mel._text import some
from flwr_mel.allocation import Solution
from flwr_mel.allocation.limiting import limiting
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.solvers.inverse import Plan
from flwr_mel.tools.shell import grid

#: Fleets above this size are shown by their first and last rows.
_LONG_FLEET, _ENDS = 60, 10


def rows_of(
    names: Sequence[str], problem: AllocationProblem, answer: Solution | Plan
) -> list[dict[str, Any]]:
    """Return one row per learner; `limit` is what keeps it from more, `skipped` why it has no part."""
    excluded = answer.excluded if isinstance(answer, Solution) else {}
    limits = limiting(problem, answer.epochs, answer.samples)
    columns = {
        "name": names,
        "epochs": answer.epochs.tolist(),
        "samples": answer.samples.tolist(),
        "time_s": answer.time_s.tolist(),
        "energy_j": answer.energy_j.tolist(),
        "energy_limit_j": [x if math.isfinite(x) else None for x in problem.energy_limit_j.tolist()],
        "limit": [str(name) or None for name in limits],
        "skipped": [excluded[k].explanation if k in excluded else None for k in range(len(names))],
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def print_table(out: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Print what each learner gets, what that takes, and which learners are skipped."""
    table = grid("learner<", "epochs", "samples", "time, s", "energy, J", "limit<")
    hidden = 0 if len(rows) <= _LONG_FLEET else len(rows) - 2 * _ENDS
    for row in rows[:_ENDS] if hidden else rows:
        table.add_row(*_cells(row, out.width))
    if hidden:
        table.add_row(Text(f"{hidden:,} more: --json has all", style="dim"))
        for row in rows[-_ENDS:]:
            table.add_row(*_cells(row, out.width))
    out.print(table)
    out.print()
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["skipped"]:
            reasons.setdefault(row["skipped"], []).append(row["name"])
    for reason, names in reasons.items():
        out.print(Text.assemble((f"Skipped, {len(names):,}: ", "bold red"), f"{some(names)}: {reason}."))


def _cells(row: dict[str, Any], room: int) -> list[Text | str]:
    name = Text(row["name"], style="" if row["epochs"] else "dim")
    name.truncate(max(room - 49, 8), overflow="ellipsis")
    if not row["epochs"]:
        return [name, "-", "-", Text("skipped", style="dim")]
    limit_j = "" if row["energy_limit_j"] is None else f" of {row['energy_limit_j']:.3g}"
    costs = f"{row['time_s']:.3g}", f"{row['energy_j']:.3g}{limit_j}"
    return [name, Text(f"{row['epochs']:,}", "bold"), f"{row['samples']:,}", *costs, row["limit"] or ""]
