"""``flwr-mel profile``: measure this device's training, energy and link, for its SuperNode to pass on."""

from __future__ import annotations

import json as json_
import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flwr_mel import wire
from flwr_mel._validate import InputError
from flwr_mel.cli.profile.printing import Surroundings, body, here, node_option, progress, remarks, show
from flwr_mel.cli.shared import bad_input, console, note, refuse_given, stop

if TYPE_CHECKING:
    from flwr_mel.profiling import ComputeCosts, EnergyCosts, Meter

EXAMPLES = """Examples:

flwr-mel profile --train app.py:train --samples 2000 --out profile.toml

flwr-mel profile --train app.py:train --samples 2000 --watts 5 --energy-limit 20 --name pi-1

flwr-mel profile --train my.app:train --samples 2000 --link SERVER:9099 --model-bytes 1121760

The function: def train(samples: int, epochs: int). The link's other end: flwr-mel link-server."""

_OPTIONS = {
    "model_bytes and sample_bytes": "--model-bytes and --sample-bytes",
    "force": "--force",
    "budget_s": "--budget",
    "model_bytes": "--model-bytes",
    "sample_bytes": "--sample-bytes",
    "link_seconds": "--link-seconds",
    "link_ca": "--link-ca",
    "tx_watts": "--tx-watts",
    "battery_wh": "--battery-wh",
    "energy_limit_j": "--energy-limit",
    wire.ENERGY_LIMIT_J: "--energy-limit",
    wire.LEARNER: "--name",
    "max_samples": "--max-samples",
    **{
        name: f"--{name}"
        for name in ("train", "samples", "epochs", "repeats", "watts", "meter", "out", "link")
    },
}
_TRAIN, _ENERGY, _LINK, _OUTPUT = "Training", "Energy", "Link", "What to write"


class MeterChoice(StrEnum):
    """Meters by their name on the command line."""

    AUTO = "auto"
    RAPL = "rapl"
    BATTERY = "battery"
    DECLARED = "declared"
    NONE = "none"


