"""Twenty devices, twenty cycles, and a seeded script of what befalls them: ``python -m bench.scripted``.

The devices are light clients, each a process of its own that speaks to a real SuperLink: twenty SuperNodes,
which start a process per message, are too much for two cores. `tests/deployment/test_script.py` holds every
record against the script. Writes a section of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.loopback import Loopback, wait_for, write_app
from bench.tables import PAGE, table, write_section
from flwr_mel.records import CycleRecord, Outcome, read_jsonl

ROOT = Path(__file__).resolve().parents[1]
DEVICES, CYCLES, T, PROMISED = 20, 20, 40.0, 0.8
#: Cycles in which the disk takes nothing.
FULL = (9, 10, 11)

_SERVER = """import resource
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


Role = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Story:
    """What the script was and what came of it.

    Parameters
    ----------
    roles : dict of name to role
        What befalls whom.
    returns : str
        Who of the killed ones is started again.
    records : list of CycleRecord
        The server's.
    out : Path
        Its directory.
    """

    roles: dict[str, Role]
    returns: str
    records: list[CycleRecord]
    out: Path

    @property
    def honest(self) -> set[str]:
        """Return those whom nothing befalls."""
        return {name for name, role in self.roles.items() if not {"kill", "slow", "nan"} & set(role)}

    def kept(self) -> list[bool]:
        """Say of each cycle whether all of them had reported within T, by the server's clock."""
        honest = self.honest
        return [
            all(
                row.took_s is not None and row.took_s <= record.cycle_time_s
                for row in record.learners
                if row.learner in honest and row.asked
            )
            for record in self.records
        ]


def write_script(seed: int) -> tuple[dict[str, Role], str]:
    """Draw who is killed, who of them returns, who is slowed down and who lies."""
    rng = np.random.default_rng(seed)
    names = [f"device-{k:02d}" for k in range(DEVICES)]
    roles: dict[str, Role] = {
        name: {"name": name, "pace": float(rng.uniform(0.035, 0.045)), "samples": 400} for name in names
    }
    killed, slowed, liar = np.split(rng.permutation(names)[:6], [2, 5])
    for name in killed.tolist():
        roles[name]["kill"] = int(rng.integers(3, 6))
    for name in slowed.tolist():
        roles[name]["slow"] = (int(rng.integers(4, 8)), int(rng.integers(12, 15)), 6)
    roles[liar.item()]["nan"] = int(rng.integers(2, 4))
    return roles, str(killed[0])


class Fleet(Loopback):
    """Light clients on a SuperLink."""

    def start(self, role: Role, address: str = "127.0.0.1", before: tuple[str, ...] = ()) -> None:
        """Start one.

        Parameters
        ----------
        role : dict
            For `bench.light_client`.
        address : str
            Where it finds the SuperLink.
        before : tuple of str
            Words before its command.
        """
        path = self.root / f"{role['name']}.json"
        path.write_text(json.dumps(role), encoding="utf-8")
        client = [sys.executable, "-m", "bench.light_client", f"{address}:{self.port}", path]
        self.add(role["name"], [*before, *client], PYTHONPATH=str(ROOT))


#: For runs whose devices bring their own.
NO_CLIENT = "from flwr.clientapp import ClientApp\n\napp = ClientApp()\n"


def _gone_in(path: Path) -> set[str]:
    """Return who is gone by the last record that can be read."""
    with suppress(OSError, ValueError):
        records = list(read_jsonl(path))
        return set(records[-1].gone) if records else set()
    return set()


def play(root: Path, seed: int = 15) -> Story:
    """Run the script.

    Parameters
    ----------
    root : Path
        A directory for everything.
    seed : int
        Of the script.
    """
    roles, returns = write_script(seed)
    out = root / "out"
    out.mkdir()
    with Fleet(root / "f", FLWR_SUPEREXEC_TASK_POLL_INTERVAL="0.4") as fleet:
        for role in roles.values():
            fleet.start(role)
        fleet.wait_for_nodes()
        files = {"client_app.py": NO_CLIENT, "server_app.py": _SERVER.replace("FULL", repr(FULL))}
        empty = "devices = 1\ncycles = 1\nt = 1.0\npromised = 0.5\nout = ''\n"
        app = write_app(root / "app", "scripted", files, empty)
        config = {"devices": DEVICES, "cycles": CYCLES, "t": T, "promised": PROMISED, "out": str(out)}
        run = fleet.submit(app, config)

        def missed() -> bool:
            if fleet.status(run).status == "finished":
                raise RuntimeError(fleet.log("superlink")[-4000:])
            return returns in _gone_in(out / "records.jsonl")

        wait_for(missed, pause_s=1.0)
        fleet.start({key: value for key, value in roles[returns].items() if key != "kill"})
        fleet.finish(run)
        for name in fleet.ended():
            if "kill" not in roles[name]:
                raise RuntimeError(fleet.log(name)[-2000:])
    return Story(roles, returns, list(read_jsonl(out / "records.jsonl")), out)


def report(story: Story) -> str:
    """Return the section."""
    kept, records = story.kept(), story.records
    counts = {kind: sum(kind in role for role in story.roles.values()) for kind in ("kill", "slow", "nan")}
    outcomes = Counter(row.outcome for record in records for row in record.learners if row.asked)
    moved = sum(row.moved_weight > 0 for record in records for row in record.learners)
    waited = [record.waited_s or 0.0 for record in records]
    rows = [
        [
            f"cycles in which the {len(story.honest)} others had all reported within T",
            f"{sum(kept)} of {len(kept)}",
        ],
        ["promised", f"{PROMISED:.0%}"],
        ["last report awaited, median", f"{np.median(waited):.1f} of {T:.0f} s"],
        ["tasks given", f"{sum(outcomes.values()):,}"],
        ["... used in their cycle", f"{outcomes[Outcome.USED]:,}"],
        ["... used in a later one", f"{moved:,}"],
        ["... refused (not finite)", f"{outcomes[Outcome.REFUSED]:,}"],
    ]
    return (
        "## Twenty devices and a script of accidents\n\n"
        f"{DEVICES} devices in processes of their own on a real SuperLink, {CYCLES} cycles of {T:.0f} s, by "
        f"the server's own clock. Of the devices {counts['kill']} are killed at work and one of them comes "
        f"back, {counts['slow']} become six times slower for some cycles, {counts['nan']} sends what is not "
        f"finite, and for {len(FULL)} cycles the server's disk takes nothing. "
        "`tests/deployment/test_script.py` holds every "
        "record against the script.\nGenerated by `python -m bench.scripted`.\n\n" + table(["", ""], rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended, whoever ends us
    with tempfile.TemporaryDirectory(prefix="b-") as scratch:
        story = play(Path(scratch))
    print(report(story))
    if not args.no_write:
        write_section(PAGE, "scripted", report(story))


if __name__ == "__main__":
    main()
