"""One run of ``flwr-mel simulate``, from its options to its summary."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr_mel.allocation import Infeasible
from flwr_mel.tools.fleetfile import read_fleet
from flwr_mel.tools.question import diagnosis_lines
from flwr_mel.tools.shell import FAILED, INFEASIBLE, INTERRUPTED, console, note, stop
from mel_simulation.app.engine import engine
from mel_simulation.app.run_dir import RunDir
from mel_simulation.cli.live import conclude, follow
from mel_simulation.cli.many import absolute
from mel_simulation.ray_session import end_on_sigterm
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.job import check_feasible, dataset_of, names_of


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
    config = RunConfig(**values)
    if config.fleet and "learners" not in given:
        config = replace(config, learners=len(read_fleet(config.fleet)))
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
        stop(f"the run failed: {why}. Its log: {folder.path / 'flower.log'}", FAILED)
    conclude(out, folder, time.monotonic() - start)


def _keep(folder: RunDir) -> None:
    """Write a report of a run that was cut short, and say how to continue it."""
    from flwr_mel.tools.report import write_report  # noqa: PLC0415 (not needed otherwise)

    if cycles := len(folder.records()):
        report = write_report([folder.path], folder.path / "report.html")
        again = f"flwr-mel simulate --resume --run-dir {folder.path}"
        note(f"{cycles} finished cycles are kept: {report}. Continue with: {again}")
