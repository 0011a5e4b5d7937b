"""``flwr-mel link-server``: the other end of ``flwr-mel profile --link``."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from flwr_mel.cli.shared import bad_input, note

EXAMPLES = """Examples:

flwr-mel link-server --host 0.0.0.0 --port 9099

flwr-mel link-server --host 0.0.0.0 --port 9099 --tls-cert server.pem --tls-key server.key

Then, on a device: flwr-mel profile ... --link SERVER:9099"""

_OPTIONS = {
    "address": "--host and --port",
    "port": "--port",
    "tls_cert and tls_key": "--tls-cert and --tls-key",
    "connection_bytes": "--max-bytes",
    "connection_s": "--max-seconds",
    "connections": "--max-connections",
    "lifetime_s": "--lifetime",
}
_LIMITS = "Limits"


def link_server(
    port: Annotated[int, typer.Option(help="Where to listen; 0 takes a free port.")],
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 for other machines to reach it.")
    ] = "127.0.0.1",
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate, PEM: use TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    max_bytes: Annotated[int, typer.Option(help="Per connection, both ways.", rich_help_panel=_LIMITS)] = 1
    << 30,
    max_seconds: Annotated[float, typer.Option(help="Per connection.", rich_help_panel=_LIMITS)] = 60.0,
    max_connections: Annotated[int, typer.Option(help="At the same time.", rich_help_panel=_LIMITS)] = 4,
    lifetime: Annotated[
        float, typer.Option(help="Seconds after which the server ends.", rich_help_panel=_LIMITS)
    ] = 3600.0,
    json: Annotated[bool, typer.Option("--json", help="Say where it listens as JSON.")] = False,
) -> None:
    """Let devices measure their link to this machine: run it where the SuperLink runs.

    It receives bytes and forgets them, and sends random ones. Ctrl-C ends it.

    Exit codes: 0 done, 2 bad input, 4 the environment.
    """
    from flwr_mel.profiling.link_server import Limits, LinkServer  # noqa: PLC0415

    with bad_input(_OPTIONS):
        limits = Limits(max_bytes, max_seconds, max_connections, lifetime)
        server = LinkServer(host, port, limits=limits, cert_file=tls_cert, key_file=tls_key)
    if json:
        where = {
            "host": server.host,
            "port": server.port,
            "tls": tls_cert is not None,
            "lifetime_s": lifetime,
        }
        typer.echo(json_.dumps(where))
    else:
        kind = "TLS" if tls_cert else "no TLS"
        typer.echo(f"listening at {server.host}:{server.port} ({kind}) for {lifetime:g} s; Ctrl-C ends it")
    try:
        server.serve()
    except KeyboardInterrupt:
        note("ended")
