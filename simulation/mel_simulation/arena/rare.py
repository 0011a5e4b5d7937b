"""Labels that only slow learners hold: ``python -m mel_simulation.arena.rare --data-dir DIR``.

Federated MNIST, 20 learners whose speeds are 40 times apart, 120 virtual seconds. The slowest quarter alone
hold two labels. Writes results/rare.jsonl, from which `make docs` fills a table of docs/ARENA.md. Rows of
``python -m tests.engine.rare``, the same on Flower's engine, stay in the file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any, cast

from flwr_mel._files import atomically
from mel_simulation.app.run_dir import versions
from mel_simulation.arena.rivals.fedadam import FedAdam
from mel_simulation.arena.rivals.fedavg import FedAvg
from mel_simulation.arena.rivals.rate import BestRounds
from mel_simulation.arena.rivals.rival import Rival
from mel_simulation.arena.setting import RARE, RARE_LABELS, Setting
from mel_simulation.arena.tasks.images import Perceptron
from mel_simulation.arena.world import World
from mel_simulation.pages import markdown_table
from mel_simulation.scenario.network import Weights, evaluate

SECONDS = 120.0
SEEDS = (0, 1, 2)
GOALS = (0.85, 0.9)
#: It never ends early: no model is that accurate.
SETTING = Setting(
    "rare",
    "MNIST, two labels on slow devices only",
    "mnist",
    fleet="spread",
    split=RARE,
    targets=(0.9999,),
    rounds=1000,
    power_w=0.0,
)
LINKS = {"spread": "the paper's", "spread-far": "slow quarter 10 times slower"}
METHODS: dict[str, Rival] = {
    "rate": FedAdam(BestRounds()),
    "rate, f = 0.25": FedAdam(BestRounds(0.25)),
    "FedAvg, same server": FedAdam(FedAvg(1)),
    "FedAvg": FedAvg(1),
}


#: Seconds, joules, accuracy and accuracy on the rare labels of a model.
Point = tuple[float, float, float, float]


class Watched(World):
    """A world that judges every model on the whole test set, and on the rare labels."""

    curve: list[Point]

    def publish(self, weights: Weights) -> None:
        """Make a new version of the model and judge it."""
        super().publish(weights)
        data = cast(Perceptron, self.task).data
        rare = data.test_y > data.test_y.max() - RARE_LABELS
        all_, some = (
            evaluate(self.model, data.test_x[rows], data.test_y[rows])[1] for rows in (slice(None), rare)
        )
        self.curve.append((self.now, self.energy_j(), all_, some))


def measure(setting: Setting, rival: Rival, seed: int, seconds: float = SECONDS) -> dict[str, Any]:
    """Let a rival learn for some time; accuracies are means over the last quarter of its models.

    Parameters
    ----------
    setting : Setting
        Of images, with the split "rare".
    rival : Rival
        Which.
    seed : int
        Of the world.
    seconds : float
        Virtual time.
    """
    world = Watched(setting, seed, seconds)
    world.curve = []
    rival.run(world)
    return outcome(world.curve, world.energy_j())


def outcome(curve: Sequence[Point], energy_j: float) -> dict[str, Any]:
    """Return accuracies over the last quarter of the models, and when the goals were first reached."""
    late = curve[-max(len(curve) // 4, 1) :]
    return {
        "accuracy": mean(c[2] for c in late),
        "rare": mean(c[3] for c in late),
        "reached": [next((c[:2] for c in curve if c[2] >= goal), None) for goal in GOALS],
        "energy_j": energy_j,
        "models": len(curve),
    }


def table(path: Path) -> str:
    """Return the results: means of accuracies, medians of costs."""
    rows = sorted(rows_of(path), key=lambda row: list(LINKS).index(row["fleet"]))
    lines = []
    for fleet, method in dict.fromkeys((row["fleet"], row["method"]) for row in rows):
        group = [row for row in rows if (row["fleet"], row["method"]) == (fleet, method)]
        shown = [f"{100 * mean(row[key] for row in group):.1f}" for key in ("accuracy", "rare")]
        shown += [_costs([row["reached"][i] for row in group]) for i in range(len(GOALS))]
        shown.append(f"{median(row['energy_j'] for row in group):,.0f}")
        lines.append([LINKS[fleet], method, *shown])
    head = ["links", "method", "accuracy, %", "rare labels, %", *(f"to {100 * g:g} %" for g in GOALS)]
    return markdown_table([*head, f"J in {SECONDS:g} s"], lines)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the results in a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def _costs(reached: list[Any]) -> str:
    if any(costs is None for costs in reached):
        return "-"
    time_s, energy_j = (median(costs[i] for costs in reached) for i in (0, 1))
    return f"{time_s:.0f} s, {energy_j:,.0f} J"


def main() -> None:
    """Compute all methods for all seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="", help="directory of MNIST's idx files; default: the cache")
    parser.add_argument("--out", type=Path, default=Path("results/rare.jsonl"))
    given = parser.parse_args()
    lines: list[dict[str, Any]] = [{"about": {"versions": versions(), "seconds": SECONDS}}]
    others = [row for row in rows_of(given.out) if row["method"] not in METHODS] if given.out.exists() else []
    for fleet in LINKS:
        setting = replace(SETTING, fleet=fleet, data_dir=given.data_dir)
        for method, rival in METHODS.items():
            for seed in SEEDS:
                lines.append(
                    {"fleet": fleet, "method": method, "seed": seed, **measure(setting, rival, seed)}
                )
                print(lines[-1], flush=True)
    text = "".join(json.dumps(line) + "\n" for line in [*lines, *others])
    atomically(given.out, lambda file: file.write(text))


if __name__ == "__main__":
    main()
