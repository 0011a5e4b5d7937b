"""Profiles: real functions, real sockets, real processes; what was put in must come out as a ratio."""

import json
import logging
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import tomllib
import types
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from flwr_mel import Device, wire
from flwr_mel.clientapp import mel_mod
from flwr_mel.costs import Coefficients, Workload
from flwr_mel.learners import Measured
from flwr_mel.profiling import (
    ComputeCosts,
    EnergyCosts,
    LinkRate,
    LinkServer,
    Profile,
    Run,
    choose_meter,
    energy_costs,
    make_profile,
    measure_compute,
    measure_link,
    read_profile,
    write_profile,
)
from flwr_mel.profiling.energy import MeterName
from flwr_mel.profiling.fit import fit
from flwr_mel.profiling.link import parse_address
from flwr_mel.profiling.link_server import Limits
from flwr_mel.profiling.loading import load_function

with warnings.catch_warnings():
    # typer uses names that newer releases of click announce to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from flwr_mel.cli import app as cli

C2, C1, C0 = 4e-4, 1e-4, 0.02


def sleeper(samples, epochs):
    time.sleep(C2 * samples * epochs + C1 * samples + C0)


def costs(c2=1e-3, c1=0.0, c0=0.0, joules=None):
    points = [(1, 100), (1, 400), (4, 100), (2, 200), (4, 400)]
    runs = [
        Run(e, d, c2 * e * d + c1 * d + c0, None if joules is None else joules(e, d)) for e, d in points * 2
    ]
    seconds = sum(run.seconds for run in runs)
    total = None if joules is None else sum(run.joules for run in runs)
    return ComputeCosts(c2, c1, c0, (1e-5, 0.0, 0.0), 0.01, 400, 4, tuple(runs), seconds, total)


NO_ENERGY = EnergyCosts(0.0, 0.0, 0.0, MeterName.NONE, "not measured")


# The fit


@pytest.mark.parametrize("true", [(1e-4, 2e-5, 0.3), (3.0, 0.0, 0.0), (1e-9, 0.0, 5e-6), (1e-3, 0.5, 0.0)])
def test_the_fit_finds_what_was_put_in(true):
    points = [(e, d) for e in (1, 2, 4) for d in (50, 100, 200)] * 3
    seconds = [true[0] * e * d + true[1] * d + true[2] for e, d in points]
    assert fit(points, seconds) == pytest.approx(true, rel=1e-6, abs=1e-9 * max(seconds))
    seconds[4] *= 30  # one run was disturbed
    assert fit(points, seconds) == pytest.approx(true, rel=1e-6, abs=1e-9 * max(seconds))


def test_the_fit_has_no_negative_coefficients():
    points = [(1, 10), (1, 100), (4, 10), (4, 100)] * 2
    assert min(fit(points, [1e-3 * e * d - 2e-3 * d + 1e-3 for e, d in points])) >= 0


# Timing


def test_a_known_cost_is_measured():
    got = measure_compute(sleeper, samples=160, budget_s=8, repeats=5)
    assert got.c2 / C2 == pytest.approx(1, rel=0.15)
    for epochs, samples in ((1, 160), (4, 40), (4, 160)):
        want = C2 * samples * epochs + C1 * samples + C0
        assert (got.c2 * samples * epochs + got.c1 * samples + got.c0) / want == pytest.approx(1, rel=0.15)
    assert len(got.runs) == 25
    assert got.spread is not None
    assert got.spread[0] < 0.2 * C2
    assert got.elapsed_s >= sum(run.seconds for run in got.runs)
    assert got.elapsed_j is None


def test_one_slow_run_does_not_matter():
    calls = []

    def disturbed(samples, epochs):
        calls.append((epochs, samples))
        sleeper(samples, epochs)
        if len(calls) == 3 + 5:  # the largest run of the first round
            time.sleep(1.0)

    got = measure_compute(disturbed, samples=160, budget_s=8, repeats=3)
    assert max(run.seconds for run in got.runs) > 1.0
    assert got.c2 / C2 == pytest.approx(1, rel=0.15)


