"""``flwr-mel device start``, ``stop`` and ``key``."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from flwr_mel.cli.deploying import RUN_HELP, Run, tell, wait_for
from flwr_mel.cli.doctor.checks import Health
from flwr_mel.cli.doctor.looking import examine, show
from flwr_mel.cli.shared import ENVIRONMENT, bad_input, console, stop
from flwr_mel.deployment import running, secrets, units
from flwr_mel.deployment.bundles import Bundle, DeviceSettings, check_device_name

EXAMPLES = """Examples:

flwr-mel device start pi-7

flwr-mel device start pi-7 --import torch --json

flwr-mel device stop pi-7

flwr-mel device key pi-7       (only where the key is not to be made on the server)"""

_OPTIONS = {"bundle": "BUNDLE", "node": "[node]", "name": "name", "directory": "BUNDLE"}
#: What a SuperNode writes when the server has taken it.
_TAKEN = "SuperNode ID:"
#: Seconds during which a server may not have noticed yet that a device that died is gone.
_OLD_CONNECTION_S = 120.0

app = typer.Typer(
    no_args_is_help=True,
    help="Start a device, and say whether it is well.",
    epilog=EXAMPLES,
    rich_markup_mode="rich",
)
Place = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="The device's directory, made by flwr-mel server devices.")
]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON.")]


@app.command(epilog=EXAMPLES)
def start(
    bundle: Place,
    modules: Annotated[
        list[str] | None, typer.Option("--import", help="A module that the app imports; may be repeated.")
    ] = None,
    run: Annotated[Run, typer.Option(help=RUN_HELP)] = Run.AUTO,
    json: Json = False,
) -> None:
    """Look whether the device is well (flwr-mel doctor), start it, and wait until the server has taken it.

    In the foreground it only starts: that is for units and containers. Numerical libraries use one thread, so
    that what a device measures of itself holds when it is busy; OMP_NUM_THREADS says otherwise.

    Exit codes: 0 it takes part, 2 bad input, 4 something is bad, with its remedy.
    """
    place = Bundle(bundle.absolute())
    with bad_input(_OPTIONS):
        settings = place.read()
        if run.chosen() is Run.FOREGROUND:
            _become(place, settings)
        if (there := running.holder(place.lock)) is not None:
            stop(f"{settings.name} runs already, process {there}: flwr-mel device stop {bundle}", ENVIRONMENT)
        findings, out = [], console()
        with nullcontext() if json else out.status("looking ..."):
            env = place.command(settings)[1]
            for finding in examine(settings.server, place.ca, place.key, settings.node, modules or [], env):
                findings.append(finding)
                if not json:
                    show(finding, out)
        told: dict[str, Any] = {"name": settings.name, "findings": [asdict(finding) for finding in findings]}
        told["ready"] = all(finding.health is not Health.BAD for finding in findings)
        if not told["ready"]:
            tell(json, told, [("not ready", f"{settings.name} was not started: see what is bad")])
            raise typer.Exit(ENVIRONMENT)
        told |= _start(place, settings, run.chosen(), quiet=json)
    pairs = [("taken", f"{settings.name} takes part as node {told['node']}")]
    pairs += [("log", told["log"]), ("to end it", f"flwr-mel device stop {bundle}")]
    tell(json, told, pairs)


def _become(place: Bundle, settings: DeviceSettings) -> None:
    """Become the SuperNode: this process is not needed any more, and devices are small."""
    words, env = place.command(settings)
    try:
        running.hold(place.lock, past_exec=True)
    except running.Taken:
        stop(f"{settings.name} runs already: flwr-mel device stop {place.root}", ENVIRONMENT)
    os.chdir(place.root)
    os.execvpe(words[0], words, env)


def _start(place: Bundle, settings: DeviceSettings, how: Run, *, quiet: bool) -> dict[str, Any]:
    """Start the device beside us and return how it is called, once the server has taken it."""
    with nullcontext() if quiet else console().status("waiting for the server ..."):
        node, where, said = (_as_service if how is Run.SERVICE else _in_background)(place, settings)
    if node is None:
        stop(
            f"the server does not take {settings.name}: {said}. Is its key registered (flwr-mel server "
            f"devices)? Is another with the same key running? {where} tells more",
            ENVIRONMENT,
        )
    return {"run": str(how), "node": node, "log": where}


def _as_service(place: Bundle, settings: DeviceSettings) -> tuple[str | None, str, str]:
    """Put the service in place; return the node id once there is one, where more is told, the last words."""
    name, begin = unit_of(settings), time.time()
    units.install(name, units.filled(place.unit.read_text(encoding="utf-8"), place.root), place.root)
    node = wait_for(
        lambda: _node_id(units.journal(name, begin)), lambda: units.is_active(name), _OLD_CONNECTION_S
    )
    return node, f"journalctl -u {name}", running.last_words(units.journal(name, begin))


def _in_background(place: Bundle, settings: DeviceSettings) -> tuple[str | None, str, str]:  # noqa: ARG001
    """Start a process that stays; return the same."""
    mark = place.log.stat().st_size if place.log.exists() else 0
    command = running.ourselves("device", "start", place.root, "--run", "foreground")
    process: list[subprocess.Popen[bytes]] = []

    def attempt() -> str | None:
        """Start once; return the node id, or None if the device ended."""
        begin = place.log.stat().st_size if place.log.exists() else 0
        process[:] = [running.detached(command, place.log)]
        return wait_for(lambda: _node_id(_text(place.log, begin)), lambda: process[0].poll() is None)

    # One that was never taken has no old connection: to try again would not help.
    again = mark > 0 and _node_id(_text(place.log, 0)) is not None
    node = wait_for(attempt, lambda: again, _OLD_CONNECTION_S)
    if node is None:
        running.stop_holder(place.lock)
    return node, str(place.log), running.last_words(_text(place.log, mark))


def _text(log: Path, since: int) -> str:
    return log.read_bytes()[since:].decode("utf-8", "replace") if log.exists() else ""


def _node_id(said: str) -> str | None:
    for line in said.splitlines():
        if _TAKEN in line:
            return line.rpartition(_TAKEN)[2].strip()
    return None


def unit_of(settings: DeviceSettings) -> str:
    """Return the name of a device's service."""
    return f"flwr-mel-device-{settings.name}.service"


