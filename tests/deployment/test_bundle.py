"""`flwr-mel bundle` without a server: files, what is refused, what is never overwritten."""

import json
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from tests.tools.commands import ask, refused, run

SERVER = ("--server", "mel.example.org:8000")
FILES = {"ca.key", "ca.pem", "server.key", "server.pem"}


def files(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_certificates_are_made_once_and_fit_together(tmp_path):
    told = ask("bundle", tmp_path / "mel", *SERVER)
    made = files(tmp_path / "mel")
    assert set(made) == FILES
    assert {path.rpartition("/")[2] for path in told["created"]} == FILES
    assert told["nodes"] == {}
    for name in FILES:
        mode = stat.S_IMODE((tmp_path / "mel" / name).stat().st_mode)
        assert mode == (0o600 if name.endswith(".key") else 0o644)
    context = ssl.create_default_context(cafile=tmp_path / "mel" / "ca.pem")
    context.load_cert_chain(tmp_path / "mel" / "server.pem", tmp_path / "mel" / "server.key")
    ca, server = (x509.load_pem_x509_certificate(made[name]) for name in ("ca.pem", "server.pem"))
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["localhost", "127.0.0.1", "mel.example.org"]
    assert "nothing to do" in run("bundle", tmp_path / "mel", *SERVER).stdout
    assert files(tmp_path / "mel") == made


def test_a_device_gets_its_key_the_authority_and_its_settings(tmp_path):
    run("bundle", tmp_path, "pi-1", *SERVER, "--node-config", 'data-dir="/srv/my data" mel-max-samples=9')
    device = files(tmp_path / "devices" / "pi-1")
    assert set(device) == {"ca.pem", "device.env", "device.key", "device.pub"}
    assert device["ca.pem"] == (tmp_path / "ca.pem").read_bytes()
    assert device["device.env"].decode() == (
        "MEL_SERVER='mel.example.org:8000'\n"
        """MEL_NODE_CONFIG='mel-learner="pi-1" data-dir="/srv/my data" mel-max-samples=9'\n"""
    )
    key = load_ssh_private_key(device["device.key"], None)
    assert key.public_key() == load_ssh_public_key(device["device.pub"])
    assert stat.S_IMODE((tmp_path / "devices" / "pi-1" / "device.key").stat().st_mode) == 0o600


def test_what_is_there_stays(tmp_path):
    run("bundle", tmp_path, "pi-1", *SERVER)
    before = files(tmp_path)
    told = ask("bundle", tmp_path, "pi-1", "pi-2", *SERVER)
    assert {path.parts[-2] for path in map(type(tmp_path), told["created"])} == {"pi-2"}
    assert before.items() <= files(tmp_path).items()
    # A key whose public part is gone is not replaced: it may be registered.
    (tmp_path / "devices" / "pi-1" / "device.pub").unlink()
    assert "never overwritten" in refused("bundle", tmp_path, "pi-1", *SERVER)
    # The device's own key may be gone from the server: nothing here needs it.
    (tmp_path / "devices" / "pi-2" / "device.key").unlink()
    assert ask("bundle", tmp_path, "pi-2", *SERVER)["created"] == []


def test_options_that_differ_from_what_is_there_are_refused(tmp_path):
    run("bundle", tmp_path, "pi-1", *SERVER, "--node-config", "partition-id=3")
    before = files(tmp_path)
    said = refused("bundle", tmp_path, "pi-1", "pi-2", *SERVER, "--node-config", "partition-id=4")
    assert "--node-config must be as in" in said
    assert "partition-id=4" in said
    assert "--server must be as in" in refused("bundle", tmp_path, "pi-1", "--server", "mel.example.org:9000")
    assert files(tmp_path) == before
    assert ask("bundle", tmp_path, "pi-1", *SERVER, "--node-config", "partition-id=3")["created"] == []
    assert ask("bundle", tmp_path, "pi-1", *SERVER)["created"] == []


def test_another_host_needs_another_certificate(tmp_path):
    run("bundle", tmp_path, *SERVER)
    said = refused("bundle", tmp_path, "--server", "elsewhere.org:8000")
    assert "(localhost, 127.0.0.1, mel.example.org), got 'elsewhere.org'" in said
    run("bundle", tmp_path, "--server", "127.0.0.1:9000")
    for name in ("server.pem", "server.key"):
        (tmp_path / name).unlink()
    authority = (tmp_path / "ca.pem").read_bytes()
    run("bundle", tmp_path, "--server", "[2001:db8::7]:8000")
    assert (tmp_path / "ca.pem").read_bytes() == authority
    for name in ("server.pem", "server.key", "ca.key"):
        (tmp_path / name).unlink()
    assert "Put ca.key back" in refused("bundle", tmp_path, *SERVER)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ([], "Missing option '--server'"),
        (["--server", "mel.example.org"], "--server must be HOST:PORT"),
        (["--server", "mel.example.org:99999"], "--server must be HOST:PORT"),
        (["--server", "::1:8000"], "--server must be HOST:PORT"),
        (["--server", "-x-:8000"], "--server must be HOST:PORT"),
        (["--server", "1.2.3:8000"], "--server must be HOST:PORT"),
        ([*SERVER, "../up"], "NAME must be"),
        ([*SERVER, ""], "NAME must be"),
        ([*SERVER, "a b"], "NAME must be"),
        ([*SERVER, "pi", "--node-config", "x"], "--node-config must be"),
        ([*SERVER, "pi", "--node-config", "x='1'"], "--node-config must be"),
        ([*SERVER, "pi", "--node-config", 'x="1" x="2"'], "--node-config must be"),
        ([*SERVER, "pi", "--node-config", "x=a.b"], "--node-config must be"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing_behind(tmp_path, words, field):
    assert field in refused("bundle", tmp_path / "mel", *words)
    assert not (tmp_path / "mel").exists()


def test_a_server_that_cannot_be_asked_is_the_environments_fault(tmp_path, monkeypatch):
    """Flower's own words are passed on, and nothing is recorded: the same command can be repeated."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    said = refused("bundle", tmp_path, "pi-1", *SERVER, "--connection", "nowhere", code=4)
    assert "flwr supernode register did not register pi-1 at 'nowhere'" in said
    assert "'nowhere' not found in the Flower configuration file" in said
    assert not (tmp_path / "devices.json").exists()


def test_a_registered_name_is_not_registered_again(tmp_path):
    (tmp_path / "devices.json").write_text(json.dumps({"17": "pi-1"}))
    assert ask("bundle", tmp_path, "pi-1", *SERVER, "--connection", "nowhere")["nodes"] == {"pi-1": "17"}
    (tmp_path / "devices.json").write_text("{")
    assert "node ids and names" in refused("bundle", tmp_path, "pi-1", *SERVER, "--connection", "nowhere")


def test_a_key_that_was_made_on_the_device_stays_there(tmp_path):
    run("bundle", tmp_path / "elsewhere", "pi-1", *SERVER)
    place = tmp_path / "mel" / "devices" / "pi-1"
    place.mkdir(parents=True)
    (tmp_path / "elsewhere" / "devices" / "pi-1" / "device.pub").rename(place / "device.pub")
    run("bundle", tmp_path / "mel", "pi-1", *SERVER)
    assert set(files(place)) == {"ca.pem", "device.env", "device.pub"}
