"""Shards leave only over a connection that is known to be safe."""

import subprocess
import sys

import pytest
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.superlink.grid import HttpGrid, InMemoryGrid
from mel_simulation.app.message_window import Windowed

from flwr_mel.flower.transport import InsecureShards, check_transport, insecurity, superlink_command
from flwr_mel.orchestrator import Settings
from tests.deployment.tools import blobs
from tests.waiting import PATIENCE_S

SAFE = ["--ssl-certfile", "server.pem", "--enable-supernode-auth"]


def wire(insecure):
    """Flower's grid of real deployments; it connects when it is first used, which is never here."""
    return HttpGrid("127.0.0.1:1", insecure=insecure, token="none")


#: Flower's grid of simulations.
MEMORY = object.__new__(InMemoryGrid)


@pytest.mark.parametrize(
    ("carrier", "command", "vouched", "trouble"),
    [
        (MEMORY, None, "", ""),
        (GridClientProxy(1, Windowed(MEMORY), 1), ["--insecure"], "", ""),
        (wire(False), SAFE, "", ""),
        (Windowed(wire(False)), SAFE, "", ""),
        (wire(False), None, "tls", ""),
        (object(), None, "TLS ", ""),
        (wire(True), SAFE, "tls", "without TLS"),
        (GridClientProxy(1, wire(True), 1), None, "tls", "without TLS"),
        (object(), ["--insecure"], "tls", "--insecure"),
        (object(), ["--ins", "--host", "x"], "tls", "--insecure"),
        (wire(False), ["--ssl-certfile", "x"], "tls", "takes any device"),
        (wire(False), None, "", "FLWR_MEL_TRANSPORT=tls"),
        (object(), None, "yes", "got 'yes'"),
    ],
)
def test_what_is_seen_counts_more_than_what_is_vouched_for(carrier, command, vouched, trouble):
    said = insecurity(carrier, command, vouched)
    assert trouble in said
    assert bool(said) == bool(trouble)


def test_only_parallelized_mode_is_checked(monkeypatch):
    monkeypatch.delenv("FLWR_MEL_TRANSPORT", raising=False)
    ships = {"mode": "parallelized", "dataset": blobs(0, 10)}
    check_transport(wire(True), Settings(cycle_time_s=1))
    check_transport(wire(True), Settings(cycle_time_s=1, allow_insecure_shards=True, **ships))
    with pytest.raises(InsecureShards, match="allow_insecure_shards=True"):
        check_transport(wire(True), Settings(cycle_time_s=1, **ships))
    with pytest.raises(ValueError, match="allow_insecure_shards must be True or False"):
        Settings(cycle_time_s=1, allow_insecure_shards="false", **ships)


def test_the_superlink_is_found_among_the_ancestors(tmp_path):
    """A process called flower-superlink starts a shell, which starts a process that looks up."""
    look = "from flwr_mel.flower.transport import superlink_command as s; print(s())"
    script = tmp_path / "flower-superlink"
    shell = f"{sys.executable} -c '{look}'; true"
    script.write_text(f"import subprocess\nsubprocess.run(['sh', '-c', {shell!r}], check=True)\n")
    command = [sys.executable, str(script), "--insecure", "--host", "a b"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    assert said.strip() == str(["--insecure", "--host", "a b"])
    assert superlink_command() is None
