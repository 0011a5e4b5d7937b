"""Run the gallery on Flower's Ray engine and check it: ``python -m examples.run [NAME ...]``.

Each project runs as it is and with its diff, on four devices of which the slowest computes ten times slower
than the fastest. Checked are, as it is: all devices train as the project says, and the model learns. With
the diff: every device runs the epochs and uses the samples that it was told, and counts with exactly those.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from examples.common.gallery import GALLERY, Example
from flwr_mel import wire

SPEEDS = (1.0, 2.0, 5.0, 10.0)
_ACCURACY = re.compile(r"round (\d+): accuracy ([\d.]+)")


def lines(path: Path) -> list[dict]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass
class Run:
    """What one run left.

    Parameters
    ----------
    path : Path
        Its directory.
    """

    path: Path

    @property
    def trainings(self) -> list[dict]:
        """Every training of a client, in the order of their ends."""
        return lines(self.path / "clients.jsonl")

    @property
    def cycles(self) -> list[dict]:
        """The records of the cycles, if the project is wrapped."""
        return lines(self.path / "cycles.jsonl")

    @property
    def reports(self) -> list[dict]:
        """What the clients' mods said."""
        return lines(self.path / "reports.jsonl")

    @property
    def accuracies(self) -> list[tuple[float, float]]:
        """Seconds since the first training began, and the accuracy then."""
        began = min((training["began"] for training in self.trainings), default=0.0)
        found = ((line, _ACCURACY.search(line["text"])) for line in lines(self.path / "server.jsonl"))
        return [(line["time"] - began, float(hit[2])) for line, hit in found if hit and int(hit[1]) > 0]

    def seconds_to(self, accuracy: float) -> float | None:
        """How long it took to this accuracy."""
        return next((seconds for seconds, reached in self.accuracies if reached >= accuracy), None)


def run(
    example: Example,
    *,
    wrapped: bool,
    out: Path,
    speeds: tuple[float, ...] = SPEEDS,
    config: dict | None = None,
    seed: int = 0,
) -> Run:
    """Run a copy of a project on Flower's Ray engine.

    Parameters
    ----------
    example : Example
        Which.
    wrapped : bool
        With its diff, or as it is.
    out : Path
        Where its files go; made.
    speeds : tuple of float
        How many times slower than the fastest each device is.
    config : dict, optional
        Changes to its run config.
    seed : int
        Of what its clients draw at random.
    """
    app = example.copy(out / "app", wrapped=wrapped)
    paces = ",".join(str(example.pace * speed) for speed in speeds)
    options = ["--paces", paces, "--nodes", str(len(speeds)), "--config", json.dumps(config or {})]
    options += ["--seed", str(seed)]
    return _start("examples.common.engine", app, out, options)


def run_local(example: Example, *, wrapped: bool, out: Path) -> Run:
    """Run a copy of a project without Ray; if wrapped, its clients only, with tasks that no server gave.

    Parameters
    ----------
    example : Example
        Which.
    wrapped : bool
        With its diff but for the server, or as it is.
    out : Path
        Where its files go; made.
    """
    app = example.copy(out / "app", wrapped=wrapped)
    server = example.settings["components"]["serverapp"].partition(":")[0].replace(".", "/") + ".py"
    shutil.copy(example.path / server, app / server)
    return _start("examples.common.local", app, out, ["--tasks"] if wrapped else [])


def _start(module: str, app: Path, out: Path, options: list[str]) -> Run:
    """Run a module in a process group of its own; whatever it started ends with it."""
    scratch = tempfile.mkdtemp(prefix="mel")  # Ray's sockets need short paths
    root = Path(__file__).resolve().parents[1]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(app), str(root)]),
        "RAY_TMPDIR": scratch,
        "FLWR_HOME": f"{scratch}/flwr",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        # Five processes import a project: compiling transformers anew takes each 25 s of a processor.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(root / "build" / "pycache"),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": f"{scratch}/hf",
    }
    env.pop("RAY_ADDRESS", None)
    with (out / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(app), str(out), *options],
            cwd=out,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(600)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            shutil.rmtree(scratch, ignore_errors=True)
    if process.returncode != 0:
        raise RuntimeError(f"ended with {process.returncode}:\n{(out / 'log').read_text()[-3000:]}")
    return Run(out)


def check_vanilla(example: Example, done: Run) -> list[str]:
    """Return what is wrong with a run of the project as it is: nothing."""
    faults = []
    parts = sorted(training["partition"] for training in done.trainings)
    if parts != sorted(list(range(len(SPEEDS))) * 3):
        faults.append(f"not everybody trained in every round: partitions {parts}")
    if len({training["ran"] for training in done.trainings}) != 1:
        faults.append("not everybody ran the same epochs")
    best = max((accuracy for _, accuracy in done.accuracies), default=0.0)
    if best < example.accuracy:
        faults.append(f"accuracy {best:.3f} instead of {example.accuracy}")
    return faults


