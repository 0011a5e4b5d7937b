"""What ``flwr-mel profile`` shows: progress, remarks, the table, JSON, and the option to copy."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from flwr_mel import __version__
from flwr_mel.cli.drawing import facts, title

if TYPE_CHECKING:
    from flwr_mel.profiling import ComputeCosts, LinkRate, Profile


def node_option(result: Profile, path: Path | None) -> str:
    """Return the option for flower-supernode, quoted for a shell.

    Parameters
    ----------
    result : Profile
        What was measured.
    path : Path, optional
        Where it was written.
    """
    from flwr_mel.profiling.profile import quoted  # noqa: PLC0415
    from flwr_mel.profiling.reader import PROFILE  # noqa: PLC0415

    text = result.node_config() if path is None else f"{PROFILE}={quoted(str(path))}"
    return f"--node-config {shlex.quote(text)}"


def here() -> dict[str, str]:
    """Say when and where a profile is measured."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "flwr-mel": __version__,
    }


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else a device does while it is measured.

    Parameters
    ----------
    load : float
        Processes that want to run, by the system's account of the last minute.
    cores : int
        Processors.
    threads : str, optional
        OMP_NUM_THREADS; None: numerical libraries use as many as there are cores.
    """

    load: float
    cores: int
    threads: str | None

    @classmethod
    def now(cls) -> Surroundings:
        """Look around."""
        return cls(os.getloadavg()[0], os.cpu_count() or 1, os.environ.get("OMP_NUM_THREADS"))


@contextmanager
def progress(what: str, seconds: float | None) -> Iterator[Callable[[tuple[int, int] | None, str], None]]:
    """Show on stderr how far it is; the function that it yields is told what was just measured.

    Parameters
    ----------
    what : str
        Shown in front.
    seconds : float, optional
        About how long it takes, if that is known.
    """
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.fields[last]}"), TimeElapsedColumn())
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as shown:
        task = shown.add_task(what, total=None, last=f"about {seconds:g} s" if seconds else "warming up")

        def tell(share: tuple[int, int] | None, last: str) -> None:
            if share is None:
                shown.update(task, last=last)
            else:
                shown.update(task, completed=share[0], total=share[1], last=last)

        yield tell


def remarks(
    compute: ComputeCosts,
    samples: int,
    meter: str,
    reasons: list[str],
    energy_limit: float | None,
    rate: LinkRate | None,
    model_bytes: int,
    around: Surroundings | None = None,
) -> Iterator[str]:
    """Say what people should know about the numbers, beside the numbers."""
    if around is not None and around.load > around.cores:
        yield (
            f"the device was busy before it was measured (load {around.load:.1f} on {around.cores} cores): "
            "what was measured is slower than the device. End other work and measure again"
        )
    if around is not None and around.threads != "1" and around.cores > 1:
        yield (
            "numerical libraries used as many threads as there are cores, which other work disturbs; devices "
            "train with one (deploy/supernode.sh). Measure with OMP_NUM_THREADS=1"
        )
    if compute.samples < samples:
        yield (
            f"{samples} samples do not fit into --budget: measured with up to {compute.samples}. "
            "Raise --budget if larger tasks behave differently"
        )
    if compute.error > 0.1:
        yield f"runs differ from the fit by {compute.error:.0%}: is the device busy with something else?"
    if meter == "none":
        limit = " --energy-limit has no effect then." if energy_limit is not None else ""
        yield f"energy is not measured, g2, g1 and g0 are 0.{limit} {'; '.join(reasons)}"
    if rate is not None and not model_bytes:
        yield "without --model-bytes the transfer of the model is not in c0"


def body(result: Profile, path: Path | None, option: str) -> dict[str, Any]:
    """Return the answer for programs."""
    return {
        "flwr_mel": __version__,
        "profile": result.words(),
        "measured": dict(result.measured),
        "file": None if path is None else str(path),
        "node_config": result.node_config(),
        "option": option,
    }


def show(out: Console, result: Profile, compute: ComputeCosts, option: str, train: str) -> None:
    """Print the answer for people."""
    m = result.measured
    detail = f"{m['runs']} runs of up to {compute.epochs} epochs on {compute.samples:,} samples"
    title(out, f"Profile of {result.device.name or 'this device'}, {train}", detail)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for column, side in (("", "left"), ("value", "right"), ("spread", "right"), ("meaning", "left")):
        table.add_column(column, justify="right" if side == "right" else "left", no_wrap=True)
    words = ("per sample and epoch", "per sample", "per cycle")
    for k, key in enumerate(("c2", "c1", "c0", "g2", "g1", "g0")):
        unit = "seconds" if k < 3 else "joules"
        mad = m.get(f"{key}-spread")
        shown = "" if mad is None else f"{mad:.2g}"
        table.add_row(
            Text(key, "bold"), f"{getattr(result.device, key):.4g}", shown, f"{unit} {words[k % 3]}"
        )
    for key, label in (("up", "sending"), ("down", "receiving")):
        if f"{key}-bps" in m:
            value, mad = (float(m[f"{key}-{x}bps"]) / 1e6 for x in ("", "spread-"))
            table.add_row(Text(key, "bold"), f"{value:.4g}", f"{mad:.2g}", f"Mbit/s {label}")
    out.print(table)
    out.print()
    pairs = [
        ("energy", f"{m['meter']}: {m['meter-detail']}"),
        ("fit", f"runs within {compute.error:.1%} of it"),
    ]
    if "round-trip-s" in m:
        pairs.append(("round trip", f"{float(m['round-trip-s']) * 1e3:.3g} ms"))
    facts(out, [*pairs, ("use it", "flower-supernode ... with this option:")])
    # Not wrapped: it is meant to be copied.
    typer.echo(option)
