"""`flwr-mel profile` and `flwr-mel link-server`."""

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import types
from contextlib import contextmanager

import pytest

from flwr_mel.profiling import read_profile
from tests.cli.tools import command, process, refused, run
from tests.waiting import PATIENCE_S


@contextmanager
def link_server(*args):
    process = subprocess.Popen(
        command("link-server", *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process, process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "note: ended\n")


def test_profile_and_link_server_end_to_end(app):
    with link_server("--port", 0) as (_, line):
        port = re.fullmatch(r"listening at 127.0.0.1:(\d+) \(no TLS\) for 3600 s; Ctrl-C ends it\n", line)[1]
        options = ("--train", "my_app.py:train", "--samples", 200, "--budget", 600, "--repeats", 3)
        energy = ("--meter", "declared", "--watts", 5, "--energy-limit", 20, "--max-samples", 900)
        link = ("--link", f"127.0.0.1:{port}", "--link-seconds", 0.5, "--model-bytes", 1000)
        done = process("profile", *options, *energy, *link, "--name", "pi", "--out", "p.toml", cwd=app)
    assert done.returncode == 0, done.stderr
    got = read_profile(app / "p.toml")
    assert got.device.c2 > 0
    assert got.device.g2 == pytest.approx(5 * got.device.c2)
    assert (got.device.name, got.device.energy_limit_j, got.device.max_samples) == ("pi", 20, 900)
    assert got.measured["up-bps"] > 0
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
    done = process("profile", *options, "--budget", 600, "--energy-limit", 3, cwd=app)
    got = json.loads(done.stdout)
    assert got["file"] is None
    assert got["profile"]["mel-c2"] > 0
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
    done = run("profile", *args, *watts)
    assert json.loads(done.stdout)["measured"]["meter"] == meter
    assert "battery: what the battery counted must be at least 7.2e+03 J, got '0 J in" in done.stderr
    assert "Raise --budget" in done.stderr
    assert run("profile", *args, "--meter", "battery", code=2).stdout == ""


TRAIN = ("--train", "my_app.py:train", "--samples", 100)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--train", "my_app.py:fails", "--samples", 100),
            "got RuntimeError from train(samples=6, epochs=1): out of data",
        ),
        (("--train", "my_app.py:nothing", "--samples", 100), "--train must be slow enough"),
        (("--train", "my_app.py", "--samples", 100), "--train must be module:function"),
        (("--train", "my_app.py:train", "--samples", 3), "--samples must be an integer from 8"),
        ((*TRAIN, "--budget", 0), "--budget must be a finite number > 0"),
        ((*TRAIN, "--watts", -5), "--watts must be a finite number > 0"),
        ((*TRAIN, "--meter", "declared"), "--meter must be one that works here"),
        ((*TRAIN, "--energy-limit", 0), "--energy-limit must be a finite number > 0"),
        ((*TRAIN, "--model-bytes", 5), "--model-bytes and --sample-bytes need a measured rate: give --link"),
        ((*TRAIN, "--link", "nowhere"), "--link must be HOST:PORT"),
        ((*TRAIN, "--out", "my_app.py"), "--out must be a file name that ends in .toml"),
        ((*TRAIN, "--out", "there.toml"), "--out must be a new file"),
        (("--samples", 100), "Missing option '--train'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(app, args, message):
    (app / "there.toml").write_text("mine")
    assert message in refused("profile", *args)
    assert (app / "there.toml").read_text() == "mine"


def test_a_link_that_does_not_answer(app):
    told = refused("profile", *TRAIN, "--link", "127.0.0.1:1", code=4)
    assert "--link must be a link server that answers, got '127.0.0.1:1'. Connection refused." in told


def test_bad_input_of_the_server():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = refused("link-server", "--port", taken.getsockname()[1], code=4)
    assert "--host and --port must be one to listen at" in told
    assert "Address already in use" in told
    for option, value in (
        ("--max-bytes", 0),
        ("--max-seconds", 0),
        ("--max-connections", 0),
        ("--lifetime", 0),
    ):
        assert f"{option} must be" in refused("link-server", "--port", 0, option, value)
    told = refused("link-server", "--port", 0, "--tls-cert", "a.pem")
    assert "--tls-cert and --tls-key must be given together" in told
    got = run("link-server", "--port", 0, "--lifetime", 0.2, "--json")
    assert json.loads(got.stdout)["host"] == "127.0.0.1"


def test_the_package_imports_without_optional_packages():
    code = "import flwr_mel.profiling, sys; print(*{'psutil', 'zeus', 'flwr', 'rich'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout.strip()) == (0, "")
