"""Measure the simulation: its engine against a bare training loop, its overhead, 1,000 learners.

``python -m bench.simulation [--large] [--data-dir DIR]``. Without a directory of MNIST files the embedded
digits, repeated to 60,000, take their place: as many steps of the same kind.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mel_simulation.app.run_dir import RunDir
from mel_simulation.scenario.data import FILES, Dataset, embedded, load
from mel_simulation.scenario.network import initial_weights

from bench.tables import arguments, publish, table
from flwr_mel.records import CycleRecord

WORKERS = 2
_REPEAT = 15  # 4,000 embedded digits become 60,000
#: Per learner in the comparison of fleet sizes; each costed as 100, so that epochs are those of 20 learners.
_EACH, _COST = 30, 100.0


@dataclass(frozen=True, slots=True)
class Measured:
    """The cycles of a run, the seconds from the command to the end of each, and to its own end."""

    cycles: list[CycleRecord]
    ends: list[float]
    total_s: float

    @property
    def walls(self) -> list[float]:
        """Seconds of every cycle after the first, which includes the start."""
        return [b - a for a, b in zip(self.ends, self.ends[1:], strict=False)]

    @property
    def cycle_s(self) -> float:
        """The median of the cycles after the first."""
        return statistics.median(self.walls)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--large", action="store_true", help="1,000 learners, too: ten minutes more")
    parser.add_argument("--data-dir", type=Path, help="the full MNIST as idx files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="b-") as name:
        scratch = Path(name)
        data_dir = args.data_dir.resolve() if args.data_dir else repeated(scratch / "data")
        few = ("--samples", 200, "--sample-cost", 300, "--min-samples", 1)
        results = {
            "data": "MNIST" if args.data_dir else f"the embedded digits, repeated {_REPEAT} times",
            "cpus": os.cpu_count(),
            "engine": against_bare(data_dir, scratch, cycles=7),
            "overhead_s": simulate(scratch, "--data-dir", data_dir, "--cycles", 12, *few).cycle_s,
            "sizes": sizes(data_dir, scratch, (20, 100, 1000) if args.large else (20, 100)),
        }
    publish("simulation", results, section, write=not args.no_write)


def repeated(directory: Path) -> Path:
    """Write the embedded digits, repeated, as idx files."""
    directory.mkdir()
    d = embedded()
    for name, array in zip(FILES, (d.train_x, d.train_y, d.test_x, d.test_y), strict=True):
        shape = (-1, 28, 28) if array.ndim == 2 else (-1,)
        many = np.concatenate([array] * (_REPEAT if name.startswith("train") else 10)).reshape(shape)
        head = struct.pack(f">{1 + many.ndim}I", 0x0800 + many.ndim, *many.shape)
        (directory / name).write_bytes(head + many.tobytes())
    return directory


def simulate(scratch: Path, *options: object) -> Measured:
    """Run `flwr-mel simulate` and time the lines that it prints after each cycle."""
    run = RunDir(Path(tempfile.mkdtemp(dir=scratch)) / "run")
    command = [sys.executable, "-m", "flwr_mel.tools.cli", "simulate", "--run-dir", str(run.path)]
    start, ends, lines = time.monotonic(), [], []
    process = subprocess.Popen(
        [*command, *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if line.startswith("cycle "):
            ends.append(time.monotonic() - start)
    if process.wait():
        raise RuntimeError("".join(lines))
    return Measured(run.records(), ends, time.monotonic() - start)


def against_bare(data_dir: Path, scratch: Path, cycles: int) -> dict[str, Any]:
    """Compare whole cycles with nothing but their SGD steps by autograd and torch.optim.SGD.

    The bare loop has the data in memory in as many processes as the engine has actors; a free process takes
    the next learner's task, as in the engine. It ships nothing, averages nothing and evaluates nothing.
    """
    engine = simulate(scratch, "--data-dir", data_dir, "--cycles", cycles)
    bare = []
    with multiprocessing.get_context("spawn").Pool(WORKERS, _prepare, (str(data_dir),)) as pool:
        pool.map(_train, [(64, 1, 0)] * 2 * WORKERS, chunksize=1)  # loads kernels
        for record in engine.cycles[1:]:
            tasks = [(r.samples, r.epochs, k) for k, r in enumerate(record.learners) if r.epochs]
            start = time.perf_counter()
            pool.map(_train, tasks, chunksize=1)
            bare.append(time.perf_counter() - start)
    steps = [sum(-(-r.samples // 64) * r.epochs for r in record.learners) for record in engine.cycles[1:]]
    return {
        "cycle_s": engine.cycle_s,
        "bare_s": statistics.median(bare),
        "ratio": statistics.median(a / b for a, b in zip(engine.walls, bare, strict=True)),
        "steps": statistics.median(steps),
        "cycles": cycles - 1,
    }


_data: Dataset


def _prepare(data_dir: str) -> None:
    global _data  # noqa: PLW0603
    _data = load("mnist", Path(data_dir))


def _train(task: tuple[int, int, int]) -> None:
    from bench.training import reference_train

    samples, epochs, seed = task
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(_data.train_y))[:samples]
    reference_train(initial_weights(0), _data.train_x[rows], _data.train_y[rows], epochs, rng=rng)


def sizes(data_dir: Path, scratch: Path, learners: tuple[int, ...]) -> list[dict[str, Any]]:
    """Measure cycles of few and many learners, each with the same work."""
    rows = []
    for mode in ("pl", "fl"):
        for k in learners:
            fleet = ("--learners", k, "--mode", mode, "--samples", _EACH * k, "--sample-cost", _COST)
            found = simulate(scratch, "--data-dir", data_dir, "--cycles", 3, *fleet)
            times = {"cycle_s": found.cycle_s, "first_cycle_s": found.ends[0], "command_s": found.total_s}
            rows.append({"mode": mode, "learners": k, **times})
            print(rows[-1], file=sys.stderr)
    return rows


def section(results: dict[str, Any]) -> str:
    """Return the section of the page."""
    e = results["engine"]
    rows = [
        [
            row["mode"].upper(),
            f"{row['learners']:,}",
            f"{row['cycle_s']:.2f} s",
            f"{1e3 * row['cycle_s'] / row['learners']:.1f} ms",
            f"{row['first_cycle_s']:.1f} s",
            f"{row['command_s']:.0f} s",
        ]
        for row in results["sizes"]
    ]
    head = ["mode", "learners", "cycle", "per learner", "to the end of the first cycle", "whole command"]
    return f"""## The simulation

On {results["cpus"]} CPUs; data: {results["data"]}. A whole cycle of the paper's 20 learners (T = 10 s,
E = 10 J, HA-Asyn with c = 2, {e["steps"]:,.0f} SGD steps) takes {e["cycle_s"]:.2f} s. Its steps alone, in a
bare loop of torch autograd and `torch.optim.SGD` in {WORKERS} processes, take {e["bare_s"]:.2f} s: the cycle
takes **{e["ratio"]:.2f} times** as long. A cycle of 20 learners with 10 samples each takes
{results["overhead_s"]:.2f} s. Fleets with {_EACH} samples per learner and about 3 epochs:

{table(head, rows)}
"""


if __name__ == "__main__":
    main()