def test_a_numpy_training_loop():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, 400)), rng.normal(size=2000)

    def train(samples, epochs):
        w = np.zeros(400)
        for _ in range(epochs):
            for k in np.arange(samples) % 2000:
                w -= 1e-4 * (x[k] @ w - y[k]) * x[k]

    got = measure_compute(train, samples=10_000, budget_s=8)
    took = []
    for _ in range(9):
        start = time.perf_counter()
        train(10_000, 4)
        took.append(time.perf_counter() - start)
    # Wide, because the machine may be busy with something else in one of the two measurements.
    assert 0.5 < got.c2 * 40_000 / np.median(took) < 2


def test_the_budget_is_kept_by_fewer_samples():
    start = time.perf_counter()
    got = measure_compute(sleeper, samples=4000, budget_s=3, repeats=5)
    assert time.perf_counter() - start < 4.5
    assert 8 <= got.samples < 2000
    assert got.c2 / C2 == pytest.approx(1, rel=0.2)


def test_progress_and_counter():
    told, joules = [], iter(range(1000))
    got = measure_compute(
        sleeper,
        samples=40,
        repeats=2,
        counter_j=lambda: float(next(joules)),
        on_run=lambda *news: told.append(news),
    )
    assert [done for done, _, _ in told] == list(range(1, 11))
    assert {of for _, of, _ in told} == {10}
    assert {run.joules for run in got.runs} == {1.0}
    assert got.elapsed_j == 21.0


def only_epochs(samples, epochs):
    time.sleep(0.02 * epochs)


def only_samples(samples, epochs):
    time.sleep(0.001 * samples)


def broken(samples, epochs):
    raise KeyError("no data\nhere")


def leaves(samples, epochs):
    sys.exit(3)


@pytest.mark.parametrize(
    ("train", "settings", "message"),
    [
        (broken, {}, r"train\(samples=6, epochs=1\) raised KeyError: 'no data\\nhere'. Run it alone"),
        (leaves, {}, "raised SystemExit: 3"),
        (lambda samples, epochs: None, {}, "train must be slow enough to be timed.*Raise samples, e.g. to"),
        (only_epochs, {}, "takes longer for more samples.*Does it use samples?"),
        (only_samples, {}, "takes longer for more epochs.*Does it use epochs?"),
        (lambda samples, epochs: time.sleep(0.3), {"budget_s": 0.5}, "budget_s must be"),
        (sleeper, {"samples": 7}, "samples must be an integer from 8"),
        (sleeper, {"epochs": 1}, "epochs must be an integer from 2"),
        (sleeper, {"repeats": 0}, "repeats must be an integer from 1"),
        (sleeper, {"budget_s": 0}, "budget_s must be a finite number > 0"),
    ],
)
def test_functions_that_cannot_be_measured(train, settings, message):
    with pytest.raises(ValueError, match=message):
        measure_compute(train, **{"samples": 100, "budget_s": 5, "repeats": 3, **settings})


# Loading

