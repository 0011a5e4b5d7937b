"""Certificates by which devices know the server, and keys by which the server knows devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from re import fullmatch

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flwr_mel._validate import Phrase, complain

#: What Flower's own helpers on the server use.
_ALWAYS = ("localhost", "127.0.0.1")
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?"
_NEVER_OVERWRITTEN = "Keys and certificates are never overwritten: move it away first."


def write_new(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file that is not there yet, with these rights from its first moment on.

    Parameters
    ----------
    path : Path
        Its directory is made.
    content : bytes
        All of it.
    mode : int
        Rights.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise complain(
            "file", "a file that is not there yet", Phrase(str(path)), _NEVER_OVERWRITTEN
        ) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except BaseException:
        path.unlink()
        raise


def make_authority(certificate: Path, key: Path, days: int) -> None:
    """Make a certificate authority of our own.

    Parameters
    ----------
    certificate, key : Path
        What is made: the certificate for everybody, the key for a safe.
    days : int
        How long it is valid.
    """
    private = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flwr-mel authority")])
    signed = (
        _builder(name, name, private.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(private, hashes.SHA384())
    )
    _write_pair(certificate, key, signed, private)


def make_certificate(
    certificate: Path, key: Path, authority: tuple[Path, Path], names: Sequence[str], days: int
) -> None:
    """Make the server's certificate.

    Parameters
    ----------
    certificate, key : Path
        What is made.
    authority : tuple of Path
        Its certificate and its key.
    names : sequence of str
        Host names and addresses under which devices reach the server.
    days : int
        How long it is valid.
    """
    wanted = [_general_name(name) for name in dict.fromkeys((*_ALWAYS, *names))]
    issuer = x509.load_pem_x509_certificate(authority[0].read_bytes())
    signer = serialization.load_pem_private_key(authority[1].read_bytes(), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise complain("authority", "a key on an elliptic curve", Phrase(str(authority[1])))
    private = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flwr-mel server")])
    signed = (
        _builder(name, issuer.subject, private.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(wanted), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA384())
    )
    _write_pair(certificate, key, signed, private)


def names_in(certificate: Path) -> list[str]:
    """Return the names and addresses that a server's certificate is for."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def check_name(name: str) -> str:
    """Return a host name or address, or complain."""
    _general_name(name)
    return name


def make_device_key(key: Path, public: Path, name: str) -> None:
    """Make the key pair of a device, as `ssh-keygen -t ecdsa -b 384` does.

    Parameters
    ----------
    key, public : Path
        What is made; the key is readable by its owner alone.
    name : str
        A remark in the public key.
    """
    private = ec.generate_private_key(ec.SECP384R1())
    format_ = serialization.PrivateFormat.OpenSSH
    secret = private.private_bytes(serialization.Encoding.PEM, format_, serialization.NoEncryption())
    open_ = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    if public.exists():  # alone it stops us, too: it may be registered
        raise complain("file", "a file that is not there yet", Phrase(str(public)), _NEVER_OVERWRITTEN)
    write_new(key, secret, 0o600)
    write_new(public, open_ + f" {name}\n".encode())


def read_public_key(path: Path) -> bytes:
    """Return a device's public key in the form in which Flower registers it.

    Parameters
    ----------
    path : Path
        The file that ends in .pub.
    """
    rule, text = "a public ECDSA key", path.read_bytes()
    remedy = "Give the file that ends in .pub, made by flwr-mel device key."
    try:
        key = serialization.load_ssh_public_key(text)
    except (ValueError, UnsupportedAlgorithm):
        raise complain("public key", rule, Phrase(f"the file {path}"), remedy) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise complain("public key", rule, Phrase(f"another kind of key in {path}"), remedy)
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    # Devices' clocks may be a little behind.
    begin = datetime.now(UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        if not fullmatch(_HOST, name) or fullmatch(r"[0-9.]+", name):
            raise complain("names", "host names and addresses", name) from None
        return x509.DNSName(name)


def _write_pair(
    certificate: Path, key: Path, signed: x509.Certificate, private: ec.EllipticCurvePrivateKey
) -> None:
    format_ = serialization.PrivateFormat.PKCS8
    secret = private.private_bytes(serialization.Encoding.PEM, format_, serialization.NoEncryption())
    write_new(key, secret, 0o600)
    try:
        write_new(certificate, signed.public_bytes(serialization.Encoding.PEM))
    except BaseException:
        key.unlink()
        raise
