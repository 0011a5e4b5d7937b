"""What the start costs, counted: Ray's processes, and what its workers have loaded when work comes."""

import json
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.engine

START = """
import json, os, sys
from pathlib import Path
from mel_simulation.engine.ray_start import import_ray, start_ray
from mel_simulation.engine.run_app import send_actors_whole
from flwr_mel._processes import tree

import_ray(preload="mel_simulation.scenario.config")
ray = start_ray(2, "", sys.argv[1])
send_actors_whole()
from flwr.simulation.ray_transport.ray_actor import ClientAppActor

def look(message, context):
    import os, sys
    return os.getpid(), sorted({"mel_simulation.scenario.config", "flwr.simulation"} & set(sys.modules))

actors = [ClientAppActor.remote() for _ in range(2)]
seen = [ray.get(actor.run.remote(lambda: look, None, "0", None))[1] for actor in actors]
ours = [each.pid for each in tree(os.getpid()) if each.pid != os.getpid()]
said = [Path(f"/proc/{pid}/cmdline").read_text().split(chr(0)) for pid in ours]
print(json.dumps({"seen": seen, "processes": dict(zip(ours, said))}))
ray.shutdown()
"""


@pytest.fixture(scope="module")
def started(env):
    """What Ray's workers say, and the command lines of its processes."""
    scratch = tempfile.mkdtemp(prefix="mel-")  # Ray's sockets may have 107 characters
    try:
        command = [sys.executable, "-c", START, scratch]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def test_an_actor_has_what_was_preloaded_and_nothing_of_the_engine(started):
    for _, loaded in started["seen"]:
        assert loaded == ["mel_simulation.scenario.config"]


def test_no_process_is_started_that_nobody_needs(started):
    actors = {str(pid) for pid, _ in started["seen"]}
    others = [words for pid, words in started["processes"].items() if pid not in actors]
    assert len(actors) == 2
    # The learners' actors are the workers that were there from the start: there are no further ones.
    kinds = ("gcs_server", "raylet", "idle_agent.py", "idle_agent.py")
    found = [next((k for k in kinds if any(w.endswith(f"/{k}") for w in words)), words) for words in others]
    assert sorted(map(str, found)) == sorted(kinds)
