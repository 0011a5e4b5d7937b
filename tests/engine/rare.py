"""The rare labels on Flower's engine: ``python -m tests.engine.rare DATA_DIR``.

Adds rows to results/rare.jsonl, beside those that `mel_simulation.arena.rare` computes on the arena's clock.
"""

import json
import sys
import tempfile
from pathlib import Path

from mel_simulation.arena.rare import ON_ENGINE, SECONDS, SEEDS, keep, outcome

from tests.engine.harness import Engine


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
    about = {"fleet": "spread", "method": ON_ENGINE[frugality], "seed": seed}
    return about | outcome(curve, found[-1]["energy_j"])


def main(data_dir):
    engine = Engine()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            keep([measure(engine, scratch, data_dir, seed, f) for f in ON_ENGINE for seed in SEEDS])
        finally:
            engine.stop()


if __name__ == "__main__":
    main(sys.argv[1])