def check_wrapped(done: Run) -> list[str]:
    """Return where clients did something else than they were told, or counted otherwise."""
    faults, told = [], {}
    for training in done.trainings:
        who = f"cycle {training.get('cycle')}, partition {training['partition']}"
        if training.get("epochs") is None:
            continue  # a free task: the project's own round
        told[training["cycle"], str(training["partition"])] = training
        if training["ran"] != training["epochs"]:
            faults.append(f"{who}: {training['ran']} epochs instead of {training['epochs']}")
        if training["rows"] != training["samples"]:
            faults.append(f"{who}: {training['rows']} samples instead of {training['samples']}")
    if not told:
        faults.append("nobody was ever given a task")
    for record in done.cycles:
        for row in record["learners"]:
            task = told.get((record["cycle"], row["learner"]))
            if task is None:
                continue
            if (row["epochs"], row["samples"]) != (task["epochs"], task["samples"]):
                faults.append(f"cycle {record['cycle']}, {row['learner']}: the record differs from the task")
            if row["outcome"] == "used" and row["weight"] != task["samples"]:
                faults.append(f"cycle {record['cycle']}, {row['learner']}: weight {row['weight']}")
    return faults


def check_private(example: Example, done: Run) -> list[str]:
    """Return where clients with differential privacy left what they declare."""
    if example.private is None:
        return []
    batch, rate, steps = example.private
    return [
        f"cycle {x.get('cycle')}, partition {x['partition']}: {x['steps']} steps of {batch} samples among "
        f"{x['rows']}, epsilon {x['epsilon']:.2f}"
        for x in done.trainings
        if x.get("epochs") is not None and (x["steps"] > steps or batch / x["rows"] > rate * (1 + 1e-9))
    ]


def check_reports(done: Run) -> list[str]:
    """Return where the mods of clients that were told what to do say something else."""
    faults = [
        f"partition {said['partition']}: the epochs were not read"
        for said in done.reports
        if said.get(wire.EPOCHS_READ) == 0
    ]
    ran = sorted((training["partition"], training["rows"]) for training in done.trainings)
    keys = ("partition", wire.SAMPLES_USED)
    told = sorted(tuple(said.get(key, -1) for key in keys) for said in done.reports)
    return faults if ran == told else [*faults, f"reported {told}, ran {ran}"]


#: How a project can be run, and what is checked then.
KINDS = {
    "vanilla": (lambda example, out: run(example, wrapped=False, out=out), check_vanilla),
    "clients": (
        lambda example, out: run_local(example, wrapped=True, out=out),
        lambda example, done: [*check_wrapped(done), *check_reports(done)],
    ),
    "wrapped": (
        lambda example, out: run(example, wrapped=True, out=out),
        lambda example, done: [*check_wrapped(done), *check_reports(done), *check_private(example, done)],
    ),
}


def main() -> int:
    """Run, check, print a table; return how many projects are at fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GALLERY)}; default: all")
    parser.add_argument("--only", choices=list(KINDS), help="default: all; clients: without Ray and server")
    parser.add_argument("--out", type=Path, help="keep the files here")
    arguments = parser.parse_args()
    wrong = 0
    with contextlib.ExitStack() as stack:
        out = arguments.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in arguments.names or GALLERY:
            runs: dict[str, Run] = {}
            faults: list[str] = []
            for kind in KINDS if arguments.only is None else (arguments.only,):
                start, check = KINDS[kind]
                try:
                    runs[kind] = start(GALLERY[name], out.absolute() / name / kind)
                    faults += [f"{kind}: {fault}" for fault in check(GALLERY[name], runs[kind])]
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    faults.append(f"{kind}: {error}")
            print(row(name, runs, faults), flush=True)
            wrong += bool(faults)
    return wrong


def row(name: str, runs: dict[str, Run], faults: list[str]) -> str:
    """Say in a line how a project did."""
    parts = []
    target = min(
        (max(a for _, a in done.accuracies) for done in runs.values() if done.accuracies), default=0.0
    )
    for kind, done in runs.items():
        if done.accuracies:
            seconds = done.seconds_to(target)
            parts.append(
                f"{kind}: {target:.3f} after {seconds:.1f} s, in the end {done.accuracies[-1][1]:.3f}"
            )
    return "\n   ".join([f"{name:20} {'; '.join(parts)}", *faults])


if __name__ == "__main__":
    sys.exit(main())
