"""Tables and figure of an arena: ``python -m mel_simulation.arena.page results/arena.jsonl``.

Fills the generated blocks of docs/ARENA.md and draws docs/figures/arena.png.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mel_simulation.arena import cover, rare
from mel_simulation.arena.rivals import rate, server_of
from mel_simulation.arena.verdict import COSTS, Arena, Ratio, corrected
from mel_simulation.pages import fill, markdown_table, write_page
from mel_simulation.paper import style

#: Contestants that have not been published as they are here.
COMBINED = ("fednova-m", "fedbuff-m", "fednova-adam", "fedbuff-adam")


def blocks(arena: Arena) -> dict[str, str]:
    """Return the generated blocks of the page by their names."""
    return {
        "source": _source(arena),
        "best": _best(arena),
        "server": _server(arena),
        "wins": _wins(arena),
        "settings": _settings(arena),
    }


def _source(arena: Arena) -> str:
    about = arena.about
    packages = ", ".join(f"{k} {v}" for k, v in about["versions"].items())
    seeds = f"seeds {', '.join(map(str, about['seeds']))}"
    tuned = f"tuned on seed {about['tuning_seed']}" if about["tuning_seed"] is not None else "nothing tuned"
    text = f"`arena.jsonl`: {len(arena.rows)} of {about['bouts']} bouts, {seeds}, {tuned}; {packages}."
    return f"{text} {about['notice']}".strip()


def _best(arena: Arena) -> str:
    """Compare the best of ours with the best of all others, both chosen on the tuning seed."""
    published = [name for name in arena.rivals if name not in COMBINED]
    rows = []
    for name in arena.settings:
        mine = arena.best(name, arena.ours)
        row = [name, mine]
        for among in (arena.rivals, published):
            rival = arena.best(name, among)
            row += [rival, *(str(arena.ratio(name, rival, what, mine)) for what in COSTS)]
        rows.append(row)
    head = ["setting", "ours", "best other", "time", "energy", "best published", "time", "energy"]
    return markdown_table(head, rows)


def _server(arena: Arena) -> str:
    """Compare `rate` with the best other contestant that has its server, Adam."""
    others = [name for name in arena.rivals if server_of(name) == "adam"]
    pairs = [(mine, what) for mine in rate.RIVALS for what in COSTS]
    rows = []
    for name in arena.settings:
        rival = arena.best(name, others)
        rows.append([name, rival, *(str(arena.ratio(name, rival, what, mine)) for mine, what in pairs)])
    head = ["setting", "best other with Adam", *(f"{mine}: {COSTS[what]}" for mine, what in pairs)]
    return markdown_table(head, rows)


def _wins(arena: Arena) -> str:
    """Count the verdicts of each rival over the settings, and of all together."""

    def found(rivals: Sequence[str], what: str, target: int = -1) -> list[Ratio]:
        return [arena.ratio(name, rival, what, target=target) for rival in rivals for name in arena.settings]

    def line(title: str, verdicts: Sequence[Sequence[str]]) -> list[str]:
        counts = [Counter(some) for some in verdicts]
        return [title, *(f"{n['ours']}/{n['open']}/{n['rival']}" for n in counts)]

    groups = [(rival, [rival], -1) for rival in arena.rivals]
    groups += [("**all**", arena.rivals, -1), ("all, first targets", arena.rivals, 0)]
    rows = [
        line(title, [[r.verdict for r in found(rivals, what, target)] for what in COSTS])
        for title, rivals, target in groups
    ]
    rows.append(line("all, corrected", [corrected(found(arena.rivals, what)) for what in COSTS]))
    return markdown_table(["ours better/open/rival better", *COSTS.values()], rows)


def _settings(arena: Arena) -> str:
    rows = []
    for s in arena.about["settings"]:
        limit = f"{s['power_w']:g} W" + (", all" if s["throttled"] else "") if s["power_w"] else "-"
        targets = ", ".join(f"{100 * t:g}" for t in s["targets"])
        ends = [row["curve"][-1][1] for row in arena.reported(s["name"], "fedavg").values()]
        end = f"{100 * mean(ends):.1f}" if ends else "-"
        rows.append([s["name"], s["title"], targets, end, limit, f"{s['rounds']:g}"])
    head = ["name", "setting", "targets, %", "FedAvg's end, %", "power limit", "rounds"]
    return markdown_table(head, rows)


def draw(arena: Arena) -> Figure:
    """Draw one line per rival, one mark per setting: time at the left, energy at the right."""
    rivals, settings = arena.rivals, arena.settings
    figure, axes = style.canvas(1, 2, height=0.28 * len(rivals) + 1.0, sharey=True)
    nudge = np.linspace(-0.28, 0.28, len(settings)) if len(settings) > 1 else np.zeros(1)
    for panel, base, (what, label) in zip(axes[0], (2, 4), COSTS.items(), strict=True):
        panel.axvline(1, color=style.GREY, lw=1)
        for (place, rival), (i, name) in product(enumerate(rivals), enumerate(settings)):
            ratio = arena.ratio(name, rival, what)
            if not ratio.pairs:
                continue
            look, y = _look(i), place + nudge[i]
            if isfinite(ratio.high):
                panel.plot([ratio.low, ratio.high], [y, y], color=look["color"], lw=0.8)
            face = "white" if ratio.never or ratio.missed else look["color"]
            panel.plot([ratio.value], [y], mfc=face, ms=4, **look)
        panel.set_xscale("log", base=base)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}" if x >= 1 else f"1/{1 / x:g}"))
        panel.set_xlabel(f"{label} to the target: rival / ours")
    axes[0][0].set_yticks(range(len(rivals)), rivals)
    axes[0][0].set_ylim(len(rivals) - 0.5, -0.5)
    entries = [style.entry(name, **_look(i)) for i, name in enumerate(settings)]
    style.legend(figure, entries, "How much more time and energy do other methods take?")
    style.footer(
        figure,
        "To the right of 1 ours is better. Open marks: one of the two did not reach the target in some seed. "
        f"Bars: 95 % over {len(arena.about['seeds'])} paired seeds. Every rival is compared with the "
        "best of ours that has the same server: plain, with momentum (-m) or with Adam (-adam).",
        arena.about["notice"],
    )
    return figure


def _look(setting: int) -> dict[str, Any]:
    """Return how a setting looks: eight colours, and other marks when they repeat."""
    marker = style.MARKERS[(setting + setting // 8) % 8]
    return {"color": style.COLOURS[setting % 8], "marker": marker, "ls": ""}


def write(arena: Arena, out: Path) -> list[Path]:
    """Write the tables and the figure of a run into its directory."""
    with style.style():
        figure = style.save(draw(arena), out / "figures", "arena")
    write_page(out / "ARENA.md", f"Arena: {arena.about['profile']}", [figure], blocks(arena))
    return [out / "ARENA.md", figure]


def update(results: Path, docs: Path) -> None:
    """Fill the generated blocks of ARENA.md and draw its figure."""
    arena = Arena.read(results)
    found = blocks(arena) | {"rare": rare.table(results.with_name("rare.jsonl"))}
    found["cover"] = cover.table(results.with_name("cover.jsonl"), arena)
    fill(docs / "ARENA.md", found)
    with style.style():
        style.save(draw(arena), docs / "figures", "arena")


if __name__ == "__main__":
    update(Path(sys.argv[1]), Path("docs"))
