"""The server's two programs: Flower's SuperLink on the loopback, and nginx before it for the devices."""

from __future__ import annotations

import shutil
import ssl
from contextlib import suppress
from http.client import HTTPException, HTTPSConnection

from flwr_mel._validate import NOTHING, Phrase, complain
from flwr_mel.deployment import running
from flwr_mel.deployment.place import ServerPlace, ServerSettings

_HERE = "127.0.0.1"
#: Seconds that a question to our own server may take.
_PATIENCE_S = 5.0

_NGINX = """worker_processes 1;
daemon off;
pid {state}/nginx.pid;
error_log stderr warn;
events {{}}
http {{
    access_log off;
    server_tokens off;
    client_body_temp_path {state}/body;
    proxy_temp_path {state}/proxy;
    fastcgi_temp_path {state}/fastcgi;
    uwsgi_temp_path {state}/uwsgi;
    scgi_temp_path {state}/scgi;
    server {{
        listen {listen} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2 TLSv1.3;
        # Models are large and are passed on as they come.
        client_max_body_size 0;
        location /v1/fleet/ {{
            # With its path: what was checked is what is passed on.
            proxy_pass https://{superlink}/v1/fleet/;
            proxy_ssl_trusted_certificate {ca};
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_request_buffering off;
            proxy_buffering off;
            proxy_read_timeout 600s;
            proxy_send_timeout 600s;
        }}
        location / {{
            return 403;
        }}
    }}
}}
"""


def nginx_configuration(place: ServerPlace, settings: ServerSettings) -> str:
    """Return the proxy's configuration: what devices need (/v1/fleet/) is passed on, all else refused."""
    files = {"ca": place.ca, "certificate": place.certificate, "key": place.key, "state": place.proxy}
    for path in files.values():
        if any(sign in str(path) for sign in " ;{}\"'$\\"):
            rule = "a path without spaces, quotes, braces, dollars or semicolons"
            raise complain("directory", rule, str(place.root), "nginx takes no other.")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    superlink = f"{_HERE}:{settings.control_port}"
    return _NGINX.format(**files, listen=f"{host}:{settings.port}", superlink=superlink)


def commands(place: ServerPlace, settings: ServerSettings) -> running.Commands:
    """Return the command lines of both programs; complain about what is in their way.

    Parameters
    ----------
    place : ServerPlace
        The directory; gets the proxy's configuration.
    settings : ServerSettings
        What it was set up with.
    """
    env = running.environment(place.state / "flwr")
    # Tells server apps, wherever they cannot see this command line, that shards leave over TLS only.
    env["FLWR_MEL_TRANSPORT"] = "tls"
    _check(settings, env["PATH"])
    superlink = [
        *("flower-superlink", "--host", _HERE, "--port", str(settings.control_port)),
        *("--ssl-ca-certfile", str(place.ca)),
        *("--ssl-certfile", str(place.certificate), "--ssl-keyfile", str(place.key)),
        "--enable-supernode-auth",
        *("--database", str(place.state / "superlink.db")),
        "--disable-runtime-dependency-installation",
    ]
    found: dict[str, tuple[list[str], dict[str, str]]] = {"SuperLink": (superlink, env)}
    if settings.proxy:
        place.proxy.mkdir(mode=0o700, exist_ok=True)
        configuration = place.proxy / "nginx.conf"
        configuration.write_text(nginx_configuration(place, settings), encoding="utf-8")
        words = ["nginx", "-p", str(place.proxy), "-e", "stderr", "-c", str(configuration)]
        found["proxy"] = (words, env)
    return found


def _check(settings: ServerSettings, path: str) -> None:
    if shutil.which("flower-superlink", path=path) is None:
        rule = "beside this Python or on the PATH"
        raise complain("flower-superlink", rule, NOTHING, "pip install 'flwr>=1.41'") from FileNotFoundError()
    if settings.proxy and shutil.which("nginx", path=path) is None:
        raise complain(
            "nginx",
            "installed: it lets devices through and nothing else",
            NOTHING,
            "apt install nginx-light (its own service need not run). Without it, --without-proxy starts the "
            "server for this machine only: pass on /v1/fleet/ to it, and nothing else, by other means.",
        ) from FileNotFoundError()
    for field, host, port in _listening(settings):
        if not running.port_is_free(host, port):
            remedy = "End who listens there, or choose another."
            what = Phrase(f"{port}, at which somebody listens")
            raise complain(field, "a free port", what, remedy) from OSError()


def _listening(settings: ServerSettings) -> list[tuple[str, str, int]]:
    own = [("control_port", _HERE, settings.control_port)]
    return [*own, ("port", settings.host, settings.port)] if settings.proxy else own


def is_well(place: ServerPlace, settings: ServerSettings) -> bool:
    """Whether the SuperLink answers, and the proxy, if there is one, keeps strangers out."""
    if _status(place, _HERE, settings.control_port, "/health") != 200:
        return False
    if not settings.proxy:
        return True
    host = _HERE if settings.host in ("0.0.0.0", "::") else settings.host
    return _status(place, host, settings.port, "/") == 403


def _status(place: ServerPlace, host: str, port: int, path: str) -> int | None:
    context = ssl.create_default_context(cafile=str(place.ca))
    context.check_hostname = False  # it is here; the certificate tells that it is ours
    connection = HTTPSConnection(host, port, timeout=_PATIENCE_S, context=context)
    with suppress(OSError, HTTPException):
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()
    return None
