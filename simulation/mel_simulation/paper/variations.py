"""What would have to be different for a statement of the paper: one thing at a time, on the cells concerned.

The paper leaves open what learners' SGD is and how its energy limits are meant. The sweep ``variations`` has
other learning rates, other batches, and no energy limits at all, which is more than any reading of E gives.
Placements are what seeds differ in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mel_simulation.paper.claims import Claim, Finding, Grid, Row, Verdict
from mel_simulation.paper.pages import markdown_table
from mel_simulation.paper.rows import USUAL

#: The paper's limits, for which cells without limits stand.
_LIMITS = (10.0, 20.0, 30.0)
_HEAD = "## What would have to be different\n"
_NOT_RUN = (
    "Where the paper's number is not reached: variations of what it leaves open were not run yet "
    "(`flwr-mel sweep variations`).\n"
)
_UNTOUCHED = "\nOf these no variation was run:\n"
_READING = """Statements that do not hold for every seed, with one thing changed at a time. *No energy limits*
is more than any reading of E gives: what it does not reach, no reading does. Placements of "ours" are the
seeds of the table above; variations have seed 0 alone, and where a statement is about several T, those that
are named. A dash: this was not varied there.
"""


def section(findings: Sequence[tuple[Claim, Finding]], rows: Iterable[Row]) -> str:
    """Return the section of the page.

    Parameters
    ----------
    findings : sequence of (Claim, Finding)
        Statements as they stand.
    rows : iterable of dict
        Cells of the sweep ``variations``.
    """
    grids = {name: Grid.of(_unvaried(group)) for name, group in _groups(rows).items()}
    if not grids:
        return f"{_HEAD}\n{_NOT_RUN}"
    lines, untouched = [], []
    for claim, finding in findings:
        if finding.verdict in (Verdict.HOLDS, Verdict.MISSING):
            continue
        found = {name: claim.check(grid) for name, grid in grids.items()}
        if all(each.verdict is Verdict.MISSING for each in found.values()):
            untouched.append(f"- {claim.says}")
            continue
        does = [name for name, each in found.items() if each.verdict is Verdict.HOLDS]
        shown = [each.ours or "-" for each in found.values()]
        lines.append([claim.says, finding.ours, *shown, f"**{' or '.join(does) or 'none of these'}**"])
    table = markdown_table(["the paper", "ours, by seed", *grids, "it takes"], lines)
    rest = [_UNTOUCHED, *untouched] if untouched else []
    return "\n".join([_HEAD, _READING, table, *rest, ""])


def variation(row: Row) -> str:
    """Say what differs from what we take for the paper's; empty: nothing.

    Parameters
    ----------
    row : dict
        A cell.
    """
    config = row["config"]
    words = [f"{k.replace('-', ' ')} {config[k]:g}" for k, usual in USUAL.items() if config[k] != usual]
    return ", ".join([*words, *([] if config["energy"] else ["no energy limits"])])


def _groups(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if name := variation(row):
            groups.setdefault(name, []).append(row)
    return groups


def _unvaried(rows: Sequence[Row]) -> list[Row]:
    """Return cells as if they were the paper's, those without limits once for each limit."""
    return [
        {**row, "config": {**row["config"], **USUAL, "energy": energy}}
        for row in rows
        for energy in ([row["config"]["energy"]] if row["config"]["energy"] else _LIMITS)
    ]
