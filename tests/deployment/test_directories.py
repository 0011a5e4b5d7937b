"""What the commands make, and their manners: refusals, nothing overwritten. No server is started here."""

import json
import stat
import subprocess
import tomllib

import pytest
import yaml

from flwr_mel.deployment import secrets, serving, units
from flwr_mel.deployment.bundles import Bundle, DeviceSettings, make_bundle, numbered, parse_pairs
from flwr_mel.deployment.place import ServerPlace, ServerSettings
from tests.deployment.tools import DEPLOY
from tests.tools.commands import ask, refused, run

NAMES = ("mel.example.org", "192.0.2.7", "2001:db8::1")


@pytest.fixture
def place(tmp_path):
    made = ServerPlace(tmp_path / "server")
    made.prepare({"names": NAMES}, days=825)
    return made


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def openssl(*words):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, text=True).stdout


# --- the server ---------------------------------------------------------------------------------------


def test_certificates_are_what_openssl_takes(place):
    assert "OK" in openssl("verify", "-x509_strict", "-CAfile", place.ca, place.certificate)
    names = openssl("x509", "-in", place.certificate, "-noout", "-ext", "subjectAltName")
    for name in ("DNS:localhost", "Address:127.0.0.1", "DNS:mel.example.org", "Address:192.0.2.7"):
        assert f"{name}," in names
    assert "2001:DB8" in names.upper()
    assert mode(place.key) == mode(place.ca_key) == 0o600
    assert mode(place.state) == 0o700


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"port": 0}, "port must be a port from 1 to 65535, got 0"),
        ({"control_port": 70000}, "control_port must be a port from 1 to 65535, got 70000"),
        ({"connection": "my fleet"}, "connection must be a name of letters, digits and dashes"),
    ],
)
def test_odd_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        ServerSettings(NAMES, **settings)


def test_what_somebody_changed_is_refused_with_the_place(place, tmp_path):
    place.settings.write_text('{"names": 7}')
    with pytest.raises(ValueError, match=r"server\.json: .*Correct the file"):
        place.read()
    odd = ServerPlace(tmp_path / "a b")
    odd.prepare({"names": NAMES}, days=825)
    with pytest.raises(ValueError, match="nginx takes no other"):
        serving.nginx_configuration(odd, odd.read())


def test_secrets_are_never_written_over_and_only_keys_of_our_kind_are_used(place, tmp_path):
    before = place.key.read_bytes()
    with pytest.raises(ValueError, match="a file that is not there yet"):
        secrets.make_authority(tmp_path / "new", place.key, 825)
    assert place.key.read_bytes() == before
    assert not (tmp_path / "new").exists()
    rsa = tmp_path / "rsa.pem"
    openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", rsa)
    with pytest.raises(ValueError, match="a key on an elliptic curve"):
        secrets.make_certificate(tmp_path / "c", tmp_path / "k", (place.ca, rsa), NAMES, 825)


def test_nothing_is_made_twice(place):
    before = contents(place.root)
    settings, made = place.prepare({}, days=825)
    assert (settings.names, made) == (NAMES, [])
    assert contents(place.root) == before


def test_what_was_set_up_otherwise_is_refused(place):
    before = contents(place.root)
    said = refused("server", "up", place.root, "--port", 9000, "--run", "foreground")
    assert "--port must be what the server was set up with (8000), got 9000" in said
    assert "NAME must be what" in refused("server", "up", place.root, "other.example.org")
    assert contents(place.root) == before


def test_a_certificate_for_more_names_needs_the_authority(place):
    told = json.loads(place.settings.read_text())
    place.settings.write_text(json.dumps(told | {"names": [*NAMES, "new.example.org"]}))
    assert "Move" in refused("server", "up", place.root)
    for path in (place.certificate, place.key):
        path.rename(path.with_suffix(".old"))
    safe = place.ca_key.rename(place.root / "safe")
    assert "ca.key must be there to make a certificate with" in refused("server", "up", place.root)
    safe.rename(place.ca_key)
    _, (made,) = place.prepare({}, days=825)
    assert "new.example.org" in made
    assert "new.example.org" in secrets.names_in(place.certificate)


@pytest.mark.parametrize("name", ["a,DNS:evil.example.org", "a b", "", "1.2.3", "-x", 'x"y'])
def test_names_that_are_none(tmp_path, name):
    assert refused("server", "up", tmp_path / "server", "--", name)
    assert not (tmp_path / "server").exists()


