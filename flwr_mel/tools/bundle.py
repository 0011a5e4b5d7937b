"""``flwr-mel bundle``: a server's certificates, and a directory with a registered key for each device."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flwr_mel import wire
from flwr_mel._files import atomically
from flwr_mel._validate import Phrase, complain
from flwr_mel.tools.shell import ENVIRONMENT, bad_input, stop

EXAMPLES = """Examples:

flwr-mel bundle /srv/mel --server mel.example.org:8000

flwr-mel bundle /srv/mel pi-1 pi-2 --server mel.example.org:8000 --connection fleet
--node-config 'data-dir="/srv/data"'"""

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HOST = r"(?![0-9.]+$)[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?"
_PAIRS = r"""[A-Za-z][\w.-]*=("[^"']*"|[^\s"']+)"""
#: Flower's own processes on the server connect to it by these.
_LOOPBACK = ("localhost", "127.0.0.1")
_CA_DAYS, _SERVER_DAYS = 3650, 825
_OPTIONS = {"server": "--server", "node_config": "--node-config", "connection": "--connection"}
_PEM, _PLAIN = serialization.Encoding.PEM, serialization.NoEncryption()


def bundle(
    directory: Annotated[Path, typer.Argument(help="The server's directory; made if it does not exist.")],
    names: Annotated[list[str] | None, typer.Argument(help="Names of devices.", show_default=False)] = None,
    server: Annotated[
        str, typer.Option(help="HOST:PORT at which devices reach the server.", show_default=False)
    ] = "",
    node_config: Annotated[
        str, typer.Option(help="Node config of these devices, as for flower-supernode.", show_default=False)
    ] = "",
    connection: Annotated[
        str,
        typer.Option(help="Register the keys at this SuperLink of Flower's config.toml.", show_default=False),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Create a server's certificates once, and for each device a directory to copy to it.

    Without names: ca.pem, ca.key, server.pem and server.key. With names, in addition, devices/NAME with
    device.key, device.pub, ca.pem and device.env (address and node config). With --connection the keys are
    registered by `flwr supernode register`, and devices.json records the name of each node id.
    Nothing is overwritten: the same command again does only what is still missing.
    """
    with bad_input(_OPTIONS):
        for name in names or ():
            if not re.fullmatch(_NAME, name):
                raise complain("NAME", "letters, digits, dots, dashes and underscores", name)
        host = _host(server)
        _check_node_config(node_config)
        made = make_server(directory, host)
        for name in names or ():
            made += make_device(directory, name, server, node_config)
        nodes = {name: register(directory, name, connection) for name in names or () if connection}
    if as_json:
        typer.echo(json.dumps({"directory": str(directory), "created": list(map(str, made)), "nodes": nodes}))
        return
    for path in made:
        typer.echo(f"created     {path}")
    for name, node in nodes.items():
        typer.echo(f"registered  {name} as node {node}")
    if not made and not nodes:
        typer.echo(f"nothing to do: {directory} is complete")


def make_server(directory: Path, host: str) -> list[Path]:
    """Create the authority and the server's certificate unless they exist; return the new files."""
    ca, ca_key, cert, key = (directory / n for n in ("ca.pem", "ca.key", "server.pem", "server.key"))
    made = []
    if not ca.exists():
        private = ec.generate_private_key(ec.SECP384R1())
        signed = _certificate("flwr-mel authority", private, None, None, _CA_DAYS)
        made += [_write_key(ca_key, private), _write_new(ca, signed.public_bytes(_PEM))]
    if not cert.exists():
        if not ca_key.exists():
            remedy = f"Put it back while a new {cert.name} is made."
            raise complain("ca.key", f"in {directory}", Phrase("no such file"), remedy)
        private = ec.generate_private_key(ec.SECP384R1())
        signed = _certificate("flwr-mel server", private, ca, host, _SERVER_DAYS)
        made += [_write_key(key, private), _write_new(cert, signed.public_bytes(_PEM))]
    found = x509.load_pem_x509_certificate(cert.read_bytes()).extensions
    valid = [str(name.value) for name in found.get_extension_for_class(x509.SubjectAlternativeName).value]
    if host not in valid:
        remedy = f"Move {cert.name} and {key.name} away to make a certificate for another host."
        raise complain("server", f"a host that {cert} is for ({', '.join(valid)})", host, remedy)
    return made


def make_device(directory: Path, name: str, server: str, node_config: str) -> list[Path]:
    """Create a device's directory unless it is complete; return the new files."""
    root = directory / "devices" / name
    made: list[Path] = []
    if not (root / "device.pub").exists():
        private = ec.generate_private_key(ec.SECP384R1())
        made.append(_write_key(root / "device.key", private, serialization.PrivateFormat.OpenSSH))
        ssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        public = private.public_key().public_bytes(*ssh) + f" {name}\n".encode()
        made.append(_write_new(root / "device.pub", public))
    if not (root / "ca.pem").exists():
        made.append(_write_new(root / "ca.pem", (directory / "ca.pem").read_bytes()))
    if not (root / "device.env").exists():
        label = f'{wire.LEARNER}="{name}"'
        text = f"MEL_SERVER='{server}'\nMEL_NODE_CONFIG='{f'{label} {node_config}'.strip()}'\n"
        made.append(_write_new(root / "device.env", text.encode()))
    return made


def register(directory: Path, name: str, connection: str) -> str:
    """Register a device's key with Flower's own command, record its node id, and return it."""
    record = directory / "devices.json"
    labels: dict[str, str] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    for node, label in labels.items():
        if label == name:
            return node
    flwr = shutil.which("flwr", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    public = directory / "devices" / name / "device.pub"
    words = [flwr or "flwr", "supernode", "register", str(public), connection, "--name", name]
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
    """Return the host of HOST:PORT."""
    host, _, port = server.rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 2**16 or not _is_host(host):
        raise complain("server", "HOST:PORT, such as mel.example.org:8000", server or Phrase("nothing"))
    return host


def _is_host(host: str) -> bool:
    """Whether this is a host name or an address."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return re.fullmatch(_HOST, host) is not None


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
    name: str, key: ec.EllipticCurvePrivateKey, ca: Path | None, host: str | None, days: int
) -> x509.Certificate:
    """Sign a certificate: of an authority by its own key, or of a server by the authority `ca`."""
    subject = issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer = key
    if ca is not None:
        issuer = x509.load_pem_x509_certificate(ca.read_bytes()).subject
        loaded = serialization.load_pem_private_key(ca.with_suffix(".key").read_bytes(), password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise complain("ca.key", "a key on an elliptic curve", Phrase(type(loaded).__name__))
        signer = loaded
    begin = datetime.now(UTC) - timedelta(hours=1)  # a device's clock may be a little behind
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if host is not None:
        hosts = [_general_name(each) for each in dict.fromkeys((*_LOOPBACK, host))]
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(signer, hashes.SHA384())


def _general_name(host: str) -> x509.GeneralName:
    """Return a host name or address as a certificate has it."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(
    path: Path,
    key: ec.EllipticCurvePrivateKey,
    format_: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> Path:
    """Write a private key that only its owner can read."""
    return _write_new(path, key.private_bytes(_PEM, format_, _PLAIN), 0o600)


def _write_new(path: Path, content: bytes, mode: int = 0o644) -> Path:
    """Write a file that does not exist yet; keys and certificates are never overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        remedy = "Keys are never overwritten: move it away first."
        raise complain(path.name, "a file that does not exist yet", Phrase(str(path)), remedy) from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return path
