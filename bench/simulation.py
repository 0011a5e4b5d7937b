"""Measure the simulation: its engine against a bare training loop, its overhead, 1,000 learners.

``python -m bench.simulation [--quick] [--data-dir DIR]`` writes a section of docs/BENCHMARKS.md and
bench/results/simulation.json. Without a directory of MNIST files the embedded digits, repeated to 60,000,
stand in for them: as many steps of the same kind.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mel_simulation.app.run_dir import RunDir
from mel_simulation.scenario.data import Dataset, embedded, load
from mel_simulation.scenario.idx import FILES
from mel_simulation.scenario.network import initial_weights

from bench.tables import PAGE, table, write_section
from flwr_mel._processes import end, tree
from flwr_mel.records import CycleRecord

RESULTS = Path(__file__).parent / "results" / "simulation.json"
WORKERS = 2
_REPEAT = 15  # 4,000 embedded digits become 60,000
#: Per learner in the comparison of fleet sizes; each costed as 100, so that epochs are those of 20 learners.
_EACH, _COST = 30, 100.0


@dataclass(slots=True)
class Measured:
    """What one run took.

    Parameters
    ----------
    cycles : list of CycleRecord
        What was trained.
    walls : list of float
        Seconds of every cycle; the first includes the start of the actors.
    total_s : float
        Of the whole command.
    peak_bytes : int
        Memory of all its processes together, pages that they share counted once.
    """

    cycles: list[CycleRecord] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    total_s: float = 0.0
    peak_bytes: int = 0

    @property
    def cycle_s(self) -> float:
        """The median of the cycles after the first."""
        return statistics.median(self.walls[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer cycles, at most 100 learners")
    parser.add_argument("--data-dir", type=Path, help="the full MNIST as idx files")
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="b-") as name:
        scratch = Path(name)
        data_dir = args.data_dir.resolve() if args.data_dir else repeated(scratch / "data")
        results = {
            "data": "MNIST" if args.data_dir else f"the embedded digits, repeated {_REPEAT} times",
            "cpus": os.cpu_count(),
            "engine": against_bare(data_dir, scratch, cycles=4 if args.quick else 7),
            "overhead_s": overhead(data_dir, scratch, cycles=4 if args.quick else 12),
            "sizes": sizes(data_dir, scratch, (20, 100) if args.quick else (20, 100, 1000)),
        }
    print(report(results))
    if not args.no_write:
        write_section(PAGE, "simulation", report(results))
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


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


def simulate(scratch: Path, *options: object, memory: bool = False) -> Measured:
    """Run `flwr-mel simulate` and measure it from its own records."""
    run = RunDir(Path(tempfile.mkdtemp(dir=scratch)) / "run")
    command = [sys.executable, "-m", "flwr_mel.tools.cli", "simulate", "--run-dir", str(run.path)]
    start, found = time.monotonic(), Measured()
    process = subprocess.Popen(
        [*command, *(str(option) for option in options)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        with _watching(process.pid, found) if memory else nullcontext():
            said, _ = process.communicate()
    finally:
        end(process)
    if process.returncode:
        raise RuntimeError(said.decode())
    found.total_s, found.cycles = time.monotonic() - start, run.records()
    with (run.path / "metrics.csv").open(encoding="utf-8") as file:
        found.walls = [float(row["wall_s"]) for row in csv.DictReader(file)]
    return found


@contextmanager
def _watching(pid: int, found: Measured) -> Iterator[None]:
    """Keep the highest sum of the processes' memory, looked at twice a second."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            found.peak_bytes = max(found.peak_bytes, sum(_memory(each.pid) for each in tree(pid)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _memory(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


# --- against a bare loop ----------------------------------------------------------------------------


