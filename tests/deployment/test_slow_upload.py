"""A device whose upload crawls: the SuperLink has announced its reply, and the cycle goes on all the same."""

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from bench.loopback import write_app
from bench.scripted import NO_CLIENT, Fleet
from flwr_mel._processes import tree
from flwr_mel.records import read_jsonl
from tests.waiting import wait_for

SERVER = """from pathlib import Path
from time import sleep

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp

from flwr_mel.orchestrator import Stopping
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
        cycle_time_s=4.0,
        max_epochs=1,
        enforce_deadline=True,
        stragglers="span",
        learning=False,
        callbacks=[JsonlWriter(Path(config["out"]))],
        stopping=Stopping(metric="enough", target=1.0),
    )
    start = ArrayRecord([np.zeros(200_000)])

    def evaluate(cycle, arrays):
        return MetricRecord({"enough": float(Path(config["out"] + ".stop").exists())})

    strategy.start(grid, start, num_rounds=1000, evaluate_fn=evaluate)
"""
#: Bytes that a connection carries as they come, far above what a device says of itself.
FREE = 200_000


class Narrow:
    """A way to the SuperLink on which updates crawl until it is opened."""

    host = "127.0.0.2"

    def __init__(self, port):
        self.open, self.crawling = threading.Event(), threading.Event()
        self._port, self._sockets = port, [socket.create_server((self.host, port))]

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.open.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes who waits for it
            each.close()

    def _serve(self):
        with suppress(OSError):
            while True:
                near, _ = self._sockets[0].accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [near, far]
                for pair in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source, sink, narrow):
        carried = 0
        with suppress(OSError):
            while data := source.recv(4096):
                carried += len(data)
                if narrow and carried > FREE and not self.open.is_set():
                    self.crawling.set()
                    time.sleep(0.5)
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def cycles_in(path):
    return list(read_jsonl(path)) if path.exists() else []


def moved(path):
    """Return whose updates counted in a later cycle."""
    return {row.learner for record in cycles_in(path) for row in record.learners if row.moved_weight}


def server_apps(fleet):
    found = []
    for seen in tree(fleet._superlink.pid):
        with suppress(OSError):
            found += [seen.pid] * (b"flwr-serverapp" in Path(f"/proc/{seen.pid}/cmdline").read_bytes())
    return found


def test_the_others_go_on_and_the_update_counts_when_it_is_there(tmp_path):
    out = tmp_path / "records.jsonl"
    with Fleet(tmp_path / "f", FLWR_SUPEREXEC_TASK_POLL_INTERVAL="0.4") as fleet, Narrow(fleet.port) as way:
        role = {"pace": 0.001, "samples": 10}
        fleet.start(role | {"name": "quick"})
        # Never equal to what "quick" sends in any cycle: what the SuperLink has, nobody sends again.
        fleet.start(role | {"name": "slow", "step": 0.37}, way.host)
        fleet.wait_for_nodes()
        files = {"client_app.py": NO_CLIENT, "server_app.py": SERVER}
        app = write_app(tmp_path / "app", "narrow", files, "devices = 1\nout = ''\n")
        run = fleet.submit(app, {"devices": 2, "out": str(out)})

        def crawls():
            status = fleet.status(run)
            assert status.status != "finished", f"{status.details}\n{fleet.log('superlink')[-4000:]}"
            return way.crawling.is_set()

        # At this pace all of the update takes more than three minutes, in which nobody could do anything.
        wait_for(crawls, pause_s=0.5)
        begun = len(cycles_in(out))
        wait_for(lambda: len(cycles_in(out)) >= begun + 2, pause_s=0.5)
        assert "slow" not in moved(out)  # "quick" may be, where this machine is busy
        way.open.set()
        wait_for(lambda: "slow" in moved(out), pause_s=0.5)
        # A run that ends before an update is there ends, and so does its process.
        way.open.clear()
        way.crawling.clear()
        wait_for(crawls, pause_s=0.5)
        (tmp_path / "records.jsonl.stop").touch()
        fleet.finish(run)
        wait_for(lambda: not server_apps(fleet))
        assert not way.open.is_set()
