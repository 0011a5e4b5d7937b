"""The statements of the paper's results section, one by one."""

from __future__ import annotations

from mel_simulation.paper.claims import (
    Claim,
    Finding,
    Grid,
    ahead,
    as_few_updates,
    aware_beats_unaware,
    best_staleness,
    fewer_updates,
    reaches,
    updates_to,
)

_TIMES = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0)
_LONG = (25.0, 30.0, 35.0)
_GRID = [(t, e) for t in _TIMES for e in (10.0, 20.0, 30.0)]


def _same_as_synchronous(grid: Grid) -> Finding:
    """C = 0 of the asynchronous solver is the synchronous scheme; the grid keeps only one of the two."""
    truths = tuple(row["same_as_sync"] for row in grid.rows.values() if "same_as_sync" in row)
    return Finding(f"identical curves in {sum(truths)} of {len(truths)} cells" if truths else "", truths)


def _headline(grid: Grid) -> Finding:
    """The largest reduction in updates over all cells and the thresholds the paper names."""
    best, text, truths = 0.0, "", []
    for key in [k for k in grid.rows if k[0] == "ha" and k[1] > 0]:
        family, c, time_s, energy_j, seed = key
        if (family, 0, time_s, energy_j, seed) not in grid.rows:
            continue
        for percent in (94.0, 95.0, 95.5, 97.0, 97.3):
            sync = updates_to(grid.row("ha", 0, time_s, energy_j, seed), percent)
            ours = updates_to(grid.rows[key], percent)
            if sync and ours and 1 - ours / sync > best:
                best = 1 - ours / sync
                cell = f"{percent:g} % at T={time_s:g}, E={energy_j:g}, c={c}"
                text = f"up to {100 * best:.0f} % fewer updates ({cell})"
        truths = [best >= 0.25]
    return Finding(text, tuple(truths))


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "figure06label",
        "With c = 0 the asynchronous solution is the synchronous one",
        _same_as_synchronous,
    ),
    Claim(
        "figure06label",
        "For c = 0 HA is always better than HU, which fails to converge on several occasions",
        aware_beats_unaware(_GRID, 12),
    ),
    Claim(
        "figure07label",
        "T=10, E=10: 94 % in 5 updates with c=1 and c=2 against 7 (29 % fewer)",
        fewer_updates(10, 10, (1, 2), 94.0),
    ),
    Claim(
        "figure07label",
        "T=10, E=10: 95 % in 6 updates with c=1 against 8 (25 %)",
        fewer_updates(10, 10, (1,), 95.0),
    ),
    Claim(
        "figure15label", "T=10, E=10: 95 % in 7 updates against 9 (22 %)", fewer_updates(10, 10, (1, 2), 95.0)
    ),
    Claim(
        "figure14label",
        "E=10, T=15 after 6: 94.4 % with c=1, HA-Sync below 94 %",
        reaches(15, 10, (1,), 6, 94.4, sync_below=94.0),
    ),
    Claim(
        "figure14label",
        "E=10, T=20 after 6: 95.4 % with c=1, HA-Sync below 94 %",
        reaches(20, 10, (1,), 6, 95.4, sync_below=94.0),
    ),
    Claim("figure14label", "E=10, T=20 after 6: c=2 crosses 94.5 %", reaches(20, 10, (2,), 6, 94.5)),
    Claim("figure14label", "E=20, T=20 after 6: 97 % with c=1..3", reaches(20, 20, (1, 2, 3), 6, 97.0)),
    Claim("figure14label", "E=20, T=35 after 6: 97 % with c=2..4", reaches(35, 20, (2, 3, 4), 6, 97.0)),
    Claim(
        "figure14label",
        "E=10, T=10 after 12: c=1 ahead of HA-Sync by more than 0.4",
        ahead(10, 10, (1,), 12, 0.4),
    ),
    Claim(
        "figure14label",
        "E=10, T=20 after 12: c=1 and 2 ahead by more than 0.4",
        ahead(20, 10, (1, 2), 12, 0.4),
    ),
    *(
        Claim(
            "figure14label",
            f"E=20, T={time_s:g} after 12: HA-Asyn is best (paper: c={c})",
            best_staleness(time_s, 20, 12, lambda top: top > 0),
        )
        for time_s, c in ((5.0, 5), (10.0, 2), (15.0, 2), (20.0, 4), (25.0, 4))
    ),
    Claim(
        "figure15label",
        "T=25, E=20: 97.3 % in 10 updates with c=3, 4 against 11",
        fewer_updates(25, 20, (3, 4), 97.3),
    ),
    Claim(
        "Discussions",
        "E=10, T=25..35: HA-Sync reaches 95.5 % with as few updates as any c",
        as_few_updates(_LONG, 10, 95.5),
    ),
    Claim(
        "Discussions",
        "E=20, T=25..35: HA-Sync reaches 97 % with as few updates as any c",
        as_few_updates(_LONG, 20, 97.0),
    ),
    Claim(
        "Discussions",
        "E=10, T=30 after 12: HA-Sync is best",
        best_staleness(30, 10, 12, lambda top: top == 0),
    ),
    *(
        Claim(
            "Discussions",
            f"E=20, T={time_s:g} after 12: HA-Sync is best",
            best_staleness(time_s, 20, 12, lambda top: top == 0),
        )
        for time_s in (30.0, 40.0)
    ),
    Claim("abstract", "Gains of up to 25 % over HA-Sync", _headline),
)