def test_a_server_needs_a_name_and_two_ports(tmp_path):
    assert "NAME must be the host names" in refused("server", "up", tmp_path / "s")
    assert "--control-port must be another port than --port" in refused(
        "server", "up", tmp_path / "s", "localhost", "--port", 8001
    )
    assert "flwr-mel server up" in refused("server", "devices", tmp_path / "s", "pi-1")
    assert "flwr-mel server up" in refused("server", "down", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_without_nginx_the_remedy_is_told(place, tmp_path, monkeypatch):
    monkeypatch.setattr(serving.running, "environment", lambda home: {"PATH": str(tmp_path)})
    tool = tmp_path / "flower-superlink"
    tool.touch(mode=0o755)
    with pytest.raises(ValueError, match=r"nginx must be installed.*apt install nginx-light"):
        serving.commands(place, place.read())
    tool.unlink()
    with pytest.raises(ValueError, match="flower-superlink must be beside this Python"):
        serving.commands(place, place.read())


def test_the_superlink_is_for_this_machine_only(place):
    settings = ServerSettings(("localhost",), proxy=False, control_port=_free(), port=8000)
    ((words, env),) = serving.commands(place, settings).values()
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert "--enable-supernode-auth" in words
    assert "--insecure" not in words
    assert env["FLWR_MEL_TRANSPORT"] == "tls"


def _free():
    from flwr_mel.deployment.running import free_port

    return free_port()


def test_the_servers_connection_is_added_once(tmp_path, monkeypatch):
    from flwr_mel.deployment import flower_config

    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    assert flower_config.connect("fleet", "localhost:8001", tmp_path / "ca.pem")
    assert not flower_config.connect("fleet", "localhost:8001", tmp_path / "ca.pem")
    text = flower_config.config_file().read_text()
    assert tomllib.loads(text)["superlink"]["default"] == "local", "simulations go on as before"
    with pytest.raises(ValueError, match="Choose another name"):
        flower_config.connect("fleet", "localhost:9001", tmp_path / "ca.pem")
    assert flower_config.config_file().read_text() == text
    assert flower_config.connect("other", "localhost:9001", tmp_path / "ca.pem")
    assert flower_config.config_file().read_text().startswith(text)


# --- devices ------------------------------------------------------------------------------------------


def test_a_bundle_has_what_a_device_needs(place, tmp_path):
    bundle = Bundle(tmp_path / "pi-7")
    node = parse_pairs(["data-dir=/srv/my data", "mel-energy-limit-j=5e1", "flag=true", "n=-3", "v=1.2.3"])
    assert make_bundle(bundle, DeviceSettings("pi-7", "h:1", node), place.ca, None)
    files = {path.name for path in bundle.root.iterdir()}
    assert files == {"ca.pem", "device.key", "pi-7.pub", "settings.toml", "flwr-mel-device.service"}
    assert mode(bundle.key) == 0o600
    assert bundle.public("pi-7").read_text().startswith("ecdsa-sha2-nistp384 ")
    assert bundle.read() == DeviceSettings("pi-7", "h:1", node)
    assert bundle.read().node_config == (
        'mel-learner="pi-7" data-dir="/srv/my data" mel-energy-limit-j=50.0 flag=true n=-3 v="1.2.3"'
    )
    before = contents(bundle.root)
    assert not make_bundle(bundle, DeviceSettings("pi-7", "other:1"), place.ca, None)
    assert contents(bundle.root) == before
    words, env = bundle.command(bundle.read())
    assert words[words.index("--auth-supernode-private-key") + 1] == str(bundle.key)
    assert env["OMP_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"]
    # Devices that start on one machine at the same moment do not ask for the same port.
    ports = {bundle.command(bundle.read())[0][words.index("--port") + 1] for _ in range(3)}
    assert len(ports) > 1


def test_ssh_keygen_reads_our_keys(place, tmp_path):
    bundle = Bundle(tmp_path / "pi-7")
    make_bundle(bundle, DeviceSettings("pi-7", "h:1"), place.ca, None)
    read = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(bundle.key)], check=True, capture_output=True, text=True
    )
    assert read.stdout.split()[1] == bundle.public("pi-7").read_text().split()[1]


def test_a_key_made_on_the_device_stays_there(place, tmp_path):
    told = ask("device", "key", tmp_path / "device" / "pi-7")
    assert told["name"] == "pi-7"
    bundle = Bundle(place.bundles / "pi-7")
    public = tmp_path / "device" / "pi-7" / "pi-7.pub"
    assert make_bundle(bundle, DeviceSettings("pi-7", "h:1"), place.ca, public)
    assert not bundle.key.exists()
    assert bundle.public("pi-7").read_bytes() == public.read_bytes()
    run("device", "key", tmp_path / "other" / "pi-7")
    with pytest.raises(ValueError, match="A name stays with its key"):
        make_bundle(bundle, DeviceSettings("pi-7", "h:1"), place.ca, tmp_path / "other" / "pi-7" / "pi-7.pub")


