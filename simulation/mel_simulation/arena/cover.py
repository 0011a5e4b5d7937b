"""Why `rate` is slow on phones: ``python -m mel_simulation.arena.cover DATA_DIR``.

The setting "phones-0.5" once more, with other bounds on who takes part in a round of `rate`. Writes
results/cover.jsonl, from which `make docs` fills a table of docs/ARENA.md.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from flwr_mel._files import atomically
from flwr_mel.solvers.rate import Rate
from mel_simulation.app.run_dir import versions
from mel_simulation.arena.rivals.fedadam import FedAdam
from mel_simulation.arena.rivals.rate import play_best
from mel_simulation.arena.setting import profiles, read_profile
from mel_simulation.arena.verdict import COSTS, Arena
from mel_simulation.arena.world import World
from mel_simulation.pages import markdown_table

PLACE, RIVAL = "phones-0.5", "fednova-adam"


@dataclass(frozen=True, slots=True)
class Covered:
    """`rate` whose participants hold at least a share of the data and process at least some samples each."""

    cover: float = 1.0
    least: int = 16

    def run(self, world: World) -> None:
        """Repeat the best round with these bounds."""
        play_best(world, Rate(cover=self.cover), self.least)


METHODS = {
    "all, at least 16 samples (`rate`)": Covered(),
    "all, at least 4 samples": Covered(least=4),
    "those with 90 % of the data": Covered(0.9),
    "those with 80 % of the data": Covered(0.8),
}


def table(path: Path, arena: Arena) -> str:
    """Return who takes part, and what FedNova with the same server costs relative to each method."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    both = Arena(arena.about, (*arena.rows, *rows))
    lines = []
    for method in METHODS:
        mine = both.reported(PLACE, method).values()
        means = [f"{mean(row[key] for row in mine):.1f}" for key in ("clients", "round_s")]
        lines.append([method, *means, *(str(both.ratio(PLACE, RIVAL, what, method)) for what in COSTS)])
    return markdown_table(["clients in a round", "how many", "s per round", *COSTS.values()], lines)


def main(data_dir: str) -> None:
    """Compute all methods for the seeds of the arena."""
    profile = read_profile(profiles()["full"], data_dir)
    setting = next(each for each in profile.settings if each.name == PLACE)
    lines: list[object] = [{"about": {"versions": versions()}}]
    for method, rival in METHODS.items():
        for seed in profile.seeds:
            world = World(setting, seed)
            FedAdam(rival).run(world)
            row = {"setting": {"name": PLACE}, "rival": method, "seed": seed, "reached": world.reached()}
            row["clients"] = len({event.learner for event in world.log if event.what == "send"})
            row["round_s"] = next(event.at_s for event in world.log if event.what == "model")
            lines.append({**row, "curve": world.points()})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    atomically(Path("results", "cover.jsonl"), lambda file: file.write(text))


if __name__ == "__main__":
    main(sys.argv[1])
