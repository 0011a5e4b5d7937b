"""One run of an app on Flower's simulation engine: a process of its own, ``python -m ...engine JOB``.

The same job gives the same bytes, in whatever order clients are computed and by however many workers: nodes
are known by their partition, a round's replies are handed over together in their order, and each task of a
client begins with random generators of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import partial, reduce
from pathlib import Path
from threading import Lock
from time import monotonic, perf_counter, sleep
from typing import Any, TypedDict, cast
from zlib import crc32

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client import Client
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from flwr_mel import wire
from flwr_mel._text import last_error
from flwr_mel.grid import TimedGrid

_QUERY, _PARTITION = "query", "mel-partition"
_PATIENCE_S, _PAUSE_S = 60.0, 0.02


class Job(TypedDict):
    """What to run.

    Parameters
    ----------
    serverapp, clientapp : str
        As in the app's pyproject.toml, ``module:attribute``.
    config : dict
        The run config, flat.
    clients, seed : int
        How many, and the seed of all random generators.
    times : str
        File for what tasks take on this machine; "": none is written.
    error : str
        File for the reason of a failure.
    """

    serverapp: str
    clientapp: str
    config: dict[str, Any]
    clients: int
    seed: int
    times: str
    error: str


def _load(component: str) -> Any:
    module, _, attribute = component.partition(":")
    return reduce(getattr, attribute.split("."), importlib.import_module(module))


def _seed(*about: object) -> None:
    """Seed the random generators that the app may share with others."""
    number = crc32(repr(about).encode())
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - the app's, not ours
    if torch := sys.modules.get("torch"):
        torch.manual_seed(number)


def _context(context: Context, job: Job) -> Context:
    """Return a context with the app's run config, which the engine leaves empty."""
    own = (context.node_config, context.state)
    return Context(context.run_id, context.node_id, *own, dict(job["config"]))


class InOrder(TimedGrid):
    """A grid whose nodes and replies are in the order of the partitions. It times nothing."""

    def __init__(self, grid: Grid, clients: int) -> None:
        super().__init__(grid)
        self._carrier = grid
        end = monotonic() + _PATIENCE_S
        while len(nodes := list(grid.get_node_ids())) < clients and monotonic() < end:
            sleep(_PAUSE_S)
        asked = [Message(RecordDict({_PARTITION: ConfigRecord()}), node, _QUERY) for node in nodes]
        told = {}
        for reply in grid.send_and_receive(asked):
            if reply.has_error():
                raise RuntimeError(f"a client does not start: {last_error(reply.error.reason or '')}")
            told[reply.metadata.src_node_id] = reply.content.config_records[_PARTITION]["partition-id"]
        self._nodes = sorted(told, key=lambda node: cast("int", told[node]))
        self._open: dict[str, int] = {}
        self._came: dict[str, Message] = {}
        self._lock = Lock()  # the classic API has a thread per client
        #: Bytes of the largest model that was sent.
        self.model_bytes = 0

    def get_node_ids(self) -> list[int]:
        """Return the nodes by partition."""
        return self._nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages."""
        sent = list(messages)
        for message in sent:
            arrays = message.content.array_records.values()
            self.model_bytes = max(self.model_bytes, sum(record.count_bytes() for record in arrays))
        with self._lock:
            ids = list(self._carrier.push_messages(sent))
            for name, message in zip(ids, sent, strict=True):
                self._open[name] = self._nodes.index(message.metadata.dst_node_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies, in order, as soon as all messages that were sent are answered."""
        with self._lock:
            wanted = [name for name in message_ids if name in self._open]
            missing = [name for name in wanted if name not in self._came]
            for reply in self._carrier.pull_messages(missing) if missing else ():
                self._came[reply.metadata.reply_to_message_id] = reply
            if not all(name in self._came for name in self._open):
                return []
            wanted.sort(key=self._open.pop)
            return [self._came.pop(name) for name in wanted]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send all and return the replies, as `Grid.send_and_receive` does; time is virtual: no timeout."""
        del timeout
        ids = self.push_messages(messages)
        while not (replies := self.pull_messages(ids)) and ids:
            sleep(_PAUSE_S)
        return replies


def _serve(job: Job, grid: Grid, context: Context) -> None:
    """Run the app's server."""
    _seed(job["seed"])
    app, ordered = _load(job["serverapp"]), InOrder(grid, job["clients"])
    try:
        app(ordered, _context(context, job))
    finally:
        if job["times"]:
            _note(job, {"model_bytes": ordered.model_bytes})


def _answer(job: Job, message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
    """Hand a message to the app's client; measure what a task takes, if that is wanted."""
    del call_next
    partition = context.node_config["partition-id"]
    if message.metadata.message_type == _QUERY and _PARTITION in message.content:
        told = ConfigRecord({"partition-id": int(partition)})
        return Message(RecordDict({_PARTITION: told}), reply_to=message)
    app, inner = _load(job["clientapp"]), _context(context, job)
    _seed(job["seed"], partition, message.metadata.group_id, message.metadata.message_type)
    start = perf_counter()
    reply: Message = app(message, inner)
    took, context.state = perf_counter() - start, inner.state
    if job["times"] and reply.has_content():
        # In this run the fleet is such that a sample takes one virtual second.
        drawn = max((_number(record) for record in reply.content.values()), default=0.0)
        if drawn > 0:
            _note(job, {"seconds": took, "drawn": drawn})
    return reply


def _number(record: Any) -> float:
    """Return the time that the mod reports, if this is its record."""
    return float(record.get(wire.TRAIN_SECONDS, 0.0))


def _note(job: Job, facts: dict[str, float]) -> None:
    with Path(job["times"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


def _unused(_: Context) -> Client:
    raise RuntimeError("the mod answers every message")


def run(job: Job) -> None:
    """Run the app through Flower's `run_simulation`."""
    from flwr.simulation import run_simulation  # noqa: PLC0415 (slow)

    server = ServerApp()
    server.main()(partial(_serve, job))
    run_simulation(
        server_app=server,
        client_app=ClientApp(client_fn=_unused, mods=[partial(_answer, job)]),
        num_supernodes=job["clients"],
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    _job: Job = json.loads(sys.argv[1])
    try:
        run(_job)
    except BaseException as error:
        traceback.print_exc()
        Path(_job["error"]).write_text(str(error) or type(error).__name__, encoding="utf-8")
        sys.stderr.flush()
        os._exit(1)  # the thread of Flower's ServerApp would wait for its clients for ever
