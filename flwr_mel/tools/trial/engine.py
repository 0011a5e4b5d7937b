"""One run of an app on Flower's simulation engine, in a process of its own: ``python -m ...engine JOB``.

The same job gives the same bytes, in whatever order and by however many workers clients are computed: nodes
are in the order of their partitions, replies are handed over together in this order, and each task of a
client begins with random generators of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import partial, reduce
from pathlib import Path
from threading import Lock
from time import monotonic, perf_counter, sleep
from typing import Any
from zlib import crc32

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from flwr_mel import wire
from flwr_mel._text import last_error
from flwr_mel.grid import TimedGrid

#: What to run: serverapp and clientapp as in pyproject.toml, the flat run config, clients, seed; files for
#: what tasks take on this machine (or ""), and for the reason of a failure.
Job = Mapping[str, Any]

_QUERY, _PARTITION = "query", "mel-partition"
_PATIENCE_S, _PAUSE_S = 60.0, 0.02


class InOrder(TimedGrid):
    """A grid whose nodes and replies are in the order of the partitions. It times nothing."""

    def __init__(self, grid: Grid, clients: int) -> None:
        super().__init__(grid)
        end = monotonic() + _PATIENCE_S
        while len(nodes := list(grid.get_node_ids())) < clients and monotonic() < end:
            sleep(_PAUSE_S)
        asked = [Message(RecordDict({_PARTITION: ConfigRecord()}), node, _QUERY) for node in nodes]
        self._order: dict[int, Any] = {}
        for reply in grid.send_and_receive(asked):
            if reply.has_error():
                raise RuntimeError(f"a client does not start: {last_error(reply.error.reason or '')}")
            told = reply.content.config_records[_PARTITION]
            self._order[reply.metadata.src_node_id] = told["partition-id"]
        self._open, self._came = dict[str, int](), dict[str, Message]()
        self._lock = Lock()  # the classic API has a thread per client

    def get_node_ids(self) -> list[int]:
        """Return the nodes by partition."""
        return sorted(self._order, key=self._order.__getitem__)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages."""
        with self._lock:
            sent = list(messages)
            ids = list(self._carrier.push_messages(sent))
            self._open |= {i: m.metadata.dst_node_id for i, m in zip(ids, sent, strict=True)}
            return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies, in order, as soon as all messages that were sent are answered."""
        with self._lock:
            if missing := self._open.keys() - self._came.keys():
                replies = self._carrier.pull_messages(missing)
                self._came |= {reply.metadata.reply_to_message_id: reply for reply in replies}
            if not self._open.keys() <= self._came.keys():
                return []
            asked = set(message_ids) & self._open.keys()
            wanted = sorted(asked, key=lambda name: self._order[self._open.pop(name)])
            return [self._came.pop(name) for name in wanted]


def _app(component: str) -> Any:
    """Return a component of the app, ``module:attribute``."""
    module, _, attribute = component.partition(":")
    return reduce(getattr, attribute.split("."), importlib.import_module(module))


def _begin(job: Job, context: Context, *about: object) -> Context:
    """Seed the app's random generators; return a context with its run config, which the engine leaves out."""
    number = crc32(repr((job["seed"], *about)).encode())
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - the app's, not ours
    if torch := sys.modules.get("torch"):
        torch.manual_seed(number)
    own = (context.node_config, context.state)
    return Context(context.run_id, context.node_id, *own, dict(job["config"]))


def _serve(job: Job, grid: Grid, context: Context) -> None:
    app = _app(job["serverapp"])
    app(InOrder(grid, job["clients"]), _begin(job, context))


def _answer(job: Job, message: Message, context: Context, _: object) -> Message:
    """Hand a message to the app's client; note what a task takes, if that is wanted."""
    partition, about = context.node_config["partition-id"], message.metadata
    if about.message_type == _QUERY and _PARTITION in message.content:
        told = ConfigRecord({"partition-id": int(partition)})
        return Message(RecordDict({_PARTITION: told}), reply_to=message)
    app, size = _app(job["clientapp"]), sum(x.count_bytes() for x in message.content.array_records.values())
    inner = _begin(job, context, partition, about.group_id, about.message_type)
    start = perf_counter()
    reply: Message = app(message, inner)
    seconds, context.state = perf_counter() - start, inner.state
    if job["times"] and reply.has_content():
        records: Any = reply.content.values()
        # In this run the fleet is such that a sample takes one virtual second.
        if drawn := max((record.get(wire.TRAIN_SECONDS, 0.0) for record in records), default=0.0):
            with Path(job["times"]).open("a", encoding="utf-8") as file:
                file.write(json.dumps([seconds / drawn, size]) + "\n")
    return reply


def _unused(_: Context) -> Any:
    raise RuntimeError("the mod answers every message")


def run(job: Job) -> None:
    """Run the app through Flower's `run_simulation`."""
    from flwr.simulation import run_simulation  # noqa: PLC0415 (slow)

    server, client = ServerApp(), ClientApp(client_fn=_unused, mods=[partial(_answer, job)])
    server.main()(partial(_serve, job))
    resources: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, job["clients"], backend_config=resources)


if __name__ == "__main__":
    _job = json.loads(sys.argv[1])
    try:
        run(_job)
    except BaseException as error:
        traceback.print_exc()
        while error.__cause__ is not None:  # Flower's own errors do not name the reason
            error = error.__cause__
        Path(_job["error"]).write_text(str(error) or type(error).__name__, encoding="utf-8")
        sys.stderr.flush()
        os._exit(1)  # the thread of Flower's ServerApp would wait for its clients for ever
