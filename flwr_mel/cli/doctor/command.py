"""``flwr-mel doctor``: whether a device is ready to take part."""

from __future__ import annotations

import json as json_
import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flwr_mel._validate import complain
from flwr_mel.cli.doctor import checks
from flwr_mel.cli.doctor.checks import Finding, Health
from flwr_mel.cli.shared import ENVIRONMENT, bad_input, console

EXAMPLES = """Examples:

flwr-mel doctor mel.example.org:8000 ca.pem device.key

flwr-mel doctor mel.example.org:8000 ca.pem device.key --data-dir /srv/data --import torch

flwr-mel doctor mel.example.org:8000 ca.pem device.key --json"""

_MARKS = {Health.GOOD: "[green]good [/]", Health.DOUBT: "[yellow]doubt[/]", Health.BAD: "[red]bad  [/]"}


def doctor(
    server: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The SuperLink, as devices reach it.")],
    ca: Annotated[Path, typer.Argument(metavar="CA", help="ca.pem, made by certificates.sh.")],
    key: Annotated[Path, typer.Argument(metavar="KEY", help="The device's private key.")],
    data_dir: Annotated[Path | None, typer.Option(help="The device's own data.")] = None,
    profile: Annotated[Path | None, typer.Option(help="A file of flwr-mel profile.")] = None,
    modules: Annotated[
        list[str] | None, typer.Option("--import", help="A module that the app imports; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
) -> None:
    """Look at a device before it takes part: what it has, and whether it reaches the server.

    Software, key, name resolution, port, TLS and clock, data, profile, how long a client process takes
    to start, load, threads, disk. What is bad comes with its remedy.

    Exit codes: 0 ready (perhaps with doubts), 2 bad input, 4 something is bad.
    """
    with bad_input({"server": "HOST:PORT", "modules": "--import"}):
        host, port = _address(server)
        for name in modules or ():
            if not all(part.isidentifier() for part in name.split(".")):
                raise complain("modules", "names of modules", name)
    findings = []
    screen = console()
    with nullcontext() if json else screen.status("looking ..."):
        for finding in _all(host, port, ca, key, data_dir, profile, modules or []):
            findings.append(finding)
            if not json:
                remedy = f"\n        {finding.remedy}" if finding.remedy else ""
                screen.print(
                    f"{_MARKS[finding.health]}  {finding.what}: {finding.detail}{remedy}", soft_wrap=True
                )
    ready = all(finding.health is not Health.BAD for finding in findings)
    if json:
        typer.echo(json_.dumps({"ready": ready, "findings": [asdict(finding) for finding in findings]}))
    else:
        typer.echo("ready" if ready else "not ready")
    if not ready:
        raise typer.Exit(ENVIRONMENT)


def _all(
    host: str,
    port: int,
    ca: Path,
    key: Path,
    data_dir: Path | None,
    profile: Path | None,
    modules: list[str],
) -> Iterator[Finding]:
    yield from checks.software()
    yield from checks.key_file(key)
    yield from checks.server(host, port, ca)
    yield from checks.data(data_dir)
    yield from checks.profile(profile)
    yield from checks.load()
    yield from checks.disk(Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr"))
    yield from checks.start_up(modules)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise complain("server", "HOST:PORT", text, "superlink.sh listens at 8000, Flower itself at 9092.")
    return host.strip("[]"), int(port)
