"""Tables and figure of an arena: ``python -m mel_simulation.arena.page results/arena.jsonl``.

Fills the generated blocks of docs/ARENA.md and draws docs/figures/arena.png.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mel_simulation.arena import rare
from mel_simulation.arena.rivals import server_of
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
        ours = arena.best(name, arena.ours)
        rows.append([name, ours])
        for rival in (arena.best(name, arena.rivals), arena.best(name, published)):
            rows[-1] += [rival, *_both(arena, name, rival, ours)]
    head = ["setting", "ours", "best other", "time", "energy", "best published", "time", "energy"]
    return markdown_table(head, rows)


def _server(arena: Arena) -> str:
    """Compare `rate` with the best other contestant that has its server, Adam."""
    others = [name for name in arena.rivals if server_of(name) == "adam"]
    rows = []
    for name in arena.settings:
        rival = arena.best(name, others)
        rate, frugal = (_both(arena, name, rival, ours) for ours in ("rate", "rate-frugal"))
        rows.append([name, rival, *rate, *frugal])
    head = [f"{ours}: {cost}" for ours in ("rate", "rate-frugal") for cost in COSTS.values()]
    return markdown_table(["setting", "best other with Adam", *head], rows)


def _both(arena: Arena, setting: str, rival: str, ours: str) -> list[str]:
    """Return a rival's time and energy relative to one of ours."""
    return [str(arena.ratio(setting, rival, what, ours)) for what in COSTS]


def _wins(arena: Arena) -> str:
    """Count the verdicts of each rival over the settings, and of all together."""

    def ratios(rivals: Sequence[str], target: int = -1) -> list[list[Ratio]]:
        pairs = list(product(arena.settings, rivals))
        return [[arena.ratio(*pair, what, target=target) for pair in pairs] for what in COSTS]

    groups = {rival: ratios([rival]) for rival in arena.rivals}
    groups["**all**"] = ratios(arena.rivals)
    groups["all, first targets"] = ratios(arena.rivals, 0)
    verdicts = {title: [[r.verdict for r in some] for some in both] for title, both in groups.items()}
    verdicts["all, corrected"] = [corrected(some) for some in groups["**all**"]]
    kinds = ("ours", "open", "rival")
    rows = [
        [title, *("/".join(str(some.count(kind)) for kind in kinds) for some in both)]
        for title, both in verdicts.items()
    ]
    return markdown_table(["ours better/open/rival better", *COSTS.values()], rows)


def _settings(arena: Arena) -> str:
    rows = []
    for s in arena.about["settings"]:
        limit = f"{s['power_w']:g} W" + (", all" if s["throttled"] else "") if s["power_w"] else "-"
        targets = ", ".join(f"{100 * t:g}" for t in s["targets"])
        rows.append([s["name"], s["title"], targets, limit])
    return markdown_table(["name", "setting", "targets, %", "power limit"], rows)


def draw(arena: Arena) -> Figure:
    """Draw one line per rival, one mark per setting: time at the left, energy at the right."""
    rivals, settings = arena.rivals, arena.settings
    figure, ((left, right),) = style.canvas(1, 2, height=0.28 * len(rivals) + 1.0, sharey=True)
    for axes, base, what in ((left, 2, "time_s"), (right, 4, "energy_j")):
        for i, name in enumerate(settings):
            look = {"color": style.COLOURS[i % 8], "marker": style.MARKERS[(i + i // 8) % 8], "ms": 4}
            for place, rival in enumerate(rivals):
                ratio, y = arena.ratio(name, rival, what), place + 0.6 * ((i + 0.5) / len(settings) - 0.5)
                if ratio.pairs:
                    axes.plot(
                        [ratio.value], [y], mfc="white" if ratio.never or ratio.missed else None, **look
                    )
                if ratio.pairs > 1:
                    axes.plot([ratio.low, ratio.high], [y, y], color=look["color"], lw=0.8)
            axes.plot([], [], ls="", label=name, **look)
        axes.axvline(1, color=style.GREY, lw=1)
        axes.set_xscale("log", base=base)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}" if x >= 1 else f"1/{1 / x:g}"))
        axes.set_xlabel(f"{COSTS[what]} to the target: rival / ours")
    left.set_yticks(range(len(rivals)), rivals)
    left.set_ylim(len(rivals) - 0.5, -0.5)
    style.legend(figure)
    figure.supxlabel(
        "Right of 1: ours is better. Open marks: one of the two did not reach the target with some seed. "
        "Bars: 95 % over paired seeds.\nEvery rival is compared with our best contestant that has the same "
        f"server optimizer.\n{arena.about['notice']}".rstrip(),
        fontsize=7,
    )
    return figure


def write(arena: Arena, out: Path) -> list[Path]:
    """Write the tables and the figure of a run into its directory."""
    with style.style():
        figure = style.save(draw(arena), out / "figures", "arena")
    write_page(out / "ARENA.md", f"Arena: {arena.about['profile']}", [figure], blocks(arena))
    return [out / "ARENA.md", figure]


def update(results: Path, docs: Path) -> None:
    """Fill the generated blocks of ARENA.md and draw its figure."""
    arena = Arena.read(results)
    fill(docs / "ARENA.md", blocks(arena) | {"rare": rare.table(results.with_name(rare.RESULTS.name))})
    with style.style():
        style.save(draw(arena), docs / "figures", "arena")


if __name__ == "__main__":
    update(Path(sys.argv[1]), Path("docs"))