def test_a_key_is_never_overwritten(tmp_path):
    run("device", "key", tmp_path / "pi-7")
    before = contents(tmp_path)
    assert "never overwritten" in refused("device", "key", tmp_path / "pi-7")
    assert contents(tmp_path) == before
    (tmp_path / "pi-7" / "device.key").unlink()
    assert "never overwritten" in refused("device", "key", tmp_path / "pi-7")
    assert not (tmp_path / "pi-7" / "device.key").exists(), "the public key alone stops it"


def test_a_private_key_is_no_public_one(place, tmp_path):
    run("device", "key", tmp_path / "pi-7")
    with pytest.raises(ValueError, match=r"ends in \.pub"):
        secrets.read_public_key(tmp_path / "pi-7" / "device.key")


@pytest.mark.parametrize("pair", ["novalue", "=b", 'a="b', "a=b'c", "a=b\\c", "mel-learner=x"])
def test_odd_node_configuration_is_refused(pair):
    with pytest.raises(ValueError, match="node must be"):
        DeviceSettings("pi-7", "h:1", parse_pairs([pair]))


@pytest.mark.parametrize("name", ["pi 7", "", ".hidden", "../up", "-x", "a/b"])
def test_names_of_devices(name):
    with pytest.raises(ValueError, match="name must be"):
        DeviceSettings(name, "h:1")


def test_numbered_names_sort_as_they_are_numbered():
    assert numbered(12) == sorted(numbered(12))
    assert numbered(3) == ["device-1", "device-2", "device-3"]
    with pytest.raises(ValueError, match="a number from 1"):
        numbered(0)


def test_a_bundle_that_is_none(tmp_path):
    said = refused("device", "start", tmp_path)
    assert "BUNDLE must be a directory with settings.toml" in said
    assert "flwr-mel server devices" in said


def test_devices_need_a_running_server(tmp_path):
    place = ServerPlace(tmp_path / "server")
    place.prepare({"names": ("localhost",), "control_port": _free()}, days=9)
    said = refused("server", "devices", place.root, "pi-1", code=4)
    assert "server must be running at localhost:" in said
    assert f"flwr-mel server up {place.root}" in said
    assert not place.bundles.exists()
    assert ask("server", "down", place.root) == {"ended": False}


def test_a_device_that_is_not_well_is_not_started(place, tmp_path):
    bundle = Bundle(tmp_path / "pi-7")
    make_bundle(bundle, DeviceSettings("pi-7", f"localhost:{_free()}"), place.ca, None)
    told = ask("device", "start", bundle.root, "--run", "background", code=4)
    assert not told["ready"]
    (port,) = [finding for finding in told["findings"] if finding["what"] == "port"]
    assert port["health"] == "bad"
    assert port["remedy"]
    assert not bundle.log.exists()
    assert ask("device", "stop", bundle.root) == {"ended": False}


# --- units and containers -----------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [units.SERVER, units.DEVICE])
def test_units_are_hardened_and_systemd_reads_them(unit, tmp_path):
    text = units.filled(unit, tmp_path)
    assert "@" not in text.replace("@system-service", "").split("\n", 1)[1]
    for line in ("NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "Restart=always"):
        assert f"\n{line}\n" in text
    assert f"ReadWritePaths={tmp_path}\n" in text
    with pytest.raises(ValueError, match="systemd takes no other"):
        units.filled(unit, tmp_path / "a b")


def test_a_service_is_put_in_place_and_taken_away(tmp_path, monkeypatch):
    """By programs that only note how they are called: no system is booted here."""
    calls, tools = tmp_path / "calls", tmp_path / "bin"
    tools.mkdir()
    for name, code in (("systemctl", 0), ("id", 1), ("useradd", 0), ("chown", 0)):
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {calls}\nexit {code}\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/bin:/usr/bin")
    units.install("x.service", "text", tmp_path / "server", tmp_path)
    assert (tmp_path / "x.service").read_text() == "text"
    steps = [line.split()[:2] for line in calls.read_text().splitlines()]
    assert steps == [
        ["id", "flwr-mel"],
        ["useradd", "--system"],
        ["chown", "-R"],
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable"],
        ["systemctl", "restart"],
    ]
    with pytest.raises(ValueError, match="Move it away first"):
        units.install("x.service", "another text", tmp_path / "server", tmp_path)
    assert units.remove("x.service", tmp_path)
    assert not (tmp_path / "x.service").exists()
    assert not units.remove("x.service", tmp_path)
    (tools / "systemctl").write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    with pytest.raises(ValueError, match="no such luck"):
        units.install("x.service", "text", tmp_path / "server", tmp_path)


def test_compose_file():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"server", "device"}
    for service in services.values():
        assert service["command"][:1] == ["flwr-mel"]
        assert service["command"][-2:] == ["--run", "foreground"]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
