"""A device in one process that speaks to the SuperLink as a SuperNode does, without a process per message.

    python -m bench.light_client HOST:PORT FILE

FILE is JSON: its name, seconds per sample and epoch, samples, and what it is to do in which cycle: `kill` in
the middle of that cycle's task, `slow` from a cycle to another by a factor, `nan` from a cycle on. It adds
`step`, by default 1, to the model: the SuperLink takes what two devices send alike only once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_connection import http_request_response

from flwr_mel import wire
from flwr_mel.clientapp import Assignment, MelMod

_PAUSE_S = 2.0


def make_app(role: dict[str, Any]) -> ClientApp:
    """Build an app that sleeps for as long as its work takes, and does what its role says."""
    costs = dict.fromkeys(wire.COEFFICIENTS, 0.0) | {"mel-c2": role["pace"]}
    app = ClientApp(mods=[MelMod({wire.LEARNER: role["name"], wire.MAX_SAMPLES: role["samples"], **costs})])

    @app.train()
    def train(message: Message, context: Context) -> Message:  # noqa: ARG001
        task = Assignment.from_message(message)
        first, last, factor = role.get("slow", (0, 0, 1))
        seconds = role["pace"] * task.epochs * task.samples * (factor if first <= task.cycle < last else 1)
        if "kill" in role and task.cycle >= role["kill"]:
            time.sleep(seconds / 2)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(seconds)
        (model,) = message.content.array_records["arrays"].to_numpy_ndarrays()
        model = model + role.get("step", 1)
        if "nan" in role and task.cycle >= role["nan"]:
            model = np.full_like(model, np.nan)
        said = MetricRecord({"num-examples": task.samples})
        return Message(RecordDict({"arrays": ArrayRecord([model]), "metrics": said}), reply_to=message)

    return app


def handle(app: ClientApp, context: Context, message: Message) -> Message:
    """Answer a message, as Flower does where the app raises."""
    try:
        return app(message, context)
    except Exception as error:
        reason = f"{type(error)}:<'{error}'>"
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def main(address: str, path: str) -> None:
    role = json.loads(Path(path).read_text())
    app = make_app(role)
    with http_request_response(address, True, None, None, None, None) as connection:
        node_id, receive, send, _, _, pull, push, confirm = connection
        print(f"SuperNode ID: {node_id}", flush=True)
        context = Context(0, node_id, {"name": role["name"]}, RecordDict(), {})
        while True:
            try:
                if (came := receive()) is None:
                    time.sleep(_PAUSE_S)
                    continue
                about, tree = came
                run = about.metadata.run_id
                TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run, node_id
                message = pull_and_inflate_object_from_tree(
                    tree,
                    partial(pull, run),
                    partial(confirm, run),
                    return_type=Message,
                )
                message.metadata.__dict__["_message_id"] = tree.object_id
                start = time.monotonic()
                reply = handle(app, context, message)
                reply.metadata.__dict__["_message_id"] = reply.object_id
                with no_object_id_recompute():
                    wanted, session = send(reply, get_object_tree(reply), time.monotonic() - start)
                    push_objects(
                        get_all_nested_objects(reply),
                        partial(push, run, session),
                        object_ids_to_push=wanted,
                    )
            except RunNotRunningException:
                time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
