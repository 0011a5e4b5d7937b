"""Ray on two nodes, started once for the runs that need not start their own."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mel_simulation.engine.ray_start import SETTINGS

from flwr_mel._processes import end, tree
from tests.flower.harness import SLOW_START
from tests.waiting import PATIENCE_S, wait_for

#: How often Ray is asked to start, if the machine is too busy for the time that it gives itself.
ATTEMPTS = 5
NODES = """
import sys
import ray
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
print(cluster.address, flush=True)
for question in sys.stdin:
    if not ray.is_initialized():
        cluster.connect()
    from ray._private.state import actors
    ours = [actor for actor in actors().values() if "ClientApp" in actor["ActorClassName"]]
    print(len({actor["Address"]["NodeID"] for actor in ours}), flush=True)
ray.shutdown()
cluster.shutdown()
"""


class Cluster:
    """Two nodes of one CPU each at `address`."""

    def __init__(self, env):
        # Ray's sockets may have 107 characters.
        self.home = Path(os.path.realpath(tempfile.mkdtemp(prefix="mel")))
        self.address = ""
        for _ in range(ATTEMPTS):
            self._start(env)
            if self.address or SLOW_START not in self._said():
                break
            end(self.process)
        assert self.address, self.stop()

    def _start(self, env):
        with (self.home / "errors").open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", NODES],
                env={**env, "RAY_TMPDIR": str(self.home), **SETTINGS},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.address = self.process.stdout.readline().strip()

    def _said(self):
        return (self.home / "errors").read_text()

    def machines(self):
        """Return on how many nodes learners have worked."""
        self.process.stdin.write("who took part?\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def stop(self):
        """End it; it must leave nothing behind. Return what it had to say."""
        family = tree(self.process.pid)
        try:
            self.process.communicate(timeout=PATIENCE_S)
        finally:
            end(self.process)
        said = self._said()
        assert self.process.returncode == 0, said
        wait_for(lambda: not [p for p in family if p in tree(p.pid)] and not strays(str(self.home)))
        shutil.rmtree(self.home, ignore_errors=True)
        return said


def strays(word):
    """Return the processes whose command line has a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text and path.parent.name != str(os.getpid()):
            found.append(text)
    return found
