"""The rare labels on Flower's engine: ``python -m tests.engine.rare --data-dir DIR``.

Adds rows to results/rare.jsonl, beside those that `mel_simulation.arena.rare` computes on the arena's clock.
"""

import argparse
import json
import tempfile
from pathlib import Path

from mel_simulation.arena.rare import SECONDS, SEEDS, outcome, rows_of

from flwr_mel._files import atomically
from tests.engine.harness import Engine

RESULTS = Path("results", "rare.jsonl")
METHODS = {0.0: "rate, Flower's engine", 0.25: "rate, f = 0.25, Flower's engine"}


def rounds(engine, directory, task, seconds, *, seed, frugality, data_dir=""):
    """Run the app on an engine and return its rounds."""
    out = Path(directory) / "rounds.json"
    variables = {"TASK": task, "DATA": data_dir, "SEED": seed, "SECONDS": seconds, "OUT": out}
    variables |= {"FRUGALITY": frugality}
    engine.play(
        "tests.engine.rare_app", directory, **{f"RARE_{key}": value for key, value in variables.items()}
    )
    return json.loads(out.read_text())


def measure(engine, directory, data_dir, seed, frugality):
    """Return a row of the table."""
    found = rounds(engine, directory, "mnist", SECONDS, seed=seed, frugality=frugality, data_dir=data_dir)
    keys = ("clock_s", "energy_j", "accuracy", "rare")
    curve = [tuple(row[key] for key in keys) for row in found if row["clock_s"] <= SECONDS]
    about = {"fleet": "spread", "method": METHODS[frugality], "seed": seed}
    return about | outcome(curve, found[-1]["energy_j"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True, help="directory of MNIST's idx files")
    given = parser.parse_args()
    engine, rows = Engine(), []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for frugality in METHODS:
                rows += [measure(engine, scratch, given.data_dir, seed, frugality) for seed in SEEDS]
        finally:
            engine.stop()
    about = RESULTS.read_text(encoding="utf-8").splitlines()[0]
    rows = [row for row in rows_of(RESULTS) if row["method"] not in METHODS.values()] + rows
    lines = [about, *map(json.dumps, rows)]
    atomically(RESULTS, lambda file: file.write("\n".join(lines) + "\n"))


if __name__ == "__main__":
    main()
