"""Tables and figure of an arena: ``python -m mel_simulation.arena.page results/arena.jsonl``.

Fills the generated blocks of docs/ARENA.md and draws docs/figures/arena.png.
"""

from __future__ import annotations

import sys
from collections import Counter
from math import isfinite
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from flwr_mel._files import atomically
from mel_simulation.arena import rare
from mel_simulation.arena.rivals import OURS, server_of
from mel_simulation.arena.verdict import Arena, Ratio, corrected
from mel_simulation.pages import fill, markdown_table
from mel_simulation.paper import style

#: Contestants that have not been published as they are here.
COMBINED = ("fednova-m", "fedbuff-m", "fednova-adam", "fedbuff-adam")
_COSTS = ("time_s", "energy_j")


def blocks(arena: Arena) -> dict[str, str]:
    """Return the generated blocks of the page by their names."""
    return {
        "source": _source(arena),
        "best": _best(arena),
        "server": _server(arena),
        "score": _score(arena),
        "ratios": _ratios(arena),
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
    ours = [name for name in arena.names if name in OURS]
    published = [name for name in arena.rivals if name not in COMBINED]
    rows = []
    for name, i, target in _targets(arena):
        mine = arena.best(name, ours)
        row = [name, target, mine]
        for among in (arena.rivals, published):
            rival = arena.best(name, among)
            row += [rival, *(arena.ratio(name, rival, i, what, mine).interval for what in _COSTS)]
        rows.append(row)
    head = ["setting", "target", "ours", "best other", "time", "energy", "best published", "time", "energy"]
    return markdown_table(head, rows)


def _server(arena: Arena) -> str:
    """Compare each of ours that has Adam on the server with the best other that has it."""
    ours = [name for name in arena.names if name in OURS and server_of(name) == "adam"]
    others = [name for name in arena.rivals if server_of(name) == "adam"]
    rows = []
    for name, i, target in _targets(arena):
        rival = arena.best(name, others)
        pairs = [[arena.ratio(name, rival, i, what, mine).interval for what in _COSTS] for mine in ours]
        rows.append([name, target, rival, *(", ".join(pair) for pair in pairs)])
    head = ["setting", "target", "best other with Adam", *(f"{n}: time, energy" for n in ours)]
    return markdown_table(head, rows)


def _targets(arena: Arena) -> list[tuple[str, int, str]]:
    """Return all targets of all settings: the setting, the target's index, and how it is shown."""
    settings = arena.about["settings"]
    return [(s["name"], i, f"{100 * t:g} %") for s in settings for i, t in enumerate(s["targets"])]


def _all(arena: Arena, rival: str, what: str) -> list[Ratio]:
    """Return a rival's comparisons in all settings, each by the target of the setting."""
    names = [setting["name"] for setting in arena.about["settings"]]
    return [arena.ratio(name, rival, arena.goal(name), what) for name in names]


def _score(arena: Arena) -> str:
    rows = []
    for what, title in zip(_COSTS, ("time", "energy"), strict=True):
        ratios = [ratio for rival in arena.rivals for ratio in _all(arena, rival, what)]
        count, sure = Counter(r.verdict for r in ratios), Counter(corrected(ratios))
        rows.append([title, *(str(count[v]) for v in ("ours", "rival", "open")), str(sure["ours"])])
        rows[-1].append(str(sure["rival"]))
    head = ["", "ours better", "rival better", "open", "ours better (Holm)", "rival better (Holm)"]
    return markdown_table(head, rows)


def _marked(ratio: Ratio) -> str:
    mark = {"ours": "**", "rival": "_"}.get(ratio.verdict, "")
    return f"{mark}{ratio}{mark}"


def _ratios(arena: Arena) -> str:
    """Return all comparisons: time and energy, bold where ours is better, italic where the rival is."""
    head = ["theirs / ours: time, energy", *(setting["name"] for setting in arena.about["settings"])]
    rows = []
    for rival in arena.rivals:
        pairs = zip(*(_all(arena, rival, what) for what in _COSTS), strict=True)
        rows.append([rival, *(f"{_marked(time)}, {_marked(energy)}" for time, energy in pairs)])
    return markdown_table(head, rows)


def _settings(arena: Arena) -> str:
    rows = []
    for s in arena.about["settings"]:
        limit = f"{s['power_w']:g} W" + (", all" if s["throttled"] else "") if s["power_w"] else "none"
        targets = ", ".join(f"{100 * t:g} %" for t in s["targets"])
        data = f"{s['samples']:,}" if s["samples"] else "all"
        ends = [row["curve"][-1][1] for row in arena.reported(s["name"], "fedavg")]
        end = f"{100 * mean(ends):.1f} %" if ends else "-"
        rows.append([s["name"], s["title"], s["fleet"], data, targets, end, limit, f"{s['rounds']:g}"])
    head = ["name", "setting", "devices", "samples", "targets", "FedAvg ends at", "power limit", "rounds"]
    return markdown_table(head, rows)


def draw(arena: Arena) -> Figure:
    """Draw one line per rival, one mark per setting: time at the left, energy at the right."""
    rivals, settings = arena.rivals, arena.about["settings"]
    figure, axes = style.canvas(1, 2, height=0.28 * len(rivals) + 1.0, sharey=True)
    nudge = np.linspace(-0.28, 0.28, len(settings)) if len(settings) > 1 else np.zeros(1)
    for panel, what, label in zip(axes[0], _COSTS, ("time", "energy"), strict=True):
        panel.axvline(1, color=style.GREY, lw=1)
        for place, rival in enumerate(rivals):
            for i, ratio in enumerate(_all(arena, rival, what)):
                if not ratio.pairs:
                    continue
                look, y = _look(i), place + nudge[i]
                if isfinite(ratio.high):
                    panel.plot([ratio.low, ratio.high], [y, y], color=look["color"], lw=0.8)
                face = "white" if ratio.never or ratio.missed else look["color"]
                panel.plot([ratio.value], [y], mfc=face, ms=4, **look)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}" if x >= 1 else f"1/{1 / x:g}"))
        panel.set_xlabel(f"{label} to the target: rival / ours")
    axes[0][0].set_yticks(range(len(rivals)), rivals)
    axes[0][0].set_ylim(len(rivals) - 0.5, -0.5)
    entries = [style.entry(setting["name"], **_look(i)) for i, setting in enumerate(settings)]
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
    parts = [f"# Arena: {arena.about['profile']}", "![Time and energy relative to ours](figures/arena.png)"]
    parts += [f"## {name}\n\n{text}" for name, text in blocks(arena).items()]
    atomically(out / "ARENA.md", lambda file: file.write("\n\n".join(parts) + "\n"))
    with style.style():
        return [out / "ARENA.md", style.save(draw(arena), out / "figures", "arena")]


def update(results: Path, docs: Path) -> None:
    """Fill the generated blocks of ARENA.md and draw its figure."""
    arena = Arena.read(results)
    fill(docs / "ARENA.md", blocks(arena) | {"rare": rare.table(results.with_name("rare.jsonl"))})
    with style.style():
        style.save(draw(arena), docs / "figures", "arena")


if __name__ == "__main__":
    update(Path(sys.argv[1]), Path("docs"))