@app.command("stop", epilog=EXAMPLES)
def stop_(bundle: Place, json: Json = False) -> None:
    """End a device, and take its service away if it is one. Its directory stays as it is.

    The server needs up to a minute to see that it is gone, and takes it back only then.

    Exit codes: 0 it does not run any more, 2 bad input, 4 the environment.
    """
    place = Bundle(bundle.absolute())
    with bad_input(_OPTIONS):
        settings = place.read()
        service = units.can_install() and units.remove(unit_of(settings))
        ended = running.stop_holder(place.lock) or service
    tell(json, {"ended": ended}, [("ended" if ended else "nothing", settings.name)])


@app.command(epilog=EXAMPLES)
def key(bundle: Place, json: Json = False) -> None:
    """Make the device's key on the device itself: the server then never sees it.

    Makes BUNDLE/device.key, which stays, and BUNDLE/NAME.pub, with the directory's own name as NAME. Give
    NAME.pub to the server's operator (flwr-mel server devices DIRECTORY NAME.pub) and copy the bundle that he
    gets into the same directory. Nothing is overwritten: a new key is a new device to the server.

    Exit codes: 0 done, 2 bad input, 4 the environment.
    """
    place = Bundle(bundle.absolute())
    name = place.root.name
    with bad_input(_OPTIONS):
        check_device_name(name)
        secrets.make_device_key(place.key, place.public(name), name)
        place.root.chmod(0o700)
    told = {"name": name, "key": str(place.key), "public": str(place.public(name))}
    lines = [
        ("key", f"{place.key}: stays here"),
        ("public key", f"{place.public(name)}: for the server's operator"),
    ]
    tell(json, told, lines)
