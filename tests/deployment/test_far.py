"""A device behind a link with delay and loss: it takes part, and what is learnt of its link shows it."""

import subprocess
import sys

import pytest

from bench.loopback import write_app
from bench.scripted import NO_CLIENT, Fleet
from flwr_mel.records import Outcome, read_jsonl
from tests.deployment.tools import ROOT

DELAY_S, LOSS, NET = 0.1, 0.02, "198.18.77"
CYCLES, T = 4, 120.0
NAMES = ("near-1", "near-2", "far")
FAR = (sys.executable, "-m", "tests.deployment.far_link", NET, str(DELAY_S), str(LOSS))

SERVER = """from pathlib import Path
from time import sleep

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp

from flwr_mel.learning import Learning
from flwr_mel.records import JsonlWriter
from flwr_mel.serverapp import MelFedAvg, MelStrategy

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    while len(list(grid.get_node_ids())) < config["devices"]:
        sleep(0.5)
    strategy = MelStrategy(
        MelFedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        cycle_time_s=config["t"],
        max_epochs=1,
        learning=Learning(),
        callbacks=[JsonlWriter(Path(config["out"]))],
    )
    strategy.start(grid, ArrayRecord([np.zeros(200_000)]), num_rounds=config["cycles"])
"""


class Wide(Fleet):
    """Reached from other namespaces, too."""

    host = "0.0.0.0"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    tried = subprocess.run([*FAR, "true"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this machine permits no namespace or no tun device: {tried.stderr.splitlines()[-1]}")
    root = tmp_path_factory.mktemp("far")
    with Wide(root / "f") as fleet:
        for name in NAMES:
            role = {"name": name, "pace": 0.001, "samples": 100}
            fleet.start(role, *((f"{NET}.1", FAR) if name == "far" else ()))
        fleet.wait_for_nodes()
        files = {"client_app.py": NO_CLIENT, "server_app.py": SERVER}
        app = write_app(root / "app", "distant", files, "devices = 1\ncycles = 1\nt = 1.0\nout = ''\n")
        out = root / "records.jsonl"
        fleet.run(app, {"devices": len(NAMES), "cycles": CYCLES, "t": T, "out": str(out)})
    return list(read_jsonl(out))


pytestmark = [pytest.mark.slow, pytest.mark.deployment, pytest.mark.timeout(3600)]


def test_it_takes_part_in_every_cycle(records):
    assert [[row.learner for row in record.learners] for record in records] == [sorted(NAMES)] * CYCLES
    assert {row.outcome for record in records for row in record.learners} == {Outcome.USED}


def test_its_link_is_what_the_plan_says(records):
    """No round trip is shorter than twice the delay, and a task takes several: model there, model back."""
    for record in records:
        ways = {row.learner: row.round_trip_s - row.reported_time_s for row in record.learners}
        print(record.cycle, ways, {row.learner: row.receive_s + row.send_s for row in record.learners})
        assert ways["far"] > 10 * 2 * DELAY_S
    links = {row.learner: row.receive_s + row.send_s for row in records[-1].learners}
    assert links["far"] > 10 * 2 * DELAY_S
    assert links["far"] > max(links["near-1"], links["near-2"])
