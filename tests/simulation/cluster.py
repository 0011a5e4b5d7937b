"""Ray on two nodes of one machine, started once for the runs that need not start their own."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.waiting import PATIENCE_S

#: How often Ray is asked to start, if the machine is too busy for the time that it gives itself.
ATTEMPTS = 5
NODES = """
import sys, threading, time
import ray
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
cluster.connect()
while ray.available_resources().get("CPU", 0) < 2:
    time.sleep(0.1)
busy = 0.0
def watch():
    global busy
    while True:
        busy = max(busy, 2 - ray.available_resources().get("CPU", 0))
        time.sleep(0.1)
threading.Thread(target=watch, daemon=True).start()
print(cluster.address, flush=True)
for question in sys.stdin:
    print(int(busy), flush=True)
ray.shutdown()
cluster.shutdown()
"""


class Cluster:
    """Two nodes of one CPU each at `address`."""

    def __init__(self, env):
        # Ray's sockets may have 107 characters.
        self.home = Path(os.path.realpath(tempfile.mkdtemp(prefix="mel")))
        for _ in range(ATTEMPTS):
            with (self.home / "errors").open("w") as errors:
                self.process = subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", NODES],
                    env={**env, "RAY_TMPDIR": str(self.home), "RAY_USAGE_STATS_ENABLED": "0"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    start_new_session=True,
                )
            self.address = self.process.stdout.readline().strip()
            if self.address:
                return
            self.process.wait(PATIENCE_S)
        raise AssertionError((self.home / "errors").read_text())

    def busy(self):
        """Return on how many of the two nodes work was done at the same time."""
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def stop(self):
        self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, (self.home / "errors").read_text()
        shutil.rmtree(self.home, ignore_errors=True)
