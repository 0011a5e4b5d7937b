"""The scripts' own manners: usage, refusals, what they make. No server is started here."""

import os
import stat
import subprocess

import pytest
import yaml

from tests.deployment.tools import DEPLOY, environment, script

SCRIPTS = sorted(path.name for path in DEPLOY.glob("*.sh") if path.name != "common.sh")


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_and_wrong_usage(name):
    help_ = script(name, "--help")
    assert help_.stdout.startswith(f"usage: {name} ")
    wrong = script(name, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr == help_.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_strict_and_executable(name):
    text = (DEPLOY / name).read_text()
    assert text.startswith("#!/bin/sh\n")
    assert "\nset -eu\n" in text
    assert os.access(DEPLOY / name, os.X_OK)
    subprocess.run(["sh", "-n", str(DEPLOY / name)], check=True)


def test_certificates(tmp_path):
    script("certificates.sh", tmp_path / "c", "mel.example.org", "192.0.2.7", "2001:db8::1")
    files = {path.name for path in (tmp_path / "c").iterdir()}
    assert files == {"ca.key", "ca.pem", "server.key", "server.pem"}
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / "c" / name).stat().st_mode) == 0o600
    command = ["openssl", "x509", "-in", str(tmp_path / "c" / "server.pem"), "-noout", "-ext"]
    names = subprocess.run([*command, "subjectAltName"], check=True, capture_output=True, text=True).stdout
    for name in ("DNS:localhost", "Address:127.0.0.1", "DNS:mel.example.org", "Address:192.0.2.7"):
        assert f"{name}," in names
    assert "2001:DB8" in names.upper()
    before = {path: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    again = script("certificates.sh", tmp_path / "c", "other.example.org", check=False)
    assert again.returncode == 1
    assert "not overwritten" in again.stderr
    assert before == {path: path.read_bytes() for path in (tmp_path / "c").iterdir()}


def test_certificates_refuse_names_that_are_none(tmp_path):
    bad = script("certificates.sh", tmp_path / "c", "a,DNS:evil.example.org", check=False)
    assert bad.returncode == 1
    assert "not a host name" in bad.stderr
    assert not list((tmp_path / "c").iterdir())


def test_a_key_is_never_overwritten(tmp_path):
    script("node_key.sh", tmp_path / "k" / "pi-7", "pi-7")
    key = tmp_path / "k" / "pi-7"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert (tmp_path / "k" / "pi-7.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    before = key.read_bytes()
    assert script("node_key.sh", key, check=False).returncode == 1
    key.unlink()
    assert script("node_key.sh", key, check=False).returncode == 1, "the public key alone must stop it too"
    assert not key.exists()
    assert before


def test_a_private_key_is_not_registered(tmp_path):
    script("node_key.sh", tmp_path / "pi-7")
    said = script("register.sh", "fleet", tmp_path / "pi-7", env=environment(tmp_path), check=False)
    assert said.returncode == 1
    assert "ends in .pub" in said.stderr


def test_connections_are_added_once(tmp_path):
    (tmp_path / "ca.pem").write_text("x")
    env = environment(tmp_path / "home")
    script("connect.sh", "fleet", "mel.example.org:8000", tmp_path / "ca.pem", env=env)
    text = (tmp_path / "home" / "config.toml").read_text()
    assert f'root-certificates = "{tmp_path / "ca.pem"}"' in text
    again = script("connect.sh", "fleet", "mel.example.org:8000", tmp_path / "ca.pem", env=env, check=False)
    assert "already" in again.stderr
    for name, address in (("a b", "h:1"), ('x"]', "h:1"), ("ok", "h"), ("ok", 'h:1"')):
        assert script("connect.sh", name, address, tmp_path / "ca.pem", env=env, check=False).returncode == 1
    assert (tmp_path / "home" / "config.toml").read_text() == text


@pytest.fixture
def fake_supernode(tmp_path):
    """A flower-supernode that prints its arguments: only what the script passes on is looked at."""
    tool = tmp_path / "venv" / "bin" / "flower-supernode"
    tool.parent.mkdir(parents=True)
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tool.chmod(0o755)
    script("node_key.sh", tmp_path / "key")
    (tmp_path / "ca.pem").write_text("x")
    env = environment(tmp_path) | {"MEL_VENV": str(tmp_path / "venv")}
    return lambda *words: script(
        "supernode.sh", "h:1", tmp_path / "ca.pem", tmp_path / "key", *words, env=env, check=False
    )


def test_node_configuration_becomes_toml(fake_supernode):
    said = fake_supernode(
        "pi-7", "data-dir=/srv/my data", "mel-energy-limit-j=5e1", "flag=true", "n=-3", "v=1.2.3"
    )
    config = said.stdout.splitlines()[-1]
    assert config == (
        'mel-learner="pi-7" data-dir="/srv/my data" mel-energy-limit-j=5e1 flag=true n=-3 v="1.2.3"'
    )


@pytest.mark.parametrize(
    "words", [("pi 7",), ("pi-7", "novalue"), ("pi-7", 'a="b'), ("pi-7", "a=b'c"), ("pi-7", "=b")]
)
def test_odd_node_configuration_is_refused(fake_supernode, words):
    said = fake_supernode(*words)
    assert (said.returncode, said.stdout) == (1, "")


def test_a_public_key_starts_no_device(tmp_path, fake_supernode):
    os.replace(tmp_path / "key.pub", tmp_path / "key")
    assert "not a private key" in fake_supernode("pi-7").stderr


def test_compose_file():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        assert service["command"][0].startswith("/opt/deploy/")
        assert (DEPLOY / service["command"][0].rsplit("/", 1)[1]).exists(), name
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


def test_units_are_hardened():
    for unit in (DEPLOY / "systemd").iterdir():
        text = unit.read_text()
        for line in (
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "CapabilityBoundingSet=",
            "Restart=always",
        ):
            assert f"\n{line}\n" in text, (unit.name, line)