APP = """
import time
from neighbour import SECONDS
def train(samples: int, epochs: int):
    print("hello from the function")
    time.sleep(SECONDS * samples * epochs + 0.01)
def swapped(n, tau): ...
def fails(samples, epochs): raise RuntimeError("out of data")
def nothing(samples, epochs): ...
number = 3
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    (tmp_path / "neighbour.py").write_text("SECONDS = 4e-4\n")
    (tmp_path / "my_app.py").write_text(APP)
    (tmp_path / "bad.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name in ("neighbour", "my_app", "flwr_mel_profiled_my_app", "bad"):
            del sys.modules[name]


@pytest.mark.parametrize("where", ["my_app:train", "my_app.py:train", "{}/my_app.py:train"])
def test_functions_are_found(app, where):
    function = load_function(where.format(app))
    start = time.perf_counter()
    function(samples=100, epochs=1)
    assert time.perf_counter() - start >= 0.05


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("my_app", "train must be module:function or path/file.py:function, got 'my_app'"),
        (":train", "module:function"),
        ("my_app:", "module:function"),
        ("my_app:a.b", "module:function"),
        ("missing.py:train", "missing.py cannot be imported, FileNotFoundError: there is no such file"),
        ("missing:train", "cannot be imported, ModuleNotFoundError"),
        ("bad.py:train", "bad.py cannot be imported, ModuleNotFoundError: .*nowhere_to_be_found"),
        ("my_app.py:tarin", "It has: fails, nothing, swapped, train"),
        ("my_app.py:number", r"can be called as train\(samples=100, epochs=1\), got 3"),
        ("my_app.py:swapped", r"got 'train\(n, tau\)'. Missing a required argument"),
    ],
)
def test_functions_that_cannot_be_loaded(app, where, message):
    with pytest.raises(ValueError, match=message):
        load_function(where)


# Energy


@pytest.fixture
def no_zeus(monkeypatch):
    monkeypatch.setitem(sys.modules, "zeus.device", None)


@pytest.fixture
def battery(monkeypatch):
    """A battery that loses 0.05 % at every look; no machine that runs tests has one to discharge."""
    psutil = pytest.importorskip("psutil")
    state = types.SimpleNamespace(percent=80.01, power_plugged=False)

    def look():
        state.percent -= 0.05
        return state

    monkeypatch.setattr(psutil, "sensors_battery", look, raising=False)
    return state


def test_meters_come_in_order(no_zeus, battery, monkeypatch):
    meter, reasons = choose_meter(watts=5, battery_wh=50)
    assert meter.name == "battery"
    assert len(reasons) == 1
    assert "flwr-mel[energy]" in reasons[0]
    battery.power_plugged = True
    meter, reasons = choose_meter(watts=5, battery_wh=50)
    assert meter.name == "declared"
    assert "plugged in" in reasons[1]
    meter, reasons = choose_meter(battery_wh=None)
    assert meter.name == "none"
    assert [reason.split(":")[0] for reason in reasons] == ["rapl", "battery", "declared"]
    assert "--battery-wh" in reasons[1]
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert "psutil cannot be imported" in choose_meter(battery_wh=50)[1][1]


def test_a_machine_without_a_battery(no_zeus, monkeypatch):
    psutil = pytest.importorskip("psutil")
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    assert "psutil finds no battery" in choose_meter(battery_wh=50)[1][1]
    monkeypatch.delattr(psutil, "sensors_battery")
    assert "psutil finds no battery" in choose_meter(battery_wh=50)[1][1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"only": MeterName.RAPL}, "meter must be one that works here, got 'rapl'. rapl: zeus cannot"),
        ({"only": MeterName.DECLARED}, "no watts were declared"),
        ({"watts": 0}, "watts must be a finite number > 0"),
        ({"battery_wh": -1}, "battery_wh must be a finite number > 0, got -1. Give the capacity"),
    ],
)
def test_meters_that_do_not_work(no_zeus, settings, message):
    with pytest.raises(ValueError, match=message):
        choose_meter(**settings)


def test_declared_watts_times_seconds(no_zeus):
    got = energy_costs(choose_meter(watts=5)[0], costs(2e-3, 1e-3, 0.5))
    assert (got.g2, got.g1, got.g0) == pytest.approx((1e-2, 5e-3, 2.5))
    assert got.meter == "declared"
    nothing = energy_costs(choose_meter()[0], costs())
    assert (nothing.g2, nothing.g1, nothing.g0, nothing.meter) == (0, 0, 0, "none")


def test_the_battery_gives_mean_watts(no_zeus, battery):
    meter, _ = choose_meter(battery_wh=50)
    before, after = meter.counter_j(), meter.counter_j()
    assert after - before == pytest.approx(50 * 3600 * 0.0005)
    measured = costs(joules=lambda e, d: 90.0)
    got = energy_costs(meter, measured)
    assert got.g2 == pytest.approx(measured.c2 * 900 / measured.elapsed_s)
    with pytest.raises(
        ValueError, match=r"what the battery counted must be at least 72 J, got.*Raise budget_s"
    ):
        energy_costs(meter, costs(joules=lambda e, d: 1.0))
    battery.power_plugged = True
    assert meter.counter_j() is None


@pytest.fixture
def powercap(tmp_path, monkeypatch):
    """Zeus itself on a directory like the kernel's, with a counter that we move."""
    rapl = pytest.importorskip("zeus.device.cpu.rapl")
    import zeus.device.cpu

    zone = tmp_path / "intel-rapl" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "energy_uj").write_text("5000000\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    monkeypatch.setattr(rapl, "RAPL_DIR", str(zone.parent))
    monkeypatch.setattr(zeus.device.cpu, "_cpus", None, raising=False)
    rapl.rapl_is_available.cache_clear()
    yield zone / "energy_uj"
    rapl.rapl_is_available.cache_clear()


def test_the_processors_counters_through_zeus(powercap):
    meter, reasons = choose_meter(watts=5)
    assert (meter.name, reasons) == ("rapl", [])
    assert "1 CPU package" in meter.detail
    before = meter.counter_j()
    powercap.write_text("17000000\n")
    assert meter.counter_j() - before == pytest.approx(12.0)
    got = energy_costs(meter, costs(joules=lambda e, d: 3e-3 * e * d + 2.0))
    assert (got.g2, got.g1, got.g0) == pytest.approx((3e-3, 0.0, 2.0), abs=1e-9)


# Link


@contextmanager
def served(**settings):
    server = LinkServer(**settings)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


class Relay:
    """Passes bytes on to a server, each direction at its own rate."""

    def __init__(self, port, up_bps, down_bps):
        self._target, self._rates, self._socks = port, (up_bps, down_bps), []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        self._socks = [near, far]
        for source, sink, rate in ((near, far, self._rates[0]), (far, near, self._rates[1])):
            source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass, args=(source, sink, rate), daemon=True).start()

    @staticmethod
    def _pass(source, sink, rate_bps):
        due = time.perf_counter()
        try:
            while data := source.recv(1 << 13):
                # Paced by a schedule, not by sleeps, whose lateness would add up; idle time earns nothing.
                due = max(due, time.perf_counter() - 0.02) + 8 * len(data) / rate_bps
                time.sleep(max(due - time.perf_counter(), 0))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        for sock in [self._listener, *self._socks]:
            sock.close()