def against_bare(data_dir: Path, scratch: Path, cycles: int) -> dict[str, Any]:
    """Compare whole cycles with nothing but their SGD steps by autograd and torch.optim.SGD.

    The bare loop has the data in memory in as many processes as the engine has actors; whoever is free takes
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
        "ratio": statistics.median(a / b for a, b in zip(engine.walls[1:], bare, strict=True)),
        "steps": statistics.median(steps),
        "cycles": cycles - 1,
        "command_s": engine.total_s,
    }


_data: Dataset


def _prepare(data_dir: str) -> None:
    global _data  # noqa: PLW0603
    _data = load("mnist", Path(data_dir))


def _train(task: tuple[int, int, int]) -> None:
    from bench.training import reference_train

    samples, epochs, seed = task
    rng = np.random.default_rng(seed)
    rows: npt.NDArray[np.int64] = rng.permutation(len(_data.train_y))[:samples]
    reference_train(initial_weights(0), _data.train_x[rows], _data.train_y[rows], epochs, rng=rng)


# --- overhead and sizes -----------------------------------------------------------------------------


def overhead(data_dir: Path, scratch: Path, cycles: int) -> float:
    """Return the seconds of a cycle in which 20 learners have next to nothing to train."""
    few = ("--samples", 200, "--sample-cost", 300, "--min-samples", 1)
    return simulate(scratch, "--data-dir", data_dir, "--cycles", cycles, *few).cycle_s


def sizes(data_dir: Path, scratch: Path, learners: tuple[int, ...]) -> list[dict[str, Any]]:
    """Measure cycles of few and many learners, each with the same work."""
    rows = []
    for mode in ("pl", "fl"):
        for k in learners:
            fleet = ("--learners", k, "--mode", mode, "--samples", _EACH * k, "--sample-cost", _COST)
            found = simulate(scratch, "--data-dir", data_dir, "--cycles", 3, *fleet, memory=True)
            used = sum(r.outcome == "used" for r in found.cycles[-1].learners)
            rows.append(
                {
                    "mode": mode,
                    "learners": k,
                    "used": used,
                    "first_cycle_s": found.walls[0],
                    "cycle_s": found.cycle_s,
                    "per_learner_ms": 1e3 * found.cycle_s / k,
                    "command_s": found.total_s,
                    "peak_gb": found.peak_bytes / 1e9,
                }
            )
            print(rows[-1], file=sys.stderr)
    return rows


def report(results: dict[str, Any]) -> str:
    """Return the section of the page."""
    e = results["engine"]
    rows = [
        [
            row["mode"].upper(),
            f"{row['learners']:,}",
            f"{row['used']:,}",
            f"{row['cycle_s']:.2f} s",
            f"{row['per_learner_ms']:.1f} ms",
            f"{row['first_cycle_s']:.1f} s",
            f"{row['command_s']:.0f} s",
            f"{row['peak_gb']:.1f} GB",
        ]
        for row in results["sizes"]
    ]
    head = ["mode", "learners", "used", "cycle", "per learner", "first cycle", "whole command", "peak memory"]
    return f"""## The simulation

`python -m bench.simulation`, on {results["cpus"]} CPUs; data: {results["data"]}.

* A cycle of the paper's 20 learners (T = 10, E = 10, HA-Asyn c = 2; {e["steps"]:,.0f} SGD steps; median of
  {e["cycles"]} after the first) takes **{e["cycle_s"]:.2f} s**, with allocation, 47 MB of samples shipped,
  averaging, evaluation on 10,000 images and checkpoint. The same steps alone, by torch autograd and
  `torch.optim.SGD` in {WORKERS} processes, take {e["bare_s"]:.2f} s: the whole engine costs
  **{e["ratio"]:.2f} times** a bare loop.
* Overhead: a cycle of 20 learners with 10 samples each takes {results["overhead_s"]:.2f} s.
* Fleet sizes ({_EACH} samples per learner, about 3 epochs; cycles after the first). Memory is the sum over
  all processes, shared pages counted once.

{table(head, rows)}
"""


if __name__ == "__main__":
    main()
