"""``flwr-mel bundle``: a server's certificates, and a directory with a registered key for each device."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flwr_mel import wire
from flwr_mel._files import atomically
from flwr_mel._validate import Phrase, complain
from flwr_mel.tools.shell import ENVIRONMENT, bad_input, print_json, stop

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HOST = r"(?![0-9.]+$)[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?"
_PAIRS = r"""[A-Za-z][\w.-]*=("[^"']*"|[^\s"']+)"""
#: Flower's own processes on the server connect to it by these.
_LOOPBACK = ("localhost", "127.0.0.1")
_CA_DAYS, _SERVER_DAYS = 3650, 825
_PEM, _PLAIN = serialization.Encoding.PEM, serialization.NoEncryption()


def bundle(
    directory: Annotated[Path, typer.Argument(help="The server's directory; made if it does not exist.")],
    server: Annotated[str, typer.Option(help="HOST:PORT at which devices reach the server.")],
    names: Annotated[list[str] | None, typer.Argument(help="Names of devices.")] = None,
    node_config: Annotated[
        str | None, typer.Option(help="Node config of these devices, as for flower-supernode.")
    ] = None,
    connection: Annotated[
        str | None, typer.Option(help="SuperLink in Flower's config.toml at which to register the keys.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Create the certificates of a server, and for each device a directory to copy to it.

    DIRECTORY is the server's directory, and NAMES are names of devices. The
    command creates ca.pem, ca.key, server.pem and server.key and, for each name,
    devices/NAME with device.key, device.pub, ca.pem and device.env (address
    and node config). With --connection, flwr supernode register registers the
    keys, and devices.json records the name of each node id. Nothing is
    overwritten: if run again, the command does only what is still missing.

    Exit codes: 0 done, 2 bad input, 4 the environment.

    Try:

    flwr-mel bundle /srv/mel --server mel.example.org:8000

    flwr-mel bundle /srv/mel pi-1 pi-2 --server mel.example.org:8000 --connection fleet

    flwr-mel bundle /srv/mel pi-3 --server mel.example.org:8000 --node-config 'data-dir="/srv/data"'
    """
    with bad_input():
        for name in names or ():
            if not re.fullmatch(_NAME, name):
                raise complain("NAME", "letters, digits, dots, dashes and underscores", name)
        host = _host(server)
        _check_node_config(node_config or "")
        made = make_server(directory, host)
        for name in names or ():
            made += make_device(directory, name, server, node_config)
        nodes = {name: register(directory, name, connection) for name in names or () if connection}
    if as_json:
        print_json({"directory": str(directory), "created": [str(path) for path in made], "nodes": nodes})
        return
    for path in made:
        typer.echo(f"created     {path}")
    for name, node in nodes.items():
        typer.echo(f"registered  {name} as node {node}")
    if not made and not nodes:
        typer.echo(f"nothing to do: {directory} is complete")


def make_server(directory: Path, host: str) -> list[Path]:
    """Create the authority and the server's certificate unless they exist; return the new files."""
    ca, cert = directory / "ca.pem", directory / "server.pem"
    made: list[Path] = []
    if not ca.exists():
        made += _write_pair(ca, "flwr-mel authority", None, (), _CA_DAYS)
    if not cert.exists():
        if not ca.with_suffix(".key").exists():
            remedy = f"Put ca.key back to create a new {cert.name}."
            raise complain("ca.key", f"in {directory}", Phrase("no such file"), remedy)
        made += _write_pair(cert, "flwr-mel server", ca, (*_LOOPBACK, host), _SERVER_DAYS)
    found = x509.load_pem_x509_certificate(cert.read_bytes()).extensions
    valid = [str(name.value) for name in found.get_extension_for_class(x509.SubjectAlternativeName).value]
    if host not in valid:
        remedy = f"To create a certificate for another host, move {cert.name} and server.key away."
        raise complain("server", f"a host in {cert} ({', '.join(valid)})", host, remedy)
    return made


def make_device(directory: Path, name: str, server: str, node_config: str | None) -> list[Path]:
    """Create a device's directory unless it is complete, and has these settings; return the new files."""
    root = directory / "devices" / name
    made: list[Path] = []
    if not (root / "device.pub").exists():
        key = ec.generate_private_key(ec.SECP384R1())
        secret = key.private_bytes(_PEM, serialization.PrivateFormat.OpenSSH, _PLAIN)
        ssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        public = key.public_key().public_bytes(*ssh) + f" {name}\n".encode()
        made += [_write_new(root / "device.key", secret, 0o600), _write_new(root / "device.pub", public)]
    if not (root / "ca.pem").exists():
        made.append(_write_new(root / "ca.pem", (directory / "ca.pem").read_bytes()))
    settings = root / "device.env"
    words = f'{wire.LEARNER}="{name}" {node_config or ""}'.strip()
    lines = [f"MEL_SERVER='{server}'\n", f"MEL_NODE_CONFIG='{words}'\n"]
    if not settings.exists():
        made.append(_write_new(settings, "".join(lines).encode()))
    before = settings.read_text(encoding="utf-8").splitlines(keepends=True)
    for field, line in (("server", lines[0]), ("node_config", lines[1] if node_config is not None else None)):
        if line is not None and line not in before:
            remedy = f"Edit {settings}, or move it away to write it again."
            raise complain(field, f"as in {settings}", Phrase(line.strip()), remedy)
    return made