def test_loopback_is_fast():
    with served() as server:
        told = []
        got = measure_link(
            "127.0.0.1", server.port, seconds=0.5, on_block=lambda way, bps: told.append((way, bps))
        )
    assert min(got.up_bps, got.down_bps) > 1e8
    assert 0 < got.round_trip_s < 0.2
    assert {way for way, _ in told} == {"up", "down"}
    assert got.bytes_moved > 1e6
    assert got.up_spread_bps >= 0


@pytest.mark.parametrize(("up", "down"), [(8e6, 32e6), (40e6, 10e6)])
def test_the_measured_rate_follows_the_links(up, down):
    with served() as server:
        relay = Relay(server.port, up, down)
        try:
            got = measure_link("127.0.0.1", relay.port, seconds=1.5)
        finally:
            relay.close()
    assert got.up_bps / up == pytest.approx(1, rel=0.25)
    assert got.down_bps / down == pytest.approx(1, rel=0.25)


def ask(port, *lines, read=200):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
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
        end = time.monotonic() + 5
        while ask(server.port, b"mel1 ping 0\n") != "ok\n":
            assert time.monotonic() < end
            time.sleep(0.05)


def test_the_servers_limits():
    with served(limits=Limits(connection_bytes=100_000)) as server:
        assert ask(server.port, b"mel1 down 100001\n") == "no limit of 100000 bytes reached\n"
        with pytest.raises(ValueError, match="link: the server refused: limit of 100000 bytes reached"):
            measure_link("127.0.0.1", server.port, seconds=0.5)
    crowded = served(limits=Limits(connections=1))
    with crowded as server, socket.create_connection(("127.0.0.1", server.port)) as first:
        first.sendall(b"mel1 ping 0\n")
        assert first.recv(10) == b"ok\n"
        assert ask(server.port) == "no too many connections, try again later\n"
        with pytest.raises(ValueError, match="refused: too many connections"):
            measure_link("127.0.0.1", server.port, seconds=0.5)
    start = time.monotonic()
    LinkServer(limits=Limits(lifetime_s=0.3)).serve()
    assert 0.3 <= time.monotonic() - start < 3


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


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def test_nobody_answers():
    with pytest.raises(ValueError, match=r"no link server at 127.0.0.1:\d+: .*refused. Start one there"):
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
        got = measure_link("127.0.0.1", server.port, seconds=0.3, ca_file=cert)
        assert got.up_bps > 1e7
        with pytest.raises(ValueError, match=r"TLS with .* failed: CERTIFICATE_VERIFY_FAILED"):
            measure_link("127.0.0.1", server.port, seconds=0.3, ca_file=stranger)
        with pytest.raises(ValueError, match="link: "):
            measure_link("127.0.0.1", server.port, seconds=0.3, timeout_s=1)
        with pytest.raises(ssl.SSLError):
            ssl.create_default_context().wrap_socket(
                socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1"
            )


