"""``flwr-mel simulate``: the paper's experiment on Flower's Ray engine."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from flwr_mel._validate import Phrase, complain, number
from flwr_mel.allocation import Infeasible
from flwr_mel.tools.fleetfile import read_fleet
from flwr_mel.tools.question import diagnosis_lines
from flwr_mel.tools.shell import FAILED, INFEASIBLE, INTERRUPTED, bad_input, console, note, stop
from mel_simulation.cli.options import with_run_options
from mel_simulation.ray_session import end_on_sigterm
from mel_simulation.scenario.config import RunConfig

EXAMPLES = (
    "Examples:\n\nflwr-mel simulate\n\nflwr-mel simulate --scheme ha-sync --cycle-time 20 --energy 20\n\n"
    "flwr-mel simulate --mode fl --alpha 0.5 --learners 100 --cycles 5\n\n"
    "flwr-mel simulate --run-dir runs/mine --resume --cycles 20"
)

#: What the library calls some options.
_LIBRARY = {"total_samples": "--samples", "cycle_time_s": "--cycle-time", "energy_limit_j": "--energy"}

app = typer.Typer(add_completion=False)


@app.command(epilog=EXAMPLES)
@with_run_options
def simulate(
    context: typer.Context,
    cpus_per_learner: Annotated[
        float, typer.Option(help="CPUs per working learner; fewer: more actors.")
    ] = 1.0,
    ray_address: Annotated[
        str, typer.Option(envvar="RAY_ADDRESS", help="Join an existing Ray cluster, e.g. 10.0.0.1:6379.")
    ] = "",
    **values: Any,
) -> None:
    """Simulate heterogeneous learners that train together, and write a report.

    Time and energy are virtual: they come from the cost model, never from this machine's clock.
    """
    names = {k: "--" + k.replace("_", "-") for k in [*values, "cpus_per_learner"]} | _LIBRARY
    given = [name for name in values if _is_given(context, name)]
    with bad_input(names):
        config = _configure(values, given)
        _check_cpus(cpus_per_learner, ray_address)
        _run(_complete(config, given), cpus_per_learner, ray_address)


def _configure(values: dict[str, Any], given: list[str]) -> RunConfig:
    """Return the configuration; --resume needs no other option than --run-dir."""
    if values["resume"] and values["run_dir"]:
        from mel_simulation.app.run_dir import RunDir  # noqa: PLC0415

        stored = RunDir(Path(values["run_dir"])).facts().get("config", {})
        before = {key.replace("-", "_"): value for key, value in stored.items()}
        values = {name: values[name] if name in given else before.get(name, values[name]) for name in values}
    return RunConfig(**values)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _check_cpus(cpus_per_learner: float, ray_address: str) -> None:
    """Refuse what would leave the engine without actors, waiting for ever."""
    number("cpus_per_learner", cpus_per_learner, above=0)
    here = os.cpu_count() or 1
    if ray_address and not float(cpus_per_learner).is_integer():
        raise complain("cpus_per_learner", "a whole number on a Ray cluster", cpus_per_learner)
    if cpus_per_learner > here and not ray_address:
        raise complain("cpus_per_learner", f"at most the {here} CPUs of this machine", cpus_per_learner)


def _complete(config: RunConfig, given: list[str]) -> RunConfig:
    """Fill in K of a fleet file, absolute paths and the run directory."""
    from mel_simulation.app.run_dir import RunDir  # noqa: PLC0415

    learners = config.learners
    if config.fleet:
        learners = len(read_fleet(config.fleet))
        if "learners" in given and config.learners != learners:
            rule = f"left out with a fleet: {config.fleet} has {learners} learners"
            raise complain("learners", rule, config.learners)
    if not learners:
        raise complain("learners", "at least 1", 0)
    paths: dict[str, Any] = {
        key: str(Path(getattr(config, key)).resolve())
        for key in ("fleet", "data_dir")
        if getattr(config, key)
    }
    return replace(config, learners=learners, run_dir=str(RunDir.of(config).path.resolve()), **paths)


def _run(config: RunConfig, cpus_per_learner: float, ray_address: str) -> None:
    note("reading the data ...")  # before the imports, which take a moment
    from mel_simulation.app.engine import engine, error_file  # noqa: PLC0415
    from mel_simulation.app.run_dir import RunDir  # noqa: PLC0415
    from mel_simulation.cli.live import follow, summary  # noqa: PLC0415

    start, out, run = time.monotonic(), console(), RunDir(Path(config.run_dir))
    done = _prepare(config, run)
    end_on_sigterm()
    try:
        with engine(config, cpus_per_learner, ray_address) as process:
            follow(out, run, config.cycles, process, done)
            if (run.path / "summary.json").exists():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(60)  # for Ray to end in order
    except KeyboardInterrupt:
        _keep(run)
        stop("interrupted", INTERRUPTED)
    if not (run.path / "summary.json").exists():
        _keep(run)
        file = error_file(config)
        why = file.read_text(encoding="utf-8") if file.exists() else "Flower's engine ended"
        stop(f"the run failed: {why}. Its log: {run.path / 'flower.log'}", FAILED)
    summary(out, run, time.monotonic() - start)


def _prepare(config: RunConfig, run: Any) -> int:
    """Check that the run can work and make its directory; return the cycles that are done already."""
    from mel_simulation.app.run_dir import describe_run  # noqa: PLC0415
    from mel_simulation.scenario.fleet import VirtualFleet  # noqa: PLC0415
    from mel_simulation.scenario.job import check_feasible, dataset_of  # noqa: PLC0415

    logging.getLogger("mel_simulation").addHandler(logging.NullHandler())  # the notice is shown here
    if dataset_of(config).notice:
        note(dataset_of(config).notice)
    try:
        check_feasible(config)
    except Infeasible as infeasible:
        names = list(VirtualFleet(config.learners, config).names)
        stop(f"infeasible: {' '.join(diagnosis_lines(infeasible.diagnosis, names))}", INFEASIBLE)
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        if not config.resume and run.records():
            got = Phrase(f"{run.path}, which holds a run")
            raise complain("run_dir", Phrase("new, or a run to {}", "resume"), got)
        done = run.cycles_done() if config.resume else 0
        if config.resume:
            run.check_same(describe_run(config))
        # A cycle that was cut short between its record and its model is done again.
        run.trim(done)
        (run.path / "summary.json").unlink(missing_ok=True)
    except OSError as error:
        rule = "a directory that can be written to"
        raise complain("run_dir", rule, str(run.path), f"{error.strerror or error}.") from error
    return int(done)


def _keep(run: Any) -> None:
    """Write a report of a run that was cut short, and say how to continue it."""
    from flwr_mel.tools.report import write_report  # noqa: PLC0415

    cycles = len(run.records())
    if cycles:
        report = write_report([run.path], run.path / "report.html")
        again = f"flwr-mel simulate --resume --run-dir {run.path}"
        note(f"{cycles} finished cycles are kept: {report}. Continue with: {again}")
