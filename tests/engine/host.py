"""Flower's engine as the tests use it: started once, it plays one Flower app after the other.

Starting Ray and importing torch in its workers takes longer than any of the tests' trainings, so that they
share one engine: `python -m tests.engine.host HOME ANSWERS` reads one JSON object per line, plays it, and
writes the outcome to the file descriptor ANSWERS. An app is a module with `server_app` and `client_app`, by
name or by path, as for Flower itself. The harness is the other side.
"""

import copy
import importlib
import importlib.util
import json
import os
import sys
import time
import traceback
from functools import cache
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

NODES = 20
BACKEND = {
    "client_resources": {"num_cpus": 1},
    "init_args": {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False},
}
WHO = "who-are-you"


@cache
def app_of(name, play):
    """Import an app; one that is given by its path is read again for every play."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"app_{play}", name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # the worker's pickles look it up there
    spec.loader.exec_module(module)
    return module


def current():
    """Return what is being played; the workers learn it from a file."""
    return json.loads((Path(os.environ["ENGINE_HOME"]) / "playing").read_text())


class Everyone(ClientApp):
    """The client app of whatever is being played."""

    def __call__(self, message, context):
        if WHO in message.content:
            answer = ConfigRecord({"partition": int(context.node_config["partition-id"])})
            return Message(RecordDict({WHO: answer}), reply_to=message)
        play = current()
        os.environ |= play["environment"]
        own = copy.copy(context)  # Flower wants its own configuration back as it was
        own.run_config = play["config"]
        own.node_config = {**context.node_config, "num-partitions": play["nodes"]}
        mark = own.state.config_records.get("play")
        if mark is None or mark["id"] != play["id"]:  # what a node keeps, it keeps for one run
            own.state = RecordDict({"play": ConfigRecord({"id": play["id"]})})
        try:
            return app_of(play["app"], play["id"]).client_app(message, own)
        finally:
            context.state = own.state


def places(grid):
    """Ask every node for its place, as Flower draws node ids at random."""
    while len(nodes := list(grid.get_node_ids())) < NODES:
        time.sleep(0.05)
    questions = [Message(RecordDict({WHO: ConfigRecord()}), node, "train") for node in nodes]
    replies = grid.send_and_receive(questions)
    return {reply.metadata.src_node_id: reply.content[WHO]["partition"] for reply in replies}


def part_of(grid, nodes):
    """Return the grid with the first so many nodes only."""
    if nodes == NODES:
        return grid
    there = sorted(node for node, place in places(grid).items() if place < nodes)
    view = copy.copy(grid)
    view.get_node_ids = lambda: list(there)
    return view


def play(request, grid, context):
    """Play one app; its output goes to its own log."""
    os.environ |= request["environment"]
    (Path(os.environ["ENGINE_HOME"]) / "playing").write_text(json.dumps(request))
    with open(request["log"], "ab") as log:
        sys.stdout.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    own = Context(context.run_id, context.node_id, {}, RecordDict(), request["config"])
    app_of(request["app"], request["id"]).server_app(part_of(grid, request["nodes"]), own)


server_app = ServerApp()


@server_app.main()
def main(grid, context):
    answers = os.fdopen(int(os.environ["ENGINE_ANSWERS"]), "w")
    for line in sys.stdin:
        trouble = ""
        try:
            play(json.loads(line), grid, context)
        except Exception:
            trouble = traceback.format_exc()
        sys.stdout.flush()
        print(json.dumps(trouble), file=answers, flush=True)


def start():
    try:
        run_simulation(server_app, Everyone(), num_supernodes=NODES, backend_config=BACKEND)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # the server app's thread would wait on for ever
