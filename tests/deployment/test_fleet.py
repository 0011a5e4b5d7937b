"""docs/DEPLOY.md on real processes, and what its fleet withstands: faults, lies, outsiders."""

import json
import re
import stat
import subprocess
from signal import SIGKILL, SIGTERM
from types import SimpleNamespace

import numpy as np
import pytest

from flwr_mel.records import Outcome, read_jsonl
from tests.deployment.fleet import BIN, DEVICES, NGINX, PAGE, blocks
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_for


def rounds_of(fleet, run_dir):
    """Return the records of each round by device, whether they have its node id or its name."""
    labels = json.loads((fleet.server / "devices.json").read_text())
    return [
        {labels.get(row.learner, row.learner): row for row in record.learners}
        for record in read_jsonl(run_dir / "records.jsonl")
    ]


def used(rows):
    return {name for name, row in rows.items() if row.outcome is Outcome.USED}


def model_of(run_dir):
    with np.load(run_dir / "model.npz") as data:
        return [data[key] for key in data.files]


# --- the page -------------------------------------------------------------------------------------------


def test_the_pages_commands_train_a_fleet(fleet):
    run_dir = fleet.server / "runs" / "first"
    assert [used(rows) for rows in rounds_of(fleet, run_dir)] == [set(DEVICES)]
    assert [w.shape for w in model_of(run_dir)] == [(784, 32), (32,), (32, 10), (10,)]
    assert "completed" in fleet.said[-1]
    assert (run_dir / "report.html").stat().st_size > 1000


def test_node_ids_have_the_names_of_their_keys(fleet):
    labels = json.loads((fleet.server / "devices.json").read_text())
    assert {name: node for node, name in labels.items()} == {name: fleet.node_id(name) for name in DEVICES}