# Profiles

FULL = Profile(
    Measured(1.2345678901234567e-4, 1e-300, 0.1 + 0.2, 1e-9, 0.0, 7.0, 12.5, 4000, 'pi "1" ü'),
    {"meter": "declared", "runs": 25, "error": 0.012, "text": 'a "b" \\ c\t\x7f'},
)


def test_files_give_back_the_same_profile(tmp_path):
    path = write_profile(FULL, tmp_path / "p.toml")
    assert read_profile(path) == FULL
    assert path.is_absolute()
    assert [p.name for p in tmp_path.iterdir()] == ["p.toml"]
    document = tomllib.loads(path.read_text())
    assert set(document) == {
        wire.LEARNER, *wire.COEFFICIENTS, wire.ENERGY_LIMIT_J, wire.MAX_SAMPLES, "measured"
    }  # fmt: skip
    bare = Profile(Measured(1, 0, 0, 0, 0, 0))
    write_profile(bare, path, force=True)
    assert read_profile(path) == bare


def test_flowers_parser_reads_the_node_config(tmp_path):
    from flwr.common.config import parse_config_args

    for name in ("", "pi", "pi 1", 'pi "1"', "o'neil", "back\\slash"):
        profile = Profile(Measured(1.5e-4, 0, 1e-7, 2e-5, 0, 3, 10, 500, name))
        assert parse_config_args([profile.node_config()]) == profile.words()
    path = write_profile(FULL, tmp_path / "p.toml")
    whole = parse_config_args([str(path)])  # Flower takes the file itself, too
    assert {key: x for key, x in whole.items() if key.startswith("mel-")} == FULL.words()
    with pytest.raises(ValueError, match="without single quotes beside double ones"):
        Profile(Measured(1, 0, 0, 0, 0, 0, name="'\"")).node_config()


