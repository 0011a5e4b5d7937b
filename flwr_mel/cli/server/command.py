"""``flwr-mel server up`` and ``down``."""

from __future__ import annotations

import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from flwr_mel.cli.deploying import RUN_HELP, Run, tell, wait_for
from flwr_mel.cli.server import devices as devices_
from flwr_mel.cli.shared import ENVIRONMENT, bad_input, console, note, stop
from flwr_mel.deployment import flower_config, running, serving, units
from flwr_mel.deployment.place import ServerPlace, ServerSettings

EXAMPLES = """Examples:

flwr-mel server up /srv/flwr-mel mel.example.org 192.0.2.7

flwr-mel server devices /srv/flwr-mel 50

flwr-mel server up /srv/flwr-mel       (again, after it was ended)

flwr-mel server down /srv/flwr-mel"""

_OPTIONS = {
    "names": "NAME",
    "port": "--port",
    "control_port": "--control-port",
    "connection": "--connection",
    "host": "--host",
    "directory": "DIRECTORY",
    "proxy": "--without-proxy",
}

app = typer.Typer(
    no_args_is_help=True,
    help="Set a server up, run it, and say who may take part.",
    epilog=EXAMPLES,
    rich_markup_mode="rich",
)
Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The server's directory.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON.")]


@app.command(epilog=EXAMPLES)
def up(
    directory: Directory,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="How devices reach this machine."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address at which devices come in.", show_default="0.0.0.0")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port at which devices come in.", show_default="8000")
    ] = None,
    control_port: Annotated[
        int | None, typer.Option(help="Port of the SuperLink, for this machine only.", show_default="8001")
    ] = None,
    connection: Annotated[
        str | None, typer.Option(help="How flwr calls the server: flwr run APP NAME.", show_default="fleet")
    ] = None,
    days: Annotated[int, typer.Option(help="How long a new certificate is valid.", min=1, max=3650)] = 825,
    without_proxy: Annotated[
        bool,
        typer.Option(
            "--without-proxy",
            help="Start no nginx: the server is for this machine only, and you pass on /v1/fleet/ yourself.",
        ),
    ] = False,
    run: Annotated[Run, typer.Option(help=RUN_HELP)] = Run.AUTO,
    json: Json = False,
) -> None:
    """Prepare a server in DIRECTORY, whatever of it is not there yet, and start it.

    NAME... are the host names and addresses under which devices reach this machine; the first goes into their
    bundles. They are needed the first time only.

    Certificates, Flower's SuperLink with TLS and for registered devices only, nginx before it, which lets
    devices through and nobody else, the directory for state and runs, the connection for flwr. Nothing that
    is there is overwritten: the same command starts the server again.

    Exit codes: 0 it runs, 2 bad input, 4 the environment (a port, nginx, the disk).
    """
    place = ServerPlace(directory.absolute())
    given = {"host": host, "port": port, "control_port": control_port, "connection": connection}
    wanted: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    wanted |= {"names": tuple(names)} if names else {}
    wanted |= {"proxy": False} if without_proxy else {}
    with bad_input(_OPTIONS):
        settings, made = place.prepare(wanted, days)
        if run.chosen() is not Run.FOREGROUND:
            if flower_config.connect(settings.connection, settings.control, place.ca):
                made.append(f"the connection {settings.connection} in {flower_config.config_file()}")
            log_or_unit = _start(place, settings, run.chosen(), quiet=json)
        else:
            _serve(place, settings)
            return
    told = {
        "directory": str(place.root),
        "names": list(settings.names),
        "devices": settings.address,
        "control": settings.control,
        "connection": settings.connection,
        "run": str(run.chosen()),
        "made": made,
    }
    pairs = [("made", line) for line in made]
    pairs += [
        ("running", f"SuperLink at {settings.control}, for this machine only; {log_or_unit}"),
        ("devices", f"come in at {settings.address}" + ("" if settings.proxy else ", by means of your own")),
        ("next", f"flwr-mel server devices {directory} NAME... (or a number)"),
        ("to end it", f"flwr-mel server down {directory}"),
    ]
    tell(json, told, pairs)


def _start(place: ServerPlace, settings: ServerSettings, how: Run, *, quiet: bool) -> str:
    """Start the server beside us, wait until it is well, and return where it tells more."""
    if running.holder(place.lock) is not None and serving.is_well(place, settings):
        return f"it runs already, see {place.log}"
    process: subprocess.Popen[bytes] | None = None
    begin, mark = time.time(), place.log.stat().st_size if place.log.exists() else 0
    serving.commands(place, settings)  # complains about what is in the way, here and not in a log
    if how is Run.SERVICE:
        units.install(units.SERVER_NAME, units.filled(units.SERVER, place.root), place.root)
        where = f"journalctl -u {units.SERVER_NAME}"
    else:
        command = running.ourselves("server", "up", place.root, "--run", "foreground")
        process = running.detached(command, place.log)
        where = f"see {place.log}"

    def alive() -> bool:
        return units.is_active(units.SERVER_NAME) if process is None else process.poll() is None

    with nullcontext() if quiet else console().status("starting ..."):
        well = wait_for(lambda: serving.is_well(place, settings), alive)
    if not well:
        if process is None:
            said = units.journal(units.SERVER_NAME, begin)
        else:
            said = place.log.read_bytes()[mark:].decode("utf-8", "replace")
        stop(f"the server does not get ready: {running.last_words(said)}. {where} tells more", ENVIRONMENT)
    return where


def _serve(place: ServerPlace, settings: ServerSettings) -> None:
    """Be the server, until we are told to end."""
    try:
        running.hold(place.lock)
    except running.Taken:
        stop(
            f"the server of {place.root} runs already: flwr-mel server down {place.root} ends it", ENVIRONMENT
        )
    commands = serving.commands(place, settings)
    ended = running.keep(
        commands,
        lambda: serving.is_well(place, settings),
        lambda: note(f"devices come in at {settings.address}"),
        place.state,
    )
    if ended:
        stop(f"the {ended} ended before the server was ready; it says above why", ENVIRONMENT)


@app.command(epilog=EXAMPLES)
def down(directory: Directory, json: Json = False) -> None:
    """End a server, and take its service away if it is one. Its directory stays as it is.

    Exit codes: 0 it does not run any more, 2 bad input, 4 the environment.
    """
    place = ServerPlace(directory.absolute())
    with bad_input(_OPTIONS):
        place.read()
        service = units.can_install() and units.remove(units.SERVER_NAME)
        ended = running.stop_holder(place.lock) or service
    tell(json, {"ended": ended}, [("ended" if ended else "nothing", str(place.root))])


app.command(epilog=devices_.EXAMPLES)(devices_.devices)
app.command("list", epilog=devices_.EXAMPLES)(devices_.list_)
app.command(epilog=devices_.EXAMPLES)(devices_.remove)