def register(directory: Path, name: str, connection: str) -> str:
    """Register a device's key with Flower's own command, record its node id, and return it."""
    record = directory / "devices.json"
    try:
        labels = dict(json.loads(record.read_text(encoding="utf-8"))) if record.exists() else {}
    except (ValueError, TypeError) as error:
        raise complain(str(record), "node ids and names in JSON", Phrase(str(error))) from None
    for node, label in labels.items():
        if label == name:
            return str(node)
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    flwr = shutil.which("flwr", path=os.pathsep.join(places)) or "flwr"
    public = directory / "devices" / name / "device.pub"
    words = [flwr, "supernode", "register", str(public), connection, "--name", name]
    done = subprocess.run([*words, "--format", "json"], capture_output=True, text=True, check=False)
    found = re.search(r'"node-id":\s*"?(\d+)', done.stdout)
    if not found:
        stop(f"flwr supernode register did not register {name} at {connection!r}: {_said(done)}", ENVIRONMENT)
    labels[found[1]] = name
    atomically(record, lambda file: json.dump(labels, file, indent=1))
    return found[1]


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error message of a Flower command in one line."""
    try:
        text = str(json.loads(done.stdout)["error-message"])
    except (ValueError, KeyError, TypeError):
        text = done.stdout + done.stderr
    return " ".join(text.split())[-600:] or f"exit code {done.returncode}"


def _host(server: str) -> str:
    """Return the host of HOST:PORT; an IPv6 address is in brackets."""
    found = re.fullmatch(r"(?:\[([^\]]+)\]|([^:]+)):([0-9]{1,5})", server)
    try:
        if found and 0 < int(found[3]) < 2**16 and _general_name(found[1] or found[2]):
            return found[1] or found[2]
    except ValueError:
        pass
    raise complain("server", "HOST:PORT, such as mel.example.org:8000", server)


def _general_name(host: str) -> x509.GeneralName:
    """Return a host name or address as a certificate has it; ValueError if it is neither."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if not re.fullmatch(_HOST, host):
            raise
        return x509.DNSName(host)


def _check_node_config(text: str) -> None:
    """Refuse what Flower could not read, and quotes that would end the line of device.env."""
    rule = 'pairs such as data-dir="/srv/data" partition-id=0, without single quotes'
    if re.fullmatch(rf"\s*({_PAIRS}\s+)*", f"{text} ") is None:
        raise complain("node_config", rule, text)
    try:
        tomllib.loads("\n".join(pair[0] for pair in re.finditer(_PAIRS, text)))
    except tomllib.TOMLDecodeError as error:
        raise complain("node_config", rule, text, f"{error}.") from None


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, authority: Path | None, hosts: Sequence[str], days: int
) -> bytes:
    """Return the certificate of a server, signed by `authority`, or of an authority itself (None)."""
    subject = issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer: Any = key
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority.read_bytes()).subject
        signer = serialization.load_pem_private_key(authority.with_suffix(".key").read_bytes(), password=None)
    is_ca, begin = authority is None, datetime.now(UTC) - timedelta(hours=1)  # a device's clock may be behind
    usage = x509.KeyUsage(not is_ca, False, False, False, False, is_ca, is_ca, False, False)
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=is_ca, path_length=None), True),
        (usage, True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
    ]
    if hosts:
        extensions.append((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False))
        extensions.append((x509.SubjectAlternativeName(map(_general_name, dict.fromkeys(hosts))), False))
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(begin + timedelta(days=days))
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer, hashes.SHA384()).public_bytes(_PEM)


def _write_pair(path: Path, name: str, authority: Path | None, hosts: Sequence[str], days: int) -> list[Path]:
    """Write a certificate and its key beside it."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, _PLAIN)
    text = _certificate(name, key, authority, hosts, days)
    return [_write_new(path.with_suffix(".key"), secret, 0o600), _write_new(path, text)]


def _write_new(path: Path, content: bytes, mode: int = 0o644) -> Path:
    """Write a file that does not exist yet; keys and certificates are never overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        remedy = "Keys are never overwritten: move the file away first."
        raise complain(path.name, "a file that does not exist yet", Phrase(str(path)), remedy) from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return path