def test_transfers_cost_what_the_cost_model_says():
    rate, model, sample, power = 2e6, 1_121_760, 784, 0.2
    link = LinkRate(rate, rate, 0.0, 0.0, 0.01, 1)
    got = make_profile(
        costs(1e-3, 2e-3, 0.5), NO_ENERGY, link, model_bytes=model, sample_bytes=sample, tx_watts=power
    ).device
    job = Workload(model // 4, 1e6, sample)
    want = Coefficients.from_devices([Device(1e9, rate, power)], job)
    assert got.c2 == 1e-3
    assert got.c1 - 2e-3 == pytest.approx(want.c1[0])
    assert got.c0 - 0.5 == pytest.approx(want.c0[0])
    assert got.g0 == pytest.approx(want.g0[0])
    lopsided = LinkRate(1e6, 4e6, 0.0, 0.0, 0.01, 1)
    got = make_profile(costs(), NO_ENERGY, lopsided, model_bytes=1000, sample_bytes=100, tx_watts=2).device
    assert (got.c1, got.c0, got.g0) == pytest.approx((800 / 4e6, 8000 / 1e6 + 8000 / 4e6, 2 * 8000 / 1e6))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_profile(costs(), NO_ENERGY, model_bytes=3), "given with a measured link only"),
        (lambda: make_profile(costs(), NO_ENERGY, tx_watts=-1), "tx_watts must be"),
        (lambda: make_profile(costs(), NO_ENERGY, name="a\nb"), "mel-learner must be a printable name"),
        (lambda: make_profile(costs(c2=0.0), NO_ENERGY), "c2 must be a finite number > 0"),
        (lambda: Profile(Measured(1e10, 0, 0, 0, 0, 0)), "mel-c2 must be between 1e-15 and 1e\\+09"),
        (lambda: Profile(Measured(1, 0, 0, 0, 0, 0), {"a": True}), "measured.a must be a number or a text"),
        (lambda: Profile(Measured(1, 0, 0, 0, 0, 0), {"a b": 1}), "measured.a b must be"),
    ],
)
def test_profiles_that_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


SIX = "".join(f"{key} = 1.0\n" for key in wire.COEFFICIENTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mel-c2 = ", "this is not valid TOML"),
        (b"\xff\xfe", "can't decode"),
        ("", "mel-c2 must be given, with the other five"),
        ("mel-c2 = 1.0", "mel-c1 is missing"),
        (SIX.replace("mel-c2 = 1.0", "mel-c2 = -1.0"), "mel-c2 must be between 1e-15"),
        (SIX.replace("mel-g0 = 1.0", "mel-g0 = nan"), "mel-g0 must be a finite number"),
        (SIX.replace("mel-g0 = 1.0", 'mel-g0 = "1"'), "mel-g0 must be a finite number"),
        (SIX + "mel-max-samples = 1.5", "mel-max-samples must be an integer"),
        (SIX + "mel-energy-limit-j = 0", "mel-energy-limit-j must be between"),
        (SIX + "mel-learner = true", "mel-learner must be a printable name"),
        (SIX + "mel-battery-j = 3", "every key must be one of .*got 'mel-battery-j'"),
        (SIX + "measured = 3", "measured must be a table"),
        (SIX + "[measured]\nx = [1]", "measured.x must be a number or a text"),
        (SIX + "#" * 70000, "its size must be at most 65536 bytes"),
    ],
)
def test_bad_files_name_the_file_and_the_fault(tmp_path, text, message):
    path = tmp_path / "p.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=f"^profile {re.escape(str(path))}: .*{message}"):
        read_profile(path)


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_profile(tmp_path / "none.toml")
    with pytest.raises(ValueError, match=r"out must be a file name that ends in .toml"):
        write_profile(FULL, tmp_path / "p.txt")
    path = write_profile(FULL, tmp_path / "p.toml")
    with pytest.raises(ValueError, match=r"out must be a new file.*Replace it with --force"):
        write_profile(Profile(Measured(1, 0, 0, 0, 0, 0)), path)
    assert read_profile(path) == FULL
    with pytest.raises(ValueError, match="in a directory that can be written to"):
        write_profile(FULL, tmp_path / "no" / "p.toml")


# The mod


@pytest.fixture
def identity(monkeypatch):
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def said(run_config=None, **node_config):
    context = Context(
        run_id=1, node_id=2, node_config=node_config, state=RecordDict(), run_config=run_config or {}
    )
    content = RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: 1})})
    reply = mel_mod(Message(content, 1, "train"), context, None)
    return dict(reply.content[wire.RECORD])


