"""One run of ``flwr-mel simulate``, from its options to its summary."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr_mel._validate import Phrase, complain
from flwr_mel.allocation import Infeasible
from flwr_mel.tools.fleetfile import read_fleet
from flwr_mel.tools.question import diagnosis_lines
from flwr_mel.tools.shell import FAILED, INFEASIBLE, INTERRUPTED, console, note, stop
from mel_simulation.app.engine import engine, error_file
from mel_simulation.app.run_dir import RunDir, describe_run
from mel_simulation.cli.live import conclude, follow
from mel_simulation.ray_session import end_on_sigterm
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.fleet import names
from mel_simulation.scenario.job import check_feasible, dataset_of

#: Seconds that Ray may take to end in order.
_PATIENCE_S = 60.0


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
        stored = RunDir(Path(values["run_dir"])).facts().get("config", {})
        before = {name: stored.get(name.replace("_", "-"), value) for name, value in values.items()}
        values = {**before, **given}
    config = RunConfig(**values)
    if config.fleet and "learners" not in given:
        config = replace(config, learners=len(read_fleet(config.fleet)))
    if not config.learners:
        raise complain("learners", "at least 1", 0)
    paths = {key: getattr(config, key) for key in ("fleet", "data_dir")}
    absolute: dict[str, Any] = {key: str(Path(path).resolve()) for key, path in paths.items() if path}
    return replace(config, run_dir=str(RunDir.of(config).path.resolve()), **absolute)


def run(config: RunConfig, cpus_per_learner: float, ray_address: str) -> None:
    """Run the engine, show its cycles, and end the command with the exit code of what happened."""
    start, out, folder = time.monotonic(), console(), RunDir(Path(config.run_dir))
    done = _prepare(config, folder)
    end_on_sigterm()
    try:
        with engine(config, cpus_per_learner, ray_address) as process:
            follow(out, folder, config.cycles, process, done)
            if folder.summary.exists():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE_S)
    except KeyboardInterrupt:
        _keep(folder)
        stop("interrupted", INTERRUPTED)
    if not folder.summary.exists():
        _keep(folder)
        file = error_file(config)
        why = file.read_text(encoding="utf-8") if file.exists() else "Flower's engine ended"
        stop(f"the run failed: {why}. Its log: {folder.path / 'flower.log'}", FAILED)
    conclude(out, folder, time.monotonic() - start)


def _prepare(config: RunConfig, folder: RunDir) -> int:
    """Check that the run can work and make its directory; return the cycles that are done already."""
    note("reading the data ...")
    if dataset_of(config).notice:
        note(dataset_of(config).notice)
    try:
        check_feasible(config)
    except Infeasible as infeasible:
        stop(f"infeasible: {' '.join(diagnosis_lines(infeasible.diagnosis, names(config)))}", INFEASIBLE)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        if config.resume:
            folder.check_same(describe_run(config))
            folder.drop_unfinished()
        elif folder.records():
            got = Phrase(f"{folder.path}, which holds a run")
            raise complain("run_dir", Phrase("new, or a run to {}", "resume"), got)
        folder.summary.unlink(missing_ok=True)
    except OSError as error:
        rule = "a directory that can be written to"
        raise complain("run_dir", rule, str(folder.path), f"{error.strerror or error}.") from error
    return folder.cycles_done() if config.resume else 0


def _keep(folder: RunDir) -> None:
    """Write a report of a run that was cut short, and say how to continue it."""
    from flwr_mel.tools.report import write_report  # noqa: PLC0415 (not needed otherwise)

    if cycles := len(folder.records()):
        report = write_report([folder.path], folder.path / "report.html")
        again = f"flwr-mel simulate --resume --run-dir {folder.path}"
        note(f"{cycles} finished cycles are kept: {report}. Continue with: {again}")
