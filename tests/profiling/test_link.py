"""The link: real sockets, both ends."""

import socket
import ssl
import threading
import time
from contextlib import suppress

import pytest

from flwr_mel.profiling import LinkServer, measure_link
from flwr_mel.profiling.link import parse_address
from flwr_mel.profiling.link_server import Limits
from tests.ports import free_port
from tests.profiling.tools import Clock, limits, measured, served
from tests.waiting import PATIENCE_S, wait_for


class Relay:
    """Passes bytes on to a server, each direction at its own rate on a clock of its own."""

    def __init__(self, port, up_bps, down_bps):
        self._target, self._rates, self._socks = port, (up_bps, down_bps), []
        self.clock = Clock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        self._socks = [near, far]
        for source, sink, rate in ((near, far, self._rates[0]), (far, near, self._rates[1])):
            threading.Thread(target=self._pass, args=(source, sink, rate), daemon=True).start()

    def _pass(self, source, sink, rate_bps):
        try:
            while data := source.recv(1 << 13):
                self.clock.sleep(8 * len(data) / rate_bps)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        for sock in [self._listener, *self._socks]:
            sock.close()


def test_blocks_are_told_and_counted():
    with served() as server:
        told = []
        got = measured(server.port, on_block=lambda way, bps: told.append((way, bps)))
    assert min(got.up_bps, got.down_bps) > 0
    assert got.round_trip_s > 0
    assert {way for way, _ in told} == {"up", "down"}
    assert got.bytes_moved >= 4096 * len(told)
    assert got.up_spread_bps >= 0


@pytest.mark.parametrize(("up", "down"), [(8e6, 32e6), (40e6, 10e6)])
def test_the_measured_rate_follows_the_links(up, down):
    with served() as server:
        relay = Relay(server.port, up, down)
        try:
            got = measured(relay.port, seconds=1.5, clock=relay.clock)
        finally:
            relay.close()
    # Lines of some bytes travel beside the payload.
    assert got.up_bps / up == pytest.approx(1, rel=0.01)
    assert got.down_bps / down == pytest.approx(1, rel=0.01)


def ask(port, *lines, read=200):
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        sock.sendall(b"".join(lines))
        return sock.recv(read).decode()


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1\r\n", b"mel1 fly 3\n", b"mel1 up -3\n", b"mel1 up \xc2\xb2\n", b"mel1 up\n"]
)
def test_the_server_refuses_other_talk(line):
    with served() as server:
        assert ask(server.port, line) == "no not understood\n"
        assert ask(server.port, b"mel1 ping 0\n") == "ok\n"


@pytest.mark.parametrize("talk", [b"x" * 1000, b"\xff\xfe\n", b"mel1 up 100\nonly this", b""])
def test_odd_visitors_do_not_stop_the_server(talk):
    with served(limits=Limits(connection_s=0.5, connections=1)) as server:
        with suppress(ConnectionResetError):  # closed with some of our bytes unread
            assert ask(server.port, talk) == ""

        def answered():
            with suppress(ConnectionResetError):  # half a second was too short for this machine
                return ask(server.port, b"mel1 ping 0\n") == "ok\n"

        wait_for(answered, pause_s=0.05)


def test_the_servers_limits():
    with served(limits=limits(connection_bytes=100_000)) as server:
        assert ask(server.port, b"mel1 down 100001\n") == "no limit of 100000 bytes reached\n"
        with pytest.raises(ValueError, match="got a refusal: limit of 100000 bytes reached"):
            measured(server.port)
    crowded = served(limits=limits(connections=1))
    with crowded as server, socket.create_connection(("127.0.0.1", server.port)) as first:
        first.sendall(b"mel1 ping 0\n")
        assert first.recv(10) == b"ok\n"
        assert ask(server.port) == "no too many connections, try again later\n"
        with pytest.raises(ValueError, match="got a refusal: too many connections"):
            measured(server.port)
    start = time.monotonic()
    LinkServer(limits=Limits(lifetime_s=0.3)).serve()
    assert time.monotonic() - start >= 0.3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Limits(connections=0), "connections must be"),
        (lambda: Limits(connection_bytes=0), "connection_bytes must be"),
        (lambda: Limits(connection_s=0), "connection_s must be"),
        (lambda: Limits(lifetime_s=-1), "lifetime_s must be"),
        (lambda: LinkServer(port=70000), "port must be a port from 0 to 65535"),
        (lambda: LinkServer("203.0.113.1"), "address must be one to listen at"),
        (lambda: LinkServer(cert_file="a.pem"), "tls_cert and tls_key must be given together"),
        (lambda: LinkServer(cert_file="a.pem", key_file="b"), "tls_cert and tls_key must be PEM files"),
        (lambda: parse_address("server"), "link must be HOST:PORT"),
        (lambda: parse_address("server:0"), "link must be HOST:PORT"),
        (lambda: parse_address(":80"), "link must be HOST:PORT"),
        (lambda: measure_link("127.0.0.1", 1, seconds=0), "link_seconds must be"),
        (lambda: measure_link("127.0.0.1", 1, ca_file="no.pem"), "link_ca must be a PEM file"),
    ],
)
def test_bad_settings_of_the_link(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_addresses():
    assert parse_address("server:80") == ("server", 80)
    assert parse_address("[::1]:8080") == ("::1", 8080)


def test_nobody_answers():
    with pytest.raises(
        ValueError, match=r"link server that answers, got '127.0.0.1:\d+'. .*refused. Start one there"
    ):
        measure_link("127.0.0.1", free_port())
    mute = socket.create_server(("127.0.0.1", 0))
    with mute, pytest.raises(ValueError, match="did not answer in time"):
        measure_link("127.0.0.1", mute.getsockname()[1], seconds=0.1, timeout_s=0.3)


def certificate(folder):
    """Make a self-signed certificate for 127.0.0.1."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "link")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert, secret = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return cert, secret


def test_the_link_over_tls(tmp_path):
    (tmp_path / "other").mkdir()
    cert, key = certificate(tmp_path)
    stranger, _ = certificate(tmp_path / "other")
    with served(cert_file=cert, key_file=key) as server:
        got = measured(server.port, ca_file=cert)
        assert got.up_bps > 0
        with pytest.raises(
            ValueError, match=r"certificate is trusted.*CERTIFICATE_VERIFY_FAILED. Check link_ca"
        ):
            measured(server.port, ca_file=stranger)
        with pytest.raises(ValueError, match="link must be"):
            measured(server.port, timeout_s=1)
        with pytest.raises(ssl.SSLError):
            ssl.create_default_context().wrap_socket(
                socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1"
            )