def test_the_mod_reads_the_profile_and_sees_changes(identity, tmp_path, caplog):
    path = write_profile(FULL, tmp_path / "p.toml")
    node = {"mel-profile": str(path), "partition-id": 3}
    assert said(**node) == FULL.words()
    other = Profile(Measured(2, 0, 0, 0, 0, 0))
    write_profile(other, path, force=True)
    assert said(**node) == {**other.words(), wire.LEARNER: "3"}
    assert not caplog.records
    path.write_text("mel-c2 = -1\n")
    for _ in range(3):
        assert said(**node) == {wire.LEARNER: "3"}
    assert len(caplog.records) == 1  # once, not every cycle
    assert str(path) in caplog.text
    assert "goes on without a profile" in caplog.text
    path.unlink()
    assert said(**node) == {wire.LEARNER: "3"}
    assert "No such file" in caplog.text
    write_profile(FULL, path)
    assert said(**node) == FULL.words()


def test_what_wins(identity, tmp_path, caplog):
    path = write_profile(FULL, tmp_path / "p.toml")
    node = {"mel-profile": str(path)}
    assert said(**node, **{"mel-c0": 9.0, "mel-learner": "x"}) == {
        **FULL.words(), "mel-c0": 9.0, "mel-learner": "x"
    }  # fmt: skip
    assert said({"mel-c0": 9.0, "mel-battery-j": 4.0}, **node) == {**FULL.words(), "mel-battery-j": 4.0}
    physical = {"mel-cpu-hz": 1e9, "mel-rate-bps": 1e6, "mel-tx-power-w": 0.1}
    limits = {wire.LEARNER: FULL.device.name, wire.ENERGY_LIMIT_J: 12.5, wire.MAX_SAMPLES: 4000}
    assert said(**node, **physical) == {**physical, **limits}
    # A path from anybody but the device is not opened.
    assert said({"mel-profile": str(path)}, name="x") == {wire.LEARNER: "x"}
    assert not caplog.records
    with caplog.at_level(logging.ERROR):
        assert said(**{"mel-profile": 3, "name": "x"}) == {wire.LEARNER: "x"}
    assert "mel-profile must be the path" in caplog.text


# The commands as processes


def command(*args):
    return [sys.executable, "-m", "flwr_mel.cli", *map(str, args)]


