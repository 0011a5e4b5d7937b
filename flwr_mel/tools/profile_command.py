"""``flwr-mel profile``: measure this device's training and energy, for its SuperNode to pass on."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from flwr_mel import __version__, wire
from flwr_mel._files import atomically
from flwr_mel._validate import complain, count, number
from flwr_mel.cycle.measure import Capability, label_of
from flwr_mel.tools import shell
from flwr_mel.tools.meters import Meter, MeterName, choose_meter, energy_costs
from flwr_mel.tools.profiling import ComputeCosts, load_function, measure_compute

_OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in ("train", "samples", "epochs", "repeats", "watts", "meter", "out",
                 "model_bytes", "sample_bytes", "tx_watts", "rate_bps")
}  # fmt: skip
_OPTIONS |= {"budget_s": "--budget", wire.ENERGY_LIMIT_J: "--energy-limit", wire.LEARNER: "--name"}
_OPTIONS |= {wire.MAX_SAMPLES: "--max-samples"}


def _part(panel: str, text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


def profile(
    train: Annotated[str, _part("Training", "Your function, module:function or file.py:function.")],
    samples: Annotated[int, _part("Training", "Samples of the largest run, about a real task's.")],
    epochs: Annotated[int, _part("Training", "Epochs of the largest run.")] = 4,
    repeats: Annotated[int, _part("Training", "Rounds of runs, if the budget allows.")] = 15,
    budget: Annotated[float, _part("Training", "Seconds for the training runs, about.")] = 30.0,
    meter: Annotated[MeterName, _part("Energy", "auto: the first that works.")] = MeterName.AUTO,
    watts: Annotated[float | None, _part("Energy", "Declared power while training.")] = None,
    energy_limit: Annotated[float | None, _part("Energy", "Joules it may spend per round.")] = None,
    rate_bps: Annotated[float | None, _part("Link", "Bits per second to the server, e.g. by iperf3.")] = None,
    model_bytes: Annotated[int, _part("Link", "The model, one way; needs --rate-bps.")] = 0,
    sample_bytes: Annotated[
        int, _part("Link", "One sample, if the server ships them; needs --rate-bps.")
    ] = 0,
    tx_watts: Annotated[float, _part("Link", "Power while sending.")] = 0.0,
    name: Annotated[str, _part("Output", "What the device is called.")] = "",
    max_samples: Annotated[int | None, _part("Output", "Samples it holds or can take.")] = None,
    out: Annotated[Path | None, _part("Output", "The profile, a new .toml file.")] = None,
    json: Annotated[bool, _part("Output", "JSON on stdout, nothing else.", "--json")] = False,
) -> None:
    """Measure this device: its own training function, and its energy.

    The function is def train(samples: int, epochs: int). The command writes a
    profile and prints the option with which flower-supernode passes it on.

    Exit codes: 0 done, 2 bad input (the message says what to change), 4 the
    environment.

    Try:

    flwr-mel profile --train app.py:train --samples 2000 --out profile.toml

    flwr-mel profile --train app.py:train --samples 2000 --watts 5 --energy-limit 20 --name pi-1

    flwr-mel profile --train my.app:train --samples 2000 --rate-bps 2e7 --model-bytes 1121760
    """
    if rate_bps is None:
        shell.refuse_given("without --rate-bps", "model_bytes", "sample_bytes", "tx_watts")
    if meter not in (MeterName.AUTO, MeterName.DECLARED):
        shell.refuse_given(f"with --meter {meter}, which does not use it", "watts")
    with shell.bad_input(_OPTIONS):
        if out is not None:
            _check_target(out)
        limits = {
            wire.ENERGY_LIMIT_J: energy_limit,
            wire.MAX_SAMPLES: max_samples,
            wire.LEARNER: name or None,
        }
        limits = {key: value for key, value in limits.items() if value is not None}
        Capability.parse({**dict.fromkeys(wire.COEFFICIENTS, 1.0), **limits})  # before anything takes time
        if wire.LEARNER in limits and label_of(limits) is None:
            raise complain(wire.LEARNER, "a printable name of at most 200 characters", name)
        chosen, reasons = choose_meter(meter, watts)
        busy = os.getloadavg()[0]
        with redirect_stdout(sys.stderr):  # what the function prints must not end up in our answer
            function = load_function(train)
            compute = _measure(
                function, chosen, samples=samples, epochs=epochs, budget_s=budget, repeats=repeats
            )
        costs, detail = energy_costs(chosen, compute)
        moved = _transfers(rate_bps, model_bytes, sample_bytes, tx_watts)
        six = [a + b for a, b in zip((compute.c2, compute.c1, compute.c0, *costs), moved, strict=True)]
        words = {**limits, **dict(zip(wire.COEFFICIENTS, six, strict=True))}
        Capability.parse(words)
        document = {**words, "measured": _about(compute, train, str(chosen.name), detail)}
        path = None if out is None else _write(document, out)
    option = (
        f"--node-config {shlex.quote(_node_config(words if path is None else {wire.PROFILE: str(path)}))}"
    )
    for remark in _remarks(compute, samples, busy, chosen.name, reasons):
        shell.note(remark)
    if json:
        body = {"flwr_mel": __version__, "profile": words, "measured": document["measured"]}
        shell.print_json({**body, "file": path and str(path), "option": option})
    else:
        _show(document, option)


def _measure(function: Any, meter: Meter, **settings: Any) -> ComputeCosts:
    """Time the function, with its progress on stderr."""
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as shown:
        task = shown.add_task("training", total=None)
        return measure_compute(
            function,
            counter_j=meter.counter_j,
            on_run=lambda done, of, _: shown.update(task, completed=done, total=of),
            **settings,
        )


def _transfers(rate_bps: float | None, model_bytes: int, sample_bytes: int, tx_watts: float) -> list[float]:
    """Return what transfers add to the coefficients: the model travels both ways, sending costs energy."""
    if rate_bps is None:
        return [0.0] * 6
    rate, sending = number("rate_bps", rate_bps, above=0), number("tx_watts", tx_watts, least=0)
    model_s, sample_s = (
        8 * count("model_bytes", model_bytes) / rate,
        8 * count("sample_bytes", sample_bytes) / rate,
    )
    return [0.0, sample_s, 2 * model_s, 0.0, 0.0, sending * model_s]


def _about(compute: ComputeCosts, train: str, meter: str, detail: str) -> dict[str, Any]:
    """Say how it was measured, for people; no decision depends on it."""
    return {
        "runs": len(compute.runs),
        "largest-epochs": compute.epochs,
        "largest-samples": compute.samples,
        "relative-error": compute.error,
        "meter": meter,
        "meter-detail": detail,
        "train": train,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "flwr-mel": __version__,
    }


def _check_target(path: Path) -> None:
    """Refuse, before anything is measured, a file that could not be written."""
    if path.suffix != ".toml":
        raise complain("out", "a file name that ends in .toml", str(path))
    if path.exists():
        raise complain("out", "a new file", f"{path}, which exists", "Remove it, or choose another name.")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise complain("out", "in a directory that can be written to", str(path))


def _write(document: dict[str, Any], path: Path) -> Path:
    import tomli_w  # noqa: PLC0415 - comes with flwr

    text = "# Written by flwr-mel profile: c in seconds, g in joules, per sample and epoch, sample, round.\n"
    try:
        atomically(path, lambda file: file.write(text + tomli_w.dumps(document)))
    except OSError as error:
        raise complain("out", "a file that can be written", str(path), f"{error.strerror}.") from error
    return path.absolute()


def _node_config(words: dict[str, Any]) -> str:
    """Write pairs for Flower's parser, which takes text between two equal quotes and hands it to TOML."""
    parts = []
    for key, value in words.items():
        quote = "'" if '"' in str(value) or "\\" in str(value) else '"'
        if isinstance(value, str) and quote in value:
            rule = "without single quotes beside double ones or backslashes"
            raise complain("a name or path in --node-config", rule, value)
        parts.append(f"{key}={quote}{value}{quote}" if isinstance(value, str) else f"{key}={value!r}")
    return " ".join(parts)


