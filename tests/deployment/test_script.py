"""Twenty devices, twenty cycles, and a seeded script of what befalls them: every record is held against it.

The devices are light clients, each a process of its own that speaks to a real SuperLink: twenty SuperNodes,
which start a process per message, are too much for two cores.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from bench.loopback import Loopback, wait_for, write_app
from flwr_mel.checkpoint import Checkpoints
from flwr_mel.records import Outcome, Standing, read_jsonl

DEVICES, CYCLES, T, PROMISED = 20, 20, 20.0, 0.8
#: Cycles in which the disk takes nothing.
FULL = (9, 10, 11)
ROOT = Path(__file__).resolve().parents[2]

SERVER = """import resource
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp

from flwr_mel import Learning
from flwr_mel.checkpoint import Checkpoints
from flwr_mel.records import JsonlWriter
from flwr_mel.serverapp import MelFedAvg, MelStrategy

app = ServerApp()


@contextmanager
def disk(cycle, place):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if cycle in FULL:
            size = place.stat().st_size if place.is_file() else 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class Kept(Checkpoints):
    def save(self, checkpoint):
        with disk(checkpoint.cycle, self.directory):
            return super().save(checkpoint)


@app.main()
def main(grid, context):
    config, out = context.run_config, Path(context.run_config["out"])
    writer = JsonlWriter(out / "records.jsonl")

    def records(record):
        with disk(record.cycle, writer.path):
            writer(record)

    while len(list(grid.get_node_ids())) < config["devices"]:
        sleep(0.5)
    strategy = MelStrategy(
        MelFedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        cycle_time_s=config["t"],
        max_epochs=1,
        enforce_deadline=True,
        learning=Learning(on_time=config["promised"], of="cycle"),
        stragglers="span",
        checkpoints=Kept(out / "checkpoints"),
        callbacks=[records],
    )
    result = strategy.start(grid, ArrayRecord([np.zeros(8)]), num_rounds=config["cycles"])
    np.save(out / "model.npy", result.arrays.to_numpy_ndarrays()[0])
"""


def write_script(seed):
    """Draw who is killed, who of them returns, who is slowed down and who lies."""
    rng = np.random.default_rng(seed)
    names = [f"device-{k:02d}" for k in range(DEVICES)]
    roles = {name: {"name": name, "pace": float(rng.uniform(0.015, 0.03)), "samples": 400} for name in names}
    killed, slowed, liar = np.split(rng.permutation(names)[:6], [2, 5])
    for name in killed.tolist():
        roles[name]["kill"] = int(rng.integers(3, 6))
    for name in slowed.tolist():
        roles[name]["slow"] = (int(rng.integers(4, 8)), int(rng.integers(12, 15)), 6)
    roles[liar.item()]["nan"] = int(rng.integers(2, 4))
    return roles, killed[0].item()


class Fleet(Loopback):
    """Light clients on a SuperLink."""

    def start(self, role):
        path = self.root / f"{role['name']}.json"
        path.write_text(json.dumps(role))
        command = [sys.executable, "-m", "tests.deployment.light_client", f"127.0.0.1:{self.port}", path]
        self.add(role["name"], command, PYTHONPATH=str(ROOT))


def gone_in(path):
    """Return who is gone by the last record that can be read."""
    with suppress(OSError, ValueError):
        records = list(read_jsonl(path))
        return set(records[-1].gone) if records else set()
    return set()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Run the script; return it, who returned, and the records."""
    root = tmp_path_factory.mktemp("script")
    roles, returns = write_script(15)
    out = root / "out"
    out.mkdir()
    with Fleet(root / "f", FLWR_SUPEREXEC_TASK_POLL_INTERVAL="0.4") as fleet:
        for role in roles.values():
            fleet.start(role)
        fleet.wait_for_nodes()
        files = {"client_app.py": "from flwr.clientapp import ClientApp\n\napp = ClientApp()\n"}
        files["server_app.py"] = SERVER.replace("FULL", repr(FULL))
        empty = "devices = 1\ncycles = 1\nt = 1.0\npromised = 0.5\nout = ''\n"
        app = write_app(root / "app", "scripted", files, empty)
        config = {"devices": DEVICES, "cycles": CYCLES, "t": T, "promised": PROMISED, "out": str(out)}
        run = fleet.submit(app, config)

        def missed():
            assert fleet.status(run).status != "finished", fleet.log("superlink")[-4000:]
            return returns in gone_in(out / "records.jsonl")

        wait_for(missed, pause_s=1.0)
        fleet.start({key: value for key, value in roles[returns].items() if key != "kill"})
        fleet.finish(run)
        for name in fleet.ended():
            assert "kill" in roles[name], fleet.log(name)[-2000:]
    return roles, returns, list(read_jsonl(out / "records.jsonl")), out


