"""Labels that only slow learners hold: ``python -m mel_simulation.arena.rare DATA_DIR``.

Federated MNIST, 20 learners whose speeds are 40 times apart, 120 virtual seconds. The slowest quarter alone
hold two labels. Writes results/rare.jsonl, from which `make docs` fills a table of docs/ARENA.md;
``python -m tests.engine.rare DATA_DIR`` adds rows of runs on Flower's engine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any, cast

from flwr_mel._files import atomically
from mel_simulation.app.run_dir import versions
from mel_simulation.arena.rivals.fedadam import FedAdam
from mel_simulation.arena.rivals.fedavg import FedAvg
from mel_simulation.arena.rivals.rate import BestRounds
from mel_simulation.arena.rounds import Rival
from mel_simulation.arena.setting import RARE, RARE_LABELS, Setting
from mel_simulation.arena.tasks.images import Perceptron
from mel_simulation.arena.world import World
from mel_simulation.pages import markdown_table
from mel_simulation.scenario.network import Weights, evaluate

RESULTS = Path("results", "rare.jsonl")
SECONDS = 120.0
SEEDS = (0, 1, 2)
GOALS = (0.85, 0.9)
#: It never ends early: no model is that accurate.
SETTING = Setting("rare", "", "mnist", 0, "spread", split=RARE, targets=(0.9999,), rounds=1000, power_w=0.0)
LINKS = {"spread": "the paper's", "spread-far": "slow quarter 10 times slower"}
METHODS: dict[str, Rival] = {
    "rate": FedAdam(BestRounds()),
    "rate, f = 0.25": FedAdam(BestRounds(0.25)),
    "FedAvg, same server": FedAdam(FedAvg(1)),
    "FedAvg": FedAvg(1),
}
#: Rows of the table that `tests.engine.rare` computes, by frugality.
ON_ENGINE = {0.0: "rate, Flower's engine", 0.25: "rate, f = 0.25, Flower's engine"}


class Watched(World):
    """A world that judges every model on the whole test set, and on the rare labels."""

    def __init__(self, setting: Setting, seed: int, until_s: float = SECONDS) -> None:
        super().__init__(setting, seed, until_s)
        #: Seconds, joules, accuracy and accuracy on the rare labels of each model.
        self.curve: list[tuple[float, float, float, float]] = []

    def publish(self, weights: Weights) -> None:
        """Make a new version of the model and judge it."""
        super().publish(weights)
        data = cast(Perceptron, self.task).data
        rare = data.test_y > data.test_y.max() - RARE_LABELS
        every = evaluate(self.model, data.test_x, data.test_y)[1]
        some = evaluate(self.model, data.test_x[rare], data.test_y[rare])[1]
        self.curve.append((self.now, self.energy_j(), every, some))


def measure(setting: Setting, rival: Rival, seed: int) -> dict[str, Any]:
    """Let a rival learn for 120 s."""
    world = Watched(setting, seed)
    rival.run(world)
    return outcome(world.curve, world.energy_j())


def outcome(curve: Sequence[tuple[float, ...]], energy_j: float) -> dict[str, Any]:
    """Return accuracies over the last quarter of the models, and when the goals were first reached."""
    late = curve[-max(len(curve) // 4, 1) :]
    return {
        "accuracy": mean(point[2] for point in late),
        "rare": mean(point[3] for point in late),
        "reached": [next((point[:2] for point in curve if point[2] >= goal), None) for goal in GOALS],
        "energy_j": energy_j,
    }


def table(path: Path) -> str:
    """Return the results: means of accuracies, medians of costs."""
    rows, lines = read(path), []
    for (fleet, links), method in product(LINKS.items(), [*METHODS, *ON_ENGINE.values()]):
        group = [row for row in rows if row["fleet"] == fleet and row["method"] == method]
        if group:
            accuracies = [f"{100 * mean(row[key] for row in group):.1f}" for key in ("accuracy", "rare")]
            costs = [_costs([row["reached"][i] for row in group]) for i in range(len(GOALS))]
            energy = f"{median(row['energy_j'] for row in group):,.0f}"
            lines.append([links, method, *accuracies, *costs, energy])
    head = ["links", "method", "accuracy, %", "rare labels, %", *(f"to {100 * g:g} %" for g in GOALS)]
    return markdown_table([*head, f"J in {SECONDS:g} s"], lines)


def _costs(reached: list[Any]) -> str:
    if None in reached:
        return "-"
    time_s, energy_j = (median(costs[i] for costs in reached) for i in (0, 1))
    return f"{time_s:.0f} s, {energy_j:,.0f} J"


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results in a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def keep(rows: Sequence[dict[str, Any]]) -> None:
    """Put rows in place of those that the file has of the same methods."""
    new = {row["method"] for row in rows}
    others = [row for row in read(RESULTS) if row["method"] not in new]
    about = {"about": {"versions": versions(), "seconds": SECONDS}}
    text = "".join(json.dumps(line) + "\n" for line in [about, *others, *rows])
    atomically(RESULTS, lambda file: file.write(text))


def main(data_dir: str) -> None:
    """Compute all methods for all seeds."""
    rows = []
    for fleet, (method, rival), seed in product(LINKS, METHODS.items(), SEEDS):
        found = measure(replace(SETTING, fleet=fleet, data_dir=data_dir), rival, seed)
        rows.append({"fleet": fleet, "method": method, "seed": seed, **found})
    keep(rows)


if __name__ == "__main__":
    main(sys.argv[1])