def run(*args, code=0, **kwargs):
    root = str(Path(__file__).parent.parent)
    done = subprocess.run(
        command(*args),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": root},
        **kwargs,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@contextmanager
def link_server(*args):
    process = subprocess.Popen(
        command("link-server", *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process, process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "note: ended\n")


def test_profile_and_link_server_end_to_end(app):
    port = free_port()
    with link_server("--port", port) as (_, line):
        assert line == f"listening at 127.0.0.1:{port} (no TLS) for 3600 s; Ctrl-C ends it\n"
        options = ("--train", "my_app.py:train", "--samples", 200, "--budget", 6, "--repeats", 3)
        energy = ("--meter", "declared", "--watts", 5, "--energy-limit", 20, "--max-samples", 900)
        link = ("--link", f"127.0.0.1:{port}", "--link-seconds", 0.5, "--model-bytes", 1000)
        done = run("profile", *options, *energy, *link, "--name", "pi", "--out", "p.toml", cwd=app)
    got = read_profile(app / "p.toml")
    assert got.device.c2 / 4e-4 == pytest.approx(1, rel=0.2)
    assert got.device.g2 == pytest.approx(5 * got.device.c2)
    assert (got.device.name, got.device.energy_limit_j, got.device.max_samples) == ("pi", 20, 900)
    assert got.measured["up-bps"] > 1e7
    assert got.measured["runs"] == 15
    assert got.measured["meter"] == "declared"
    assert "hello from the function" not in done.stdout
    for word in ("Profile of pi", "seconds per sample and epoch", "Mbit/s sending", "declared", "spread"):
        assert word in done.stdout
    option = shlex.split(done.stdout.splitlines()[-1])
    from flwr.common.config import parse_config_args

    assert option[0] == "--node-config"
    assert parse_config_args(option[1:]) == {"mel-profile": str(app / "p.toml")}


def test_json_and_no_file(app):
    options = ("--train", "my_app:train", "--samples", 100, "--repeats", 2, "--json", "--meter", "none")
    done = run("profile", *options, "--energy-limit", 3, cwd=app)
    got = json.loads(done.stdout)
    assert got["file"] is None
    assert got["profile"]["mel-c2"] / 4e-4 == pytest.approx(1, rel=0.2)
    assert shlex.split(got["option"]) == ["--node-config", got["node_config"]]
    assert "hello from the function" in done.stderr
    assert "energy is not measured" in done.stderr
    assert "--energy-limit has no effect" in done.stderr
    assert not list(app.glob("*.toml"))


@pytest.mark.parametrize(("watts", "meter"), [(("--watts", 4), "declared"), ((), "none")])
def test_a_battery_that_shows_nothing(app, no_zeus, monkeypatch, watts, meter):
    psutil = pytest.importorskip("psutil")
    still = types.SimpleNamespace(percent=80, power_plugged=False)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: still, raising=False)
    args = ("--train", "my_app.py:train", "--samples", 100, "--repeats", 2, "--battery-wh", 50, "--json")
    done = CliRunner().invoke(cli, ["profile", *map(str, (*args, *watts))])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["measured"]["meter"] == meter
    assert "battery: what the battery counted must be at least 7.2e+03 J, got '0 J in" in done.stderr
    assert "Raise --budget" in done.stderr
    strict = CliRunner().invoke(cli, ["profile", *map(str, (*args, *watts, "--meter", "battery"))])
    assert (strict.exit_code, strict.stdout) == (2, "")


TRAIN = ("--train", "my_app.py:train", "--samples", 100)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--train", "my_app.py:fails", "--samples", 100), "raised RuntimeError: out of data"),
        (("--train", "my_app.py:nothing", "--samples", 100), "--train must be slow enough"),
        (("--train", "my_app.py", "--samples", 100), "--train must be module:function"),
        (("--train", "my_app.py:train", "--samples", 3), "--samples must be an integer from 8"),
        ((*TRAIN, "--budget", 0), "--budget must be a finite number > 0"),
        ((*TRAIN, "--watts", -5), "--watts must be a finite number > 0"),
        ((*TRAIN, "--meter", "declared"), "--meter must be one that works here"),
        ((*TRAIN, "--energy-limit", 0), "--energy-limit must be a finite number > 0"),
        ((*TRAIN, "--model-bytes", 5), "--model-bytes and --sample-bytes need a measured rate: give --link"),
        ((*TRAIN, "--link", "nowhere"), "--link must be HOST:PORT"),
        ((*TRAIN, "--link", "127.0.0.1:1"), "--link: no link server at 127.0.0.1:1"),
        ((*TRAIN, "--out", "my_app.py"), "--out must be a file name that ends in .toml"),
        ((*TRAIN, "--out", "there.toml"), "--out must be a new file"),
        (("--samples", 100), "Missing option '--train'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(app, args, message):
    (app / "there.toml").write_text("mine")
    done = CliRunner().invoke(cli, ["profile", *map(str, args)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert (app / "there.toml").read_text() == "mine"


def test_bad_input_of_the_server(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("link-server", "--port", taken.getsockname()[1], code=2)
    assert "--host and --port must be one to listen at" in done.stderr
    for option, value in (
        ("--max-bytes", 0),
        ("--max-seconds", 0),
        ("--max-connections", 0),
        ("--lifetime", 0),
    ):
        done = CliRunner().invoke(cli, ["link-server", "--port", "0", option, str(value)])
        assert done.exit_code == 2
        assert f"{option} must be" in done.stderr
    done = CliRunner().invoke(cli, ["link-server", "--port", "0", "--tls-cert", "a.pem"])
    assert "--tls-cert and --tls-key must be given together" in done.stderr
    got = run("link-server", "--port", 0, "--lifetime", 0.2, "--json")
    assert json.loads(got.stdout)["host"] == "127.0.0.1"


def test_the_package_imports_without_optional_packages():
    code = "import flwr_mel.profiling, sys; print(*{'psutil', 'zeus', 'flwr', 'rich'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, "")