def _remarks(
    compute: ComputeCosts, samples: int, busy: float, meter: MeterName, reasons: list[str]
) -> Iterator[str]:
    """Say what people should know about the numbers, beside the numbers."""
    cores = os.cpu_count() or 1
    if busy > cores:
        yield f"the device was busy before it was measured (load {busy:.1f} on {cores} cores): measure again"
    if os.environ.get("OMP_NUM_THREADS") != "1" and cores > 1:
        yield "numerical libraries used all cores; devices train with one thread: set OMP_NUM_THREADS=1"
    if compute.samples < samples:
        yield f"{samples} samples do not fit into --budget: measured with up to {compute.samples}"
    if compute.error > 0.1:
        yield f"runs differ from the fit by {compute.error:.0%}: is the device busy with something else?"
    if meter is MeterName.NONE:
        yield "; ".join(["energy is not measured and counts as 0: energy limits have no effect", *reasons])


def _show(document: dict[str, Any], option: str) -> None:
    out, m = shell.console(), document["measured"]
    detail = f"{m['runs']} runs of up to {m['largest-epochs']} epochs on {m['largest-samples']:,} samples"
    shell.title(out, f"Profile of {document.get(wire.LEARNER, 'this device')}, {m['train']}", detail)
    table = shell.grid("<", "value", "meaning<")
    for k, key in enumerate(wire.COEFFICIENTS):
        unit, per = ("seconds", "joules")[k // 3], ("per sample and epoch", "per sample", "per round")[k % 3]
        table.add_row(key[-2:], f"{document[key]:.4g}", f"{unit} {per}")
    out.print(table)
    out.print()
    energy = f"{m['meter']}: {m['meter-detail']}"
    fitted = f"runs within {m['relative-error']:.1%} of it"
    shell.facts(
        out, [("energy", energy), ("fit", fitted), ("use it", "flower-supernode ... with this option:")]
    )
    typer.echo(option)  # not wrapped: it is meant to be copied
