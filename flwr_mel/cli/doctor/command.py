"""``flwr-mel doctor``: whether a device is ready to take part."""

from __future__ import annotations

import json as json_
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flwr_mel._validate import NOTHING, complain
from flwr_mel.cli.doctor.checks import Health
from flwr_mel.cli.doctor.looking import examine, show
from flwr_mel.cli.shared import ENVIRONMENT, bad_input, console
from flwr_mel.deployment.bundles import Bundle

EXAMPLES = """Examples:

flwr-mel doctor pi-7

flwr-mel doctor pi-7 --import torch --json

flwr-mel doctor mel.example.org:8000 ca.pem device.key --data-dir /srv/data"""


def doctor(
    server: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE|HOST:PORT",
            help="The device's directory, made by flwr-mel server devices, or the server as devices see it.",
        ),
    ],
    ca: Annotated[Path | None, typer.Argument(metavar="CA", help="Without a bundle: ca.pem.")] = None,
    key: Annotated[
        Path | None, typer.Argument(metavar="KEY", help="Without a bundle: the device's private key.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The device's own data.")] = None,
    profile: Annotated[Path | None, typer.Option(help="A file of flwr-mel profile.")] = None,
    modules: Annotated[
        list[str] | None, typer.Option("--import", help="A module that the app imports; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
) -> None:
    """Look at a device before it takes part: what it has, and whether it reaches the server.

    Software, key, name resolution, port, TLS, clock, data, profile, how long a client process takes to start,
    load, threads, disk. What is bad comes with its remedy. flwr-mel device start does it, too.

    Exit codes: 0 ready (perhaps with doubts), 2 bad input, 4 something is bad.
    """
    node: dict[str, object] = {}
    env: Mapping[str, str] = os.environ
    with bad_input({"server": "HOST:PORT", "modules": "--import", "bundle": "BUNDLE", "key": "CA and KEY"}):
        if Path(server).is_dir():
            bundle = Bundle(Path(server).absolute())
            settings = bundle.read()
            server, ca, key, node = settings.server, ca or bundle.ca, key or bundle.key, dict(settings.node)
            env = bundle.command(settings)[1]
        if ca is None or key is None:
            raise complain("key", "given beside HOST:PORT", NOTHING, "Or give a bundle alone.")
        node |= {} if data_dir is None else {"data-dir": data_dir}
        node |= {} if profile is None else {"mel-profile": profile}
        looking = examine(server, ca, key, node, modules or [], env)
    findings = []
    out = console()
    with nullcontext() if json else out.status("looking ..."):
        for finding in looking:
            findings.append(finding)
            if not json:
                show(finding, out)
    ready = all(finding.health is not Health.BAD for finding in findings)
    if json:
        typer.echo(json_.dumps({"ready": ready, "findings": [asdict(finding) for finding in findings]}))
    else:
        typer.echo("ready" if ready else "not ready")
    if not ready:
        raise typer.Exit(ENVIRONMENT)
