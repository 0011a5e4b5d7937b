"""``flwr-mel doctor`` against a real TLS server with real certificates, and everything that may be wrong."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager
from email.utils import formatdate
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from flwr_mel.cli import app
from flwr_mel.cli.doctor import checks
from flwr_mel.cli.doctor.checks import Health
from flwr_mel.deployment.bundles import Bundle, DeviceSettings, make_bundle
from flwr_mel.deployment.place import ServerPlace
from flwr_mel.deployment.secrets import make_device_key


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    home = tmp_path_factory.mktemp("authority")
    for name in ("good", "other"):
        ServerPlace(home / name).prepare({"names": ("localhost",)}, days=825)
    return home


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "device.key"
    make_device_key(path, path.with_suffix(".key.pub"), "pi-1")
    return path


def test_findings_do_not_run_into_the_line_that_says_looking(monkeypatch, key):
    out = Console(file=StringIO(), force_terminal=True, width=80)
    found = checks.Finding("key", Health.GOOD, "there", "")

    def examine(*_):
        time.sleep(0.3)  # until the line is drawn
        yield found

    monkeypatch.setattr("flwr_mel.cli.doctor.command.console", lambda: out)
    monkeypatch.setattr("flwr_mel.cli.doctor.command.examine", examine)
    CliRunner().invoke(app, ["doctor", "localhost:1", str(key), str(key)])
    written = out.file.getvalue()
    assert "\x1b[2K" in written[written.index("looking ...") : written.index("there")], "it is wiped first"


@contextmanager
def serving(directory):
    """Serve TLS on a free port of the loopback until the end of the block."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(raw, server_side=True) as secured:
                    if secured.recv(1000):
                        secured.sendall(
                            f"HTTP/1.1 403 No\r\nDate: {formatdate(usegmt=True)}\r\n\r\n".encode()
                        )
            except (OSError, ssl.SSLError):
                raw.close()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def call(*args, code=0):
    done = CliRunner().invoke(app, ["doctor", *map(str, args)])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def any_machine(monkeypatch):
    """Let a client process start as slowly as a busy machine makes it."""
    monkeypatch.setattr(checks, "START_LIMIT_S", 1000.0)


def found(findings):
    return {finding.what: finding for finding in findings}


def test_a_device_that_is_ready(authority, key, tmp_path, any_machine):
    (tmp_path / "x.npy").write_bytes(b"data")
    with serving(authority / "good") as port:
        args = (f"localhost:{port}", authority / "good" / "ca.pem", key, "--data-dir", tmp_path)
        told = json.loads(call(*args, "--json").stdout)
    assert told["ready"]
    seen = {one["what"]: one["health"] for one in told["findings"]}
    everything = "software key name port TLS clock data load threads disk start-up"
    assert set(seen) == set(everything.split())
    assert "bad" not in seen.values()
    assert seen["TLS"] == seen["key"] == seen["clock"] == "good"


def test_a_bundle_says_it_all(authority, tmp_path, any_machine):
    (tmp_path / "x.npy").write_bytes(b"data")
    with serving(authority / "good") as port:
        settings = DeviceSettings("pi-1", f"localhost:{port}", {"data-dir": str(tmp_path)})
        make_bundle(Bundle(tmp_path / "pi-1"), settings, authority / "good" / "ca.pem", None)
        told = json.loads(call(tmp_path / "pi-1", "--json").stdout)
        assert "CA and KEY" in call(f"localhost:{port}", code=2).output
    assert told["ready"]
    assert "data" in {one["what"] for one in told["findings"]}
    assert "BUNDLE must be a directory with settings.toml" in call(authority / "good", code=2).output


@pytest.mark.parametrize(
    ("ahead_s", "health"), [(-400, "bad"), (-100, "doubt"), (-5, "good"), (3, "good"), (6, "bad")]
)
def test_clocks_that_flower_refuses(monkeypatch, ahead_s, health):
    monkeypatch.setattr(checks.time, "time", lambda: 1e9 + ahead_s)
    assert found(checks.clock(formatdate(1e9, usegmt=True)))["clock"].health == health


def test_a_server_that_tells_no_time():
    assert found(checks.clock(""))["clock"].health is Health.DOUBT


def test_what_is_bad_is_shown_with_its_remedy(authority, key):
    with serving(authority / "good") as port:
        done = call(f"localhost:{port}", authority / "other" / "ca.pem", key, code=4)
    assert done.output.rstrip().endswith("not ready")
    assert "TLS" in done.output
    assert "Copy ca.pem from the server" in done.output


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":9092", "localhost:99999", "a:b"])
def test_an_address_is_host_and_port(address):
    assert "HOST:PORT" in call(address, "ca", "key", code=2).output


def test_modules_are_names(tmp_path):
    assert "--import" in call("a:1", "ca", "key", "--import", "os; print()", code=2).output


