"""``flwr-mel profile``: measure this device's training and energy, for its SuperNode to pass on."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer
from rich.console import Console
from rich.progress import Progress

from flwr_mel import __version__, wire
from flwr_mel._files import atomically
from flwr_mel._text import message
from flwr_mel._validate import Phrase, complain, number
from flwr_mel.cycle.reports import declared
from flwr_mel.tools import shell
from flwr_mel.tools.profiling import ComputeCosts, Three, fit, load_function, measure_compute

#: Runs that differ from the fit by more than this share are worth a note.
_LARGE_ERROR = 0.1


def _part(panel: str, text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


def profile(
    train: Annotated[str, _part("Training", "Your training function, as module:function.")],
    samples: Annotated[int, _part("Training", "Samples of the largest run, about those of a real task.")],
    epochs: Annotated[int, _part("Training", "Epochs of the largest run.")] = 4,
    budget: Annotated[float, _part("Training", "Approximate seconds for all training runs.")] = 30.0,
    watts: Annotated[float | None, _part("Energy", "Power while training, instead of a measurement.")] = None,
    transfer: Annotated[float, _part("Link", "Seconds to receive and send the model, in total.")] = 0.0,
    out: Annotated[Path, _part("Output", "The profile to write, a new .toml file.")] = Path("profile.toml"),
    json: Annotated[bool, _part("Output", "Print only JSON on stdout.", "--json")] = False,
) -> None:
    """Measure the time and energy of a training function on this device.

    The function has the form train(samples: int, epochs: int). The command writes a
    profile and prints the option with which flower-supernode passes it on.
    Energy is measured with zeus (extra: energy) unless --watts states it.

    Exit codes: 0 done, 2 bad input (the message says what to change), 4 the
    environment.

    Try:

    flwr-mel profile --train app:train --samples 2000

    flwr-mel profile --train app:train --samples 2000 --watts 5 --json

    flwr-mel profile --train my.app:train --samples 2000 --transfer 0.9 --out /srv/mel/profile.toml
    """
    with shell.bad_input({"budget_s": "--budget"}):
        # Everything that can be wrong is checked before anything takes time.
        _check_target(out)
        if watts is not None:
            number("watts", watts, above=0)
        number("transfer", transfer, least=0)
        counter, meter = _counter()
        with redirect_stdout(sys.stderr):  # what the function prints must not end up in our answer
            compute = _measure(load_function(train), counter, samples=samples, epochs=epochs, budget_s=budget)
        joules, source = _energy(compute, watts, meter)
        six = (compute.c2, compute.c1, compute.c0 + transfer, *joules)
        words = dict(zip(wire.COEFFICIENTS, six, strict=True))
        declared(words, None, None)
        document = {**words, "measured": _about(compute, train, source)}
        _write(document, out)
    pair = f'{wire.PROFILE}="{out.absolute()}"'
    option = f"--node-config {shlex.quote(pair)}"
    for remark in _remarks(compute, samples, budget):
        shell.note(remark)
    if not any(joules):
        shell.note(f"energy counts as 0 and energy limits have no effect: {source}. Declare it with --watts")
    if json:
        body = {"flwr_mel": __version__, "profile": words, "measured": document["measured"]}
        shell.print_json({**body, "file": str(out.absolute()), "option": option})
    else:
        _show(document, option)


def _measure(function: Any, counter_j: Callable[[], float | None], **settings: Any) -> ComputeCosts:
    """Time the function, with its progress on stderr."""
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as shown:
        task = shown.add_task("training", total=None)
        return measure_compute(
            function,
            counter_j=counter_j,
            on_run=lambda done, of: shown.update(task, completed=done, total=of),
            **settings,
        )


def _counter() -> tuple[Callable[[], float | None], str]:
    """Return a counter of joules and what it counts; without one, a counter of None and why.

    Packages that estimate where the hardware has no counters are not used: a profile must not call that
    a measurement.
    """
    try:
        device = import_module("zeus.device")
        cpus = device.get_cpus()
        packages = range(len(cpus))
        read = [cpus.get_total_energy_consumption(k) for k in packages]
    except ImportError:
        return lambda: None, "not measured without zeus; in a clone of flwr_mel: pip install '.[energy]'"
    except Exception as error:  # zeus has many kinds: no counters, no permission, no daemon
        return lambda: None, f"not measured, {message(error).rstrip('.')}"
    if not read:
        return lambda: None, "not measured, the processor has no counters"
    try:
        gpus: Any = device.get_gpus()
        cards = [k for k in range(len(gpus)) if gpus.supports_get_total_energy_consumption(k)]
    except Exception:
        cards = []

    def counter() -> float:
        now = [cpus.get_total_energy_consumption(k) for k in packages]
        millijoules = sum(x.cpu_mj + (x.dram_mj or 0.0) for x in now)
        return float(millijoules + sum(gpus.get_total_energy_consumption(k) for k in cards)) / 1e3

    return counter, f"counters of {len(read)} processors and {len(cards)} GPUs"


def _energy(compute: ComputeCosts, watts: float | None, meter: str) -> tuple[Three, str]:
    """Return g2, g1, g0 and where they come from: declared watts, else the counter, else zeros."""
    if watts is not None:
        return (
            watts * compute.c2,
            watts * compute.c1,
            watts * compute.c0,
        ), f"declared, {watts:.4g} W while training"
    joules = [run.joules for run in compute.runs if run.joules is not None]
    if not joules:
        return (0.0, 0.0, 0.0), meter
    if sum(joules) <= 0:
        return (0.0, 0.0, 0.0), f"not measured, {meter} did not rise"
    return fit([(run.epochs, run.samples) for run in compute.runs], joules), meter


def _about(compute: ComputeCosts, train: str, energy: str) -> dict[str, Any]:
    """Say how it was measured, for people; no decision depends on it."""
    return {
        "runs": len(compute.runs),
        "largest-epochs": compute.epochs,
        "largest-samples": compute.samples,
        "relative-error": compute.error,
        "energy": energy,
        "train": train,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "flwr-mel": __version__,
    }


def _check_target(path: Path) -> None:
    """Refuse a file that could not be written, or whose path does not fit into a node config."""
    if path.suffix != ".toml":
        raise complain("out", "a file name that ends in .toml", str(path))
    if path.exists():
        got = Phrase(f"{path}, which exists")
        raise complain("out", "a new file", got, "Remove it, or choose another name.")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise complain("out", "in a directory that can be written to", str(path))
    if {'"', "\\"} & set(str(path.absolute())):
        raise complain("out", "a path without double quotes and backslashes", str(path.absolute()))


def _write(document: dict[str, Any], path: Path) -> None:
    text = "# Written by flwr-mel profile: c in seconds, g in joules, per sample and epoch, sample, round.\n"
    try:
        atomically(path, lambda file: file.write(text + tomli_w.dumps(document)))
    except OSError as error:
        raise complain("out", "a file that can be written", str(path), f"{error.strerror}.") from error


def _remarks(compute: ComputeCosts, samples: int, budget: float) -> Iterator[str]:
    """Say what people should know about the numbers, beside the numbers."""
    if os.environ.get("OMP_NUM_THREADS") != "1" and (os.cpu_count() or 1) > 1:
        yield "numerical libraries used all cores; devices train with one thread: set OMP_NUM_THREADS=1"
    if compute.samples < samples:
        yield f"{samples} samples do not fit into --budget: measured with up to {compute.samples}"
    spent = sum(run.seconds for run in compute.runs)
    if spent > budget:
        yield f"the runs took {spent:.0f} s instead of {budget:g}: the device became slower, measure again"
    if compute.error > _LARGE_ERROR:
        yield f"runs differ from the fit by {compute.error:.0%}: is the device busy with something else?"


def _show(document: dict[str, Any], option: str) -> None:
    out, m = shell.console(), document["measured"]
    detail = f"{m['runs']} runs of up to {m['largest-epochs']} epochs on {m['largest-samples']:,} samples"
    shell.title(out, f"Profile of this device, {m['train']}", detail)
    table = shell.grid("<", "value", "meaning<")
    for k, key in enumerate(wire.COEFFICIENTS):
        unit, per = ("seconds", "joules")[k // 3], ("per sample and epoch", "per sample", "per round")[k % 3]
        table.add_row(key[-2:], f"{document[key]:.4g}", f"{unit} {per}")
    out.print(table)
    out.print()
    fitted = f"runs within {m['relative-error']:.1%} of it"
    use = "flower-supernode ... with this option:"
    shell.facts(out, [("energy", m["energy"]), ("fit", fitted), ("use it", use)])
    typer.echo(option)  # not wrapped: it is meant to be copied