def test_the_other_blocks_are_the_ones_that_cannot_run_here():
    """Installing is tested in tests/packaging, the simulation in tests/examples, the script beside this."""
    first = [block.split()[0] for block in blocks("console")]
    assert first == ["deploy/loopback.sh", "useradd", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1"]
    assert set(re.findall(r"^```(\w+)$", PAGE.read_text(), re.MULTILINE)) == {"sh", "console"}


# --- outsiders --------------------------------------------------------------------------------------------


def test_an_unregistered_key_is_rejected(fleet, tmp_path):
    """It has the authority's certificate and the address, and a key that it made itself."""
    fleet.shell(f"flwr-mel bundle {tmp_path} thief --server localhost:{fleet.door}")
    words = ["--superlink", f"localhost:{fleet.door}", "--root-certificates", fleet.server / "ca.pem"]
    words += ["--auth-supernode-private-key", tmp_path / "devices" / "thief" / "device.key"]
    words += ["--host", "127.0.0.1", "--port", str(free_port())]
    with (tmp_path / "log").open("w") as log:
        command = [BIN / "flower-supernode", *words]
        assert subprocess.run(
            command, env=fleet.env, stdout=log, stderr=log, timeout=PATIENCE_S, check=False
        ).returncode
    assert "SuperNode ID" not in (tmp_path / "log").read_text()


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_an_outsider_at_the_proxy_is_rejected(fleet, tmp_path):
    """With Flower's own command, with plain requests to the other APIs, and by paths that climb."""
    config = fleet.root / "home" / ".flwr" / "config.toml"
    config.write_text(
        f"{config.read_text()}\n[superlink.outside]\naddress = 'localhost:{fleet.door}'\n"
        f"root-certificates = '{fleet.server / 'ca.pem'}'\n"
    )
    fleet.shell(f"flwr-mel bundle {tmp_path} thief --server localhost:{fleet.door}")
    for words in (
        ["run", fleet.app(), "outside"],
        ["supernode", "register", tmp_path / "devices" / "thief" / "device.pub", "outside"],
    ):
        assert "403" in fleet.flwr(*words, code=1)
    for part in ("control", "runtime"):
        for name in ("start-run", "register-node", "StartRun", "CreateNode", ""):
            assert fleet.status(fleet.door, f"/v1/{part}/{name}", b"") == 403
    climbing = ("../control", "%2e%2e/control", "..%2fcontrol", "x/../../control")
    for path in ("/", "/health", *(f"/v1/fleet/{way}/start-run" for way in climbing)):
        assert fleet.status(fleet.door, path, b"") in (400, 403), path
    assert fleet.status(fleet.port, "/health") == 200


# --- slow devices and liars -------------------------------------------------------------------------------


def declared(seconds, samples):
    """Return what a device declares that holds so many samples and takes so long for each in an epoch."""
    free = dict.fromkeys(("mel-c1", "mel-c0", "mel-g2", "mel-g1", "mel-g0"), 0.0)
    return free | {"mel-c2": seconds, "mel-max-samples": samples}


@pytest.fixture(scope="module")
def unequal(fleet):
    """pi-2 is 8 times slower; pi-3 claims a million samples and sends 100 times the model."""
    fleet.fault("pi-1", declares=declared(0.01, 400))
    fleet.fault("pi-2", declares=declared(0.08, 400))
    fleet.fault("pi-3", declares=declared(0.01, 1_000_000), lie=1_000_000)
    try:
        # So long that Flower's own part of it, which depends on the machine, hardly matters.
        fleet.finish(fleet.begin("unequal", rounds=1, cycle_time=600.0, max_epochs=1000, staleness=200))
    finally:
        for name in DEVICES:
            fleet.fault(name)
    return fleet.root / "unequal"


def test_a_device_8_times_slower_gets_less_work(fleet, unequal):
    (rows,) = rounds_of(fleet, unequal)
    assert used(rows) == set(DEVICES)
    work = {name: row.epochs * row.samples for name, row in rows.items()}
    assert 0 < 4 * work["pi-2"] < work["pi-1"]


def test_a_liar_is_contained_by_the_apps_bounds(fleet, unequal):
    """Its samples, its share of the weight and the size of its update are bounded."""
    assert rounds_of(fleet, unequal)[-1]["pi-3"].samples <= 10_000
    size = np.sqrt(sum(float((w**2).sum()) for w in model_of(unequal)))
    # It starts at about 7. Without bounds even a third of the weight makes it more than 200.
    assert size < 20


# --- accidents ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def accidents(fleet, script):
    """pi-3 is killed in round 2, the server in round 3; then the same command is repeated.

    The server sends the samples, so that these messages are part of it.
    """
    # So long that no device is too slow for it, however busy the machine is.
    config = {"rounds": 3, "ship_data": True, "over_tls": True, "samples": 300, "cycle_time": 600.0}
    config["max_epochs"] = 5
    device, run_dir, before = fleet.services["pi-3"], fleet.root / "accidents", fleet.node_id("pi-3")
    fleet.fault("pi-3", hold=2)
    fleet.fault("pi-1", hold=3)
    run = fleet.begin("accidents", **config)
    fleet.during(run, lambda: fleet.holds("pi-3"))
    fleet.fault("pi-3")
    device.log.unlink()
    device.signal(SIGKILL)
    fleet.during(run, lambda: fleet.holds("pi-1"))
    fleet.fault("pi-1")
    done = len(rounds_of(fleet, run_dir))
    fleet.services["superlink"].signal(SIGKILL)
    fleet.release("pi-1")
    wait_for(lambda: fleet.status(fleet.port, "/health") == 200)
    fleet.finish(fleet.begin("accidents", **config))
    return SimpleNamespace(
        run_dir=run_dir, rounds_before=done, node_before=before, node_after=fleet.node_id("pi-3")
    )


def test_a_round_ends_without_a_device_that_was_killed(fleet, accidents):
    first, second, _ = rounds_of(fleet, accidents.run_dir)
    assert used(first) == set(DEVICES)
    assert used(second) == {"pi-1", "pi-2"}


def test_a_restarted_device_is_the_same_one(fleet, accidents):
    assert accidents.node_after == accidents.node_before
    assert used(rounds_of(fleet, accidents.run_dir)[-1]) == set(DEVICES)


def test_training_resumes_after_the_server_was_killed(accidents):
    """Rounds before the kill are kept, and the one in progress is done again."""
    assert [record.cycle for record in read_jsonl(accidents.run_dir / "records.jsonl")] == [1, 2, 3]
    assert accidents.rounds_before == 2
    assert all(np.isfinite(w).all() for w in model_of(accidents.run_dir))


def test_a_device_that_is_back_before_flower_notices_does_not_block_the_round(fleet):
    """It was restarted during its task, and the server looks for replies only when it is connected again.

    Then no error is ever reported in its place: only the deadline ends the round.
    """
    device = fleet.services["pi-3"]
    fleet.fault("pi-3", hold=1)
    run = fleet.begin("race", rounds=1, cycle_time=30.0)
    fleet.during(run, lambda: fleet.holds("pi-3"))
    fleet.fault("pi-3")
    (server,) = (p for p in fleet.services["superlink"].tree() if "flwr-serverapp" in " ".join(p.cmdline()))
    before = fleet.node_id("pi-3")
    device.log.unlink()
    server.suspend()
    try:
        device.signal(SIGTERM)
        wait_for(lambda: device.log.exists() and fleet.node_id("pi-3"))
    finally:
        server.resume()
    assert fleet.node_id("pi-3") == before
    fleet.finish(run)
    (rows,) = rounds_of(fleet, fleet.root / "race")
    assert rows["pi-3"].outcome is Outcome.LATE


def test_keys_are_readable_by_their_owner_only(fleet):
    keys = [fleet.server / "ca.key", fleet.server / "server.key"]
    keys += [fleet.root / name / "srv/mel-device/device.key" for name in DEVICES]
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
