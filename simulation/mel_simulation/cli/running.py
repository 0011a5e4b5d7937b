"""One run of ``flwr-mel simulate``, from its options to its summary.

The last cycle is shown as a table in a terminal; elsewhere, each cycle is a line.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from flwr_mel.allocation import Infeasible
from flwr_mel.records import CycleRecord
from flwr_mel.tools.fleetfile import read_fleet
from flwr_mel.tools.question import diagnosis_lines
from flwr_mel.tools.report.markup import plural
from flwr_mel.tools.shell import FAILED, INFEASIBLE, INTERRUPTED, console, note, stop
from mel_simulation.app.engine import engine
from mel_simulation.app.run_dir import RunDir
from mel_simulation.cli.many import absolute
from mel_simulation.ray_session import end_on_sigterm
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.job import check_feasible, dataset_of, names_of

_PERIOD_S = 0.2


def configure(values: Mapping[str, Any], given: Mapping[str, Any]) -> RunConfig:
    """Return the configuration with K and absolute paths.

    Parameters
    ----------
    values : mapping
        All options. With `resume` those of the run so far take the place of defaults.
    given : mapping
        Those that are not defaults.
    """
    if values["resume"] and values["run_dir"]:
        stored = RunDir(Path(values["run_dir"])).facts()["config"]
        before = {name: stored.get(name.replace("_", "-"), value) for name, value in values.items()}
        values = {**before, **given}
    fleet = read_fleet(values["fleet"]) if values["fleet"] else None  # a missing file is told as elsewhere
    config = RunConfig(**values)
    if fleet and "learners" not in given:
        config = replace(config, learners=len(fleet))
    run_dir = str(RunDir.of(config).path.resolve())
    return replace(config, run_dir=run_dir, fleet=absolute(config.fleet), data_dir=absolute(config.data_dir))


def run(config: RunConfig, ray_address: str) -> None:
    """Run the engine, show its cycles, and end the command with the exit code of what happened."""
    start, out, folder = time.monotonic(), console(), RunDir(Path(config.run_dir))
    note("reading the data ...")
    if notice := dataset_of(config).notice:
        note(notice)
    try:
        check_feasible(config)
    except Infeasible as infeasible:
        stop(f"infeasible: {' '.join(diagnosis_lines(infeasible.diagnosis, names_of(config)))}", INFEASIBLE)
    folder.start(config)
    end_on_sigterm()
    try:
        with engine(config, ray_address) as process:
            follow(out, folder, config.cycles, process, folder.cycles_done())
    except KeyboardInterrupt:
        _keep(folder)
        stop("interrupted", INTERRUPTED)
    if not folder.summary.exists():
        _keep(folder)
        why = folder.error.read_text(encoding="utf-8") if folder.error.exists() else "Flower's engine ended"
        stop(f"the run failed: {why.rstrip('.')}. Its log: {folder.path / 'flower.log'}", FAILED)
    conclude(out, folder, time.monotonic() - start, config.target_accuracy)


def _keep(folder: RunDir) -> None:
    """Write a report of a run that was cut short, and say how to continue it."""
    from flwr_mel.tools.report import write_report  # noqa: PLC0415 (not needed otherwise)

    if cycles := len(folder.records()):
        report = write_report([folder.path], folder.path / "report.html")
        again = f"flwr-mel simulate --resume --run-dir {folder.path}"
        note(f"{cycles} finished cycles are kept: {report}. Continue with: {again}")


def follow(out: Console, run: RunDir, cycles: int, process: subprocess.Popen[bytes], done: int = 0) -> None:
    """Show a run until its process ends or its summary is there.

    Parameters
    ----------
    out : Console
        Where to.
    run : RunDir
        Its records are followed.
    cycles : int
        How many are planned.
    process : subprocess.Popen
        The engine.
    done : int
        Cycles that were finished before.
    """
    out.print(f"results: {run.path}", soft_wrap=True, markup=False)
    out.print("starting Flower's engine ...")
    live: Any = Live(console=out, auto_refresh=False) if out.is_terminal else nullcontext()
    over = False
    with live:
        while not over:
            time.sleep(_PERIOD_S)
            # In this order: what is written before the end is still shown.
            over = process.poll() is not None or run.summary.exists()
            for record in run.records()[done:]:
                done = record.cycle
                if out.is_terminal:
                    live.update(view(record, cycles), refresh=True)
                else:
                    out.print(line(record, cycles), soft_wrap=True)


def line(record: CycleRecord, cycles: int) -> str:
    """Return a cycle in one line."""
    epochs = [row.epochs for row in record.learners if row.epochs]
    low, high = min(epochs, default=0), max(epochs, default=0)
    work = f"{low} to {high} epochs" if low < high else plural(low, "epoch") if low else "no work"
    return (
        f"cycle {record.cycle} of {cycles}: accuracy {_accuracy(record):.2f} %, {len(epochs)} of "
        f"{len(record.learners)} learners, {work}, {record.clock_s:.1f} s virtual, "
        f"{record.total_energy_j:,.0f} J"
    )


def view(record: CycleRecord, cycles: int) -> Table:
    """Return the tasks of a cycle as a table."""
    table = Table(title=line(record, cycles), title_justify="left", box=None)
    for name in ("learner", "epochs", "samples", "time, s", "energy, J", "limit, J", "outcome"):
        table.add_column(name, justify="left" if name in ("learner", "outcome") else "right")
    for row in record.learners:
        limit = "" if row.energy_limit_j is None else f"{row.energy_limit_j:.1f}"
        costs = (f"{row.time_s:.2f}", f"{row.energy_j:.2f}", limit)
        outcome = f"{row.outcome}: {row.reason}" if row.reason else str(row.outcome)
        table.add_row(row.learner, str(row.epochs), str(row.samples), *costs, outcome)
    return table


def conclude(out: Console, run: RunDir, seconds: float, target: float = 0.0) -> None:
    """Say what a finished run has reached."""
    records = run.records()
    best = max(map(_accuracy, records), default=nan)
    missed = f"; the target of {100 * target:g} % was not reached" if target else ""
    why = f"; {records[-1].stopped}" if records and records[-1].stopped else missed
    out.print(f"best accuracy {best:.2f} %, {seconds:.0f} s of wall time{why}", soft_wrap=True, markup=False)
    out.print(f"report: {run.path / 'report.html'}", soft_wrap=True, markup=False)


def _accuracy(record: CycleRecord) -> float:
    return 100 * record.metrics.get("accuracy", nan)
