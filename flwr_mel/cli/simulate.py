"""``flwr-mel simulate``: the paper's experiment on Flower's Ray engine."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from flwr_mel._validate import complain, number
from flwr_mel.allocation.solution import Infeasible
from flwr_mel.cli.shared import BUG, INFEASIBLE, INTERRUPTED, bad_input, console, note, stop

EXAMPLES = (
    "Examples:\n\nflwr-mel simulate\n\nflwr-mel simulate --scheme ha-sync --cycle-time 20 --energy 20\n\n"
    "flwr-mel simulate --mode fl --alpha 0.5 --learners 100 --cycles 5\n\n"
    "flwr-mel simulate --run-dir runs/mine --resume --cycles 20"
)

Option = typer.Option


#: Arguments of the command that are no part of the run configuration.
_NOT_THE_RUNS = ("context", "cpus_per_learner", "ray_address")


def simulate(
    context: typer.Context,
    scheme: Annotated[str, Option(help="ha-asyn, ha-sync, hu-asyn, hu-sync or ha-progress.")] = "ha-asyn",
    mode: Annotated[str, Option(help="pl: the server ships samples. fl: data stay.")] = "pl",
    cycles: Annotated[int, Option(help="Global cycles.")] = 12,
    cycle_time: Annotated[float, Option(help="T, seconds.")] = 10.0,
    energy: Annotated[float, Option(help="Mean energy limit per learner and cycle, joules; 0: none.")] = 10.0,
    energy_spread: Annotated[float, Option(help="E_k is energy plus or minus up to this.")] = 2.5,
    staleness: Annotated[int, Option(help="c: largest difference in epochs (asynchronous schemes).")] = 2,
    solver: Annotated[str, Option(help="exact or suggest-improve.")] = "exact",
    handout: Annotated[str, Option(help="proportional, even or strongest-first.")] = "proportional",
    exclude: Annotated[str, Option(help="infeasible: only who cannot work; optimal: stragglers too.")] = (
        "infeasible"
    ),
    learners: Annotated[int, Option(help="Virtual learners K.")] = 20,
    fleet: Annotated[str, Option(help="A TOML or CSV fleet instead of the paper's; K is its size.")] = "",
    mobility: Annotated[float, Option(help="Metres that learners move between cycles.")] = 0.0,
    dataset: Annotated[str, Option(help="mnist or fashion-mnist.")] = "mnist",
    data_dir: Annotated[str, Option(help="Directory of idx files; else cache, download or subset.")] = "",
    alpha: Annotated[float, Option(help="FL: Dirichlet concentration of labels; 0: IID.")] = 0.0,
    samples: Annotated[int, Option(help="Samples per cycle; 0: all, in FL half.")] = 0,
    min_samples: Annotated[int, Option(help="Least batch; 0: 100 per 60,000 samples.")] = 0,
    sample_cost: Annotated[float, Option(help="Cost of a sample in the paper's; 0: automatic.")] = 0.0,
    batch_size: Annotated[int, Option(help="Mini-batch of the learners' SGD; 0: 64, on the subset 16.")] = 0,
    learning_rate: Annotated[float, Option(help="Of the learners' SGD.")] = 0.04,
    target_accuracy: Annotated[float, Option(help="Stop there; 0: never.")] = 0.0,
    seed: Annotated[int, Option(help="One seed, one result.")] = 0,
    api: Annotated[str, Option(help="Flower's strategy API: message or classic.")] = "message",
    run_dir: Annotated[str, Option(help="Where results go; default: a new directory below ./runs.")] = "",
    resume: Annotated[bool, Option("--resume", help="Go on with the run in --run-dir, as it began.")] = False,
    cpus_per_learner: Annotated[float, Option(help="CPUs per working learner; fewer: more actors.")] = 1.0,
    ray_address: Annotated[
        str, Option(envvar="RAY_ADDRESS", help="Join an existing Ray cluster, e.g. 10.0.0.1:6379.")
    ] = "",
) -> None:
    """Simulate heterogeneous learners that train together, and leave a report.

    Time and energy are virtual: they come from the cost model, never from this machine's clock.
    """
    values: dict[str, Any] = {k: v for k, v in locals().items() if k not in _NOT_THE_RUNS}
    try:
        from simulation.config import RunConfig  # noqa: PLC0415
    except ImportError as error:
        stop(f"the simulation needs more packages ({error}): pip install 'flwr-mel[simulation]'", BUG)
    options = {k: "--" + k.replace("_", "-") for k in [*values, "cpus_per_learner"]}
    with bad_input(options):
        if resume and run_dir:
            values = _remembered(run_dir) | {k: v for k, v in values.items() if _is_given(context, k)}
        config = RunConfig(**values)
        _check_cpus(cpus_per_learner, ray_address)
    # From here on messages are about more than options: only names that are no words are translated.
    with bad_input({k: v for k, v in options.items() if "_" in k}):
        _run(_complete(config), cpus_per_learner, ray_address)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _remembered(run_dir: str) -> dict[str, Any]:
    """Return the configuration that a run began with: --resume needs no other option."""
    from simulation.config import RunConfig  # noqa: PLC0415
    from simulation.run_dir import RunDir  # noqa: PLC0415

    names = {key: key.replace("-", "_") for key in RunConfig().as_dict()}
    stored = RunDir(Path(run_dir)).facts().get("config", {})
    return {names[key]: value for key, value in stored.items() if key in names}


def _check_cpus(cpus_per_learner: float, ray_address: str) -> None:
    """Refuse what would leave the engine without actors, waiting for ever."""
    number("cpus_per_learner", cpus_per_learner, above=0)
    here = os.cpu_count() or 1
    if ray_address and not float(cpus_per_learner).is_integer():
        raise complain("cpus_per_learner", "a whole number on a Ray cluster", cpus_per_learner)
    if cpus_per_learner > here and not ray_address:
        raise complain("cpus_per_learner", f"at most the {here} CPUs of this machine", cpus_per_learner)


def _complete(config: Any) -> Any:
    """Settle what is left open: K of a fleet file, absolute paths, the run directory."""
    from flwr_mel.learners.fleet_files import read_fleet  # noqa: PLC0415
    from simulation.run_dir import RunDir  # noqa: PLC0415

    learners = len(read_fleet(config.fleet)) if config.fleet else config.learners
    if not learners:
        raise ValueError("--learners must be at least 1, got 0")
    paths = {
        key: str(Path(getattr(config, key)).resolve())
        for key in ("fleet", "data_dir")
        if getattr(config, key)
    }
    return replace(config, learners=learners, run_dir=str(RunDir.of(config).path.resolve()), **paths)


def _run(config: Any, cpus_per_learner: float, ray_address: str) -> None:
    from simulation.launch import Engine, LaunchError, complete  # noqa: PLC0415
    from simulation.live import follow, summary  # noqa: PLC0415
    from simulation.run_dir import RunDir  # noqa: PLC0415
    from simulation.task import dataset_of  # noqa: PLC0415

    start, out, run = time.monotonic(), console(), RunDir(Path(config.run_dir))
    done = _prepare(config, run)
    engine = Engine(config.learners, cpus_per_learner, ray_address, dataset_of(config).embedded)
    try:
        trouble = complete(
            config.as_dict(),
            engine,
            run.path / "flower.log",
            lambda alive: follow(out, run, config.cycles, alive, done),
        )
    except LaunchError as error:
        stop(str(error), BUG)
    except KeyboardInterrupt:
        _keep(run)
        stop("interrupted", INTERRUPTED)
    if trouble:
        _keep(run)
        stop(f"the run failed: {trouble}. Its log: {run.path / 'flower.log'}", BUG)
    summary(out, run, time.monotonic() - start)


def _prepare(config: Any, run: Any) -> int:
    """Check that the run can work and make its directory; return the cycles that are done already."""
    from simulation.fleet import VirtualFleet  # noqa: PLC0415
    from simulation.rehearsal import rehearse  # noqa: PLC0415
    from simulation.run_dir import describe_run  # noqa: PLC0415
    from simulation.task import dataset_of  # noqa: PLC0415

    logging.getLogger("simulation").addHandler(logging.NullHandler())  # we show the notice ourselves
    if dataset_of(config).notice:
        note(dataset_of(config).notice)
    try:
        rehearse(config, config.learners)
    except Infeasible as infeasible:
        stop(str(infeasible).replace("total_samples", "--samples"), INFEASIBLE)
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        if not config.resume and run.records():
            raise ValueError(
                f"run_dir must be new or be resumed with --resume, got {run.path}, which holds a run"
            )
        done = run.cycles_done() if config.resume else 0
        if config.resume:
            fleet = VirtualFleet(config.learners, config).devices(1)
            run.check_same(describe_run(config, fleet, dataset_of(config)))
        # A cycle that was cut short between its record and its model is done again.
        run.trim(done)
    except OSError as error:
        raise ValueError(f"run_dir must be a directory that can be written to: {error}") from None
    return int(done)


def _keep(run: Any) -> None:
    """Say what is left of a run that did not end well, with a report of it."""
    from flwr_mel.report import write_report  # noqa: PLC0415

    cycles = len(run.records())
    if not cycles:
        return
    report = write_report([run.path], run.path / "report.html")
    again = f"flwr-mel simulate --resume --run-dir {run.path}"
    note(f"what was finished is kept ({cycles} cycles): {report}. Go on with: {again}")