pytestmark = [pytest.mark.slow, pytest.mark.deployment, pytest.mark.timeout(3600)]


def rows_of(records, name):
    return {r.cycle: row for r in records for row in r.learners if row.learner == name}


def test_every_cycle_is_on_record_once(told):
    *_, records, _ = told
    assert [record.cycle for record in records] == list(range(1, CYCLES + 1))
    began = [record.began_at for record in records]
    assert began == sorted(began)
    assert all(record.duration_s > 0 and record.waited_s > 0 for record in records)


def test_a_full_disk_costs_notes_and_nothing_else(told):
    *_, records, out = told
    notes = "\n".join(note for record in records for note in record.notes)
    for cycle in FULL:
        assert f"failed in cycle {cycle}: OSError: [Errno 27] File too large" in notes
        assert f"no checkpoint of cycle {cycle} in" in notes
    assert f"no checkpoint of cycle {FULL[-1] + 1}" not in notes
    assert Checkpoints(out / "checkpoints").load().cycle == CYCLES
    assert np.isfinite(np.load(out / "model.npy")).all()


def test_who_is_killed_is_missed_and_who_returns_is_back(told):
    roles, returns, records, _ = told
    for name, role in roles.items():
        if "kill" not in role:
            assert not any(name in record.gone for record in records)
            continue
        rows = rows_of(records, name)
        at = min(cycle for cycle, row in rows.items() if cycle >= role["kill"] and row.asked)
        assert all(rows[cycle].outcome is Outcome.USED for cycle in range(1, role["kill"]))
        assert rows[at].outcome in (Outcome.LATE, Outcome.BUSY, Outcome.FAILED)
        missed = [record.cycle for record in records if name in record.gone]
        assert missed
        assert missed == list(range(missed[0], missed[-1] + 1))
        between = [row for cycle, row in rows.items() if at < cycle <= missed[-1]]
        assert not any(row.outcome is Outcome.USED or row.moved_weight for row in between)
        # Its row is there as long as its task is.
        assert all(rows[cycle].standing is Standing.GONE for cycle in missed if cycle in rows)
        back = [row for cycle, row in rows.items() if cycle > missed[-1]]
        assert bool(back) == (name == returns)
    assert any(row.outcome is Outcome.USED for row in back_rows(records, returns))


def back_rows(records, name):
    last = max(record.cycle for record in records if name in record.gone)
    return [row for cycle, row in rows_of(records, name).items() if cycle > last]


def test_who_slows_down_gets_less_and_is_used_again(told):
    roles, _, records, _ = told
    for name, role in roles.items():
        if "slow" not in role:
            continue
        first, last, _ = role["slow"]
        rows = rows_of(records, name)
        work = {cycle: row.samples / row.span for cycle, row in rows.items() if row.asked}
        onset = min(cycle for cycle in work if cycle >= first)
        assert rows[onset].outcome in (Outcome.LATE, Outcome.BUSY)
        assert rows[onset].standing in (Standing.LATE, Standing.WORKING)
        assert rows[onset].since is not None
        # Its update is used when it comes, and after that it is not given as much while it is slow.
        came = min(cycle for cycle, row in rows.items() if row.moved_from == onset)
        later = [n for cycle, n in work.items() if came < cycle < last]
        assert not later or max(later) < work[onset]
        assert any(row.outcome is Outcome.USED for cycle, row in rows.items() if cycle >= last)


def test_a_liars_updates_are_refused(told):
    roles, _, records, _ = told
    (liar,) = (role for role in roles.values() if "nan" in role)
    for cycle, row in rows_of(records, liar["name"]).items():
        if cycle < liar["nan"]:
            assert row.outcome is Outcome.USED
        elif row.asked and row.received_at is not None:
            assert row.outcome is Outcome.REFUSED
            assert "finite" in row.reason
            assert row.weight == 0


def test_the_others_keep_t_in_the_promised_share_of_cycles(told):
    roles, _, records, _ = told
    honest = {name for name, role in roles.items() if not {"kill", "slow", "nan"} & set(role)}
    kept, all_used = [], []
    for record in records:
        rows = [row for row in record.learners if row.learner in honest]
        assert {row.learner for row in rows} == honest
        kept.append(
            all(row.took_s is not None and row.took_s <= record.cycle_time_s for row in rows if row.asked)
        )
        all_used.append(all(row.outcome in (Outcome.USED, Outcome.BUSY, Outcome.LATE) for row in rows))
        print(record.cycle, round(record.waited_s, 1), round(record.flower_s or 0, 1), kept[-1])
    assert all(all_used)
    assert sum(kept) >= PROMISED * CYCLES