def profile(
    train: Annotated[
        str,
        typer.Option(help="Your function, module:function or file.py:function.", rich_help_panel=_TRAIN),
    ],
    samples: Annotated[
        int, typer.Option(help="Samples of the largest run, about a real task's.", rich_help_panel=_TRAIN)
    ],
    epochs: Annotated[int, typer.Option(help="Epochs of the largest run.", rich_help_panel=_TRAIN)] = 4,
    repeats: Annotated[
        int, typer.Option(help="Rounds of runs, if the budget allows.", rich_help_panel=_TRAIN)
    ] = 15,
    budget: Annotated[
        float, typer.Option(help="Seconds for the training runs, about.", rich_help_panel=_TRAIN)
    ] = 30.0,
    meter: Annotated[
        MeterChoice,
        typer.Option(help="auto: the first of the others that works.", rich_help_panel=_ENERGY),
    ] = MeterChoice.AUTO,
    watts: Annotated[
        float | None, typer.Option(help="Declared power while training.", rich_help_panel=_ENERGY)
    ] = None,
    battery_wh: Annotated[
        float | None,
        typer.Option(help="Capacity of the battery, to measure with it.", rich_help_panel=_ENERGY),
    ] = None,
    tx_watts: Annotated[
        float | None,
        typer.Option(help="Power while sending; --watts if that is declared.", rich_help_panel=_ENERGY),
    ] = None,
    energy_limit: Annotated[
        float | None, typer.Option(help="Joules it may spend per cycle.", rich_help_panel=_ENERGY)
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="A flwr-mel link-server.", rich_help_panel=_LINK),
    ] = None,
    link_ca: Annotated[
        Path | None, typer.Option(help="Use TLS and trust these certificates, PEM.", rich_help_panel=_LINK)
    ] = None,
    link_seconds: Annotated[float, typer.Option(help="For each direction.", rich_help_panel=_LINK)] = 2.0,
    model_bytes: Annotated[
        int, typer.Option(help="The model, one way; needs --link.", rich_help_panel=_LINK)
    ] = 0,
    sample_bytes: Annotated[
        int,
        typer.Option(help="One sample, if the server ships them (PL); needs --link.", rich_help_panel=_LINK),
    ] = 0,
    name: Annotated[str, typer.Option(help="What the learner is called.", rich_help_panel=_OUTPUT)] = "",
    max_samples: Annotated[
        int | None, typer.Option(help="Samples it holds or can take.", rich_help_panel=_OUTPUT)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The profile, a .toml file.", rich_help_panel=_OUTPUT)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace it.", rich_help_panel=_OUTPUT)] = False,
    json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout, nothing else.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Measure this device: its own training function, its energy, its link.

    Writes a profile and prints the option with which flower-supernode passes it on.

    Exit codes: 0 done, 2 bad input (the message says what to change), 4 the environment.
    """
    from flwr_mel import profiling  # noqa: PLC0415
    from flwr_mel.devices import Measured  # noqa: PLC0415
    from flwr_mel.profiling.energy import MeterName  # noqa: PLC0415
    from flwr_mel.profiling.files import check_target  # noqa: PLC0415
    from flwr_mel.profiling.link import parse_address  # noqa: PLC0415
    from flwr_mel.profiling.loading import load_function  # noqa: PLC0415

    if (model_bytes or sample_bytes) and link is None:
        stop("--model-bytes and --sample-bytes need a measured rate: give --link HOST:PORT too")
    _refuse_unused(meter, measures_link=link is not None, sends=bool(model_bytes), writes=out is not None)
    with bad_input(_OPTIONS):
        if out is not None:
            check_target(out, force=force)
        # Limits are checked before anything takes time.
        profiling.Profile(Measured(1, 0, 0, 0, 0, 0, energy_limit, max_samples, name))
        address = None if link is None else parse_address(link)
        only = None if meter is MeterChoice.AUTO else MeterName(meter.value)
        chosen, reasons = profiling.choose_meter(watts=watts, battery_wh=battery_wh, only=only)
        # What the function prints must not end up in our answer.
        with redirect_stdout(sys.stderr):
            function = load_function(train)
        rate = None
        if address is not None:  # first, so that a wrong address is noticed at once
            with progress("link", 2 * link_seconds) as tell:
                rate = profiling.measure_link(
                    *address,
                    seconds=link_seconds,
                    ca_file=link_ca,
                    on_block=lambda way, bps: tell(None, f"{way} {bps / 1e6:.3g} Mbit/s"),
                )
        around = Surroundings.now()
        with progress("training", None) as tell, redirect_stdout(sys.stderr):
            compute = profiling.measure_compute(
                function,
                samples=samples,
                epochs=epochs,
                budget_s=budget,
                repeats=repeats,
                counter_j=chosen.counter_j,
                on_run=lambda done, of, run: tell((done, of), f"{run.seconds:.3g} s"),
            )
        costs = _energy(chosen, compute, watts, reasons, strict=only is not None)
        declared = watts if costs.meter == MeterName.DECLARED else None
        sending = tx_watts if tx_watts is not None else (declared or 0.0)
        result = profiling.make_profile(
            compute,
            costs,
            rate,
            model_bytes=model_bytes,
            sample_bytes=sample_bytes,
            tx_watts=sending,
            name=name,
            energy_limit_j=energy_limit,
            max_samples=max_samples,
            notes={"train": train, **here()},
        )
        path = None if out is None else profiling.write_profile(result, out, force=force)
        option = node_option(result, path)
    for remark in remarks(compute, samples, costs.meter, reasons, energy_limit, rate, model_bytes, around):
        note(remark)
    if json:
        typer.echo(json_.dumps(body(result, path, option), indent=2, allow_nan=False))
    else:
        show(console(), result, compute, option, train)


def _refuse_unused(meter: MeterChoice, *, measures_link: bool, sends: bool, writes: bool) -> None:
    """Refuse what would be ignored beside the other options."""
    if not measures_link:
        refuse_given("without --link", "link_ca", "link_seconds", "tx_watts")
    if not sends:
        refuse_given("without --model-bytes: nothing is sent", "tx_watts")
    if not writes:
        refuse_given("without --out", "force")
    if meter not in (MeterChoice.AUTO, MeterChoice.DECLARED):
        refuse_given(f"with --meter {meter}, which does not use it", "watts")
    if meter not in (MeterChoice.AUTO, MeterChoice.BATTERY):
        refuse_given(f"with --meter {meter}, which does not use it", "battery_wh")


def _energy(
    meter: Meter, compute: ComputeCosts, watts: float | None, reasons: list[str], *, strict: bool
) -> EnergyCosts:
    """Read the meter; if it counted too little, do with what was declared."""
    from flwr_mel.profiling import choose_meter, energy_costs  # noqa: PLC0415
    from flwr_mel.profiling.energy import MeterName  # noqa: PLC0415

    try:
        return energy_costs(meter, compute)
    except InputError as error:
        if strict:
            raise
        reasons.append(f"{meter.name}: {error.told(_OPTIONS)}")
        if watts is not None:
            note(f"{reasons[-1]} The declared watts are used")
    only = MeterName.NONE if watts is None else MeterName.DECLARED
    return energy_costs(choose_meter(watts=watts, only=only)[0], compute)