def test_names_and_ports(authority):
    ca = authority / "good" / "ca.pem"
    nowhere = found(checks.server("no-such-host.invalid", 1, ca))
    assert nowhere["name"].health is Health.BAD
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    closed = found(checks.server("127.0.0.1", port, ca))
    assert closed["port"].health is Health.BAD
    assert "Is the SuperLink running?" in closed["port"].remedy


def test_a_server_without_tls_and_a_certificate_that_is_none(authority, tmp_path):
    ca = authority / "good" / "ca.pem"
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer():
            raw, _ = plain.accept()
            with raw:
                raw.recv(100)
                raw.sendall(b"hello, this is no TLS at all\n" * 10)

        thread = threading.Thread(target=answer)
        thread.start()
        seen = found(checks.server("127.0.0.1", plain.getsockname()[1], ca))
        thread.join()
    assert "serve TLS" in seen["TLS"].remedy
    (tmp_path / "ca.pem").write_text("nothing")
    with serving(authority / "good") as port:
        seen = found(checks.server("127.0.0.1", port, tmp_path / "ca.pem"))
    assert seen["TLS"].health is Health.BAD


def test_a_certificate_for_another_name(authority):
    with serving(authority / "good") as port:
        seen = found(checks.server("127.0.0.2", port, authority / "good" / "ca.pem"))
    assert seen.get("TLS", seen["port"]).health is Health.BAD


def test_a_clock_that_is_wrong_is_told(authority, tmp_path):
    """The certificate has ended, as it seems to a device whose clock runs ahead."""
    old = tmp_path / "old"
    shutil.copytree(authority / "good", old)
    extensions = tmp_path / "ext"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    request = [
        "openssl",
        "req",
        "-new",
        "-key",
        old / "server.key",
        "-subj",
        "/CN=x",
        "-out",
        tmp_path / "csr",
    ]
    subprocess.run(request, check=True, capture_output=True)
    sign = [
        "openssl",
        "x509",
        "-req",
        "-in",
        tmp_path / "csr",
        "-CA",
        old / "ca.pem",
        "-CAkey",
        old / "ca.key",
    ]
    sign += ["-CAcreateserial", "-days", "-1", "-extfile", extensions, "-out", old / "server.pem"]
    subprocess.run(sign, check=True, capture_output=True)
    with serving(old) as port:
        seen = found(checks.server("127.0.0.1", port, old / "ca.pem"))
    assert "Check the clock" in seen["TLS"].remedy


def test_keys(key, tmp_path):
    assert found(checks.key_file(key))["key"].health is Health.GOOD
    assert "without .pub" in found(checks.key_file(key.with_suffix(".key.pub")))["key"].remedy
    assert found(checks.key_file(tmp_path / "none"))["key"].health is Health.BAD
    loose = tmp_path / "loose"
    loose.write_text(key.read_text())
    os.chmod(loose, 0o644)
    assert found(checks.key_file(loose))["key"].health is Health.DOUBT


def test_data(tmp_path):
    assert list(checks.data(None)) == []
    assert found(checks.data(tmp_path))["data"].health is Health.BAD
    assert found(checks.data(tmp_path / "none"))["data"].health is Health.BAD


def test_profiles(tmp_path):
    assert list(checks.profile(None)) == []
    (tmp_path / "p.toml").write_text("what = 3")
    assert found(checks.profile(tmp_path / "p.toml"))["profile"].health is Health.BAD


def test_a_client_process_that_cannot_start_and_one_that_is_slow(monkeypatch, tmp_path):
    failed = found(checks.start_up(["no_such_module"], os.environ))["start-up"]
    assert failed.health is Health.BAD
    assert "no_such_module" in failed.detail
    took = iter([20.0, 1.0, 20.0, 20.0, 40.0, 40.0])
    now = iter([t for seconds in took for t in (0.0, seconds)])
    monkeypatch.setattr(checks.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(checks.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, "", ""))
    # The first one may compile: what counts is the second.
    assert found(checks.start_up([], {}))["start-up"].health is Health.GOOD
    assert found(checks.start_up([], {}))["start-up"].health is Health.DOUBT
    assert found(checks.start_up([], {}))["start-up"].health is Health.BAD


def test_load_and_threads(monkeypatch):
    monkeypatch.setattr(checks.os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    monkeypatch.setattr(checks.os, "cpu_count", lambda: 4)
    seen = found(checks.load({}))
    assert seen["load"].health is seen["threads"].health is Health.DOUBT
    monkeypatch.setattr(checks.os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    seen = found(checks.load({"OMP_NUM_THREADS": "1"}))
    assert seen["load"].health is seen["threads"].health is Health.GOOD


def test_a_full_disk(monkeypatch, tmp_path):
    assert found(checks.disk(tmp_path / "not" / "there"))["disk"].health is Health.GOOD
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: usage)
    assert found(checks.disk(tmp_path))["disk"].health is Health.BAD
