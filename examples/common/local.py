"""Run one project without Ray, all devices in this process: ``python -m examples.common.local APP OUT``.

With ``--tasks`` a wrapped client gets tasks under a server that gives none: device k is told 1 + k epochs and
20 + 7 k samples (and in the first round a free task), so that the client's half is checked alone.
"""

import argparse
import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from examples.common.engine import prepared
from flwr_mel import wire

Words = Callable[[int, int], dict]


class LocalGrid(Grid):
    """Nodes that answer at once, one at a time.

    Parameters
    ----------
    app : ClientApp
        What every node runs.
    nodes : int
        How many.
    words : callable, optional
        What to add to the message of a node in a round.
    """

    def __init__(self, app, nodes: int, words: Words | None) -> None:
        self._app, self._words = app, words
        self._run = Run.create_empty(1)
        places = ({"partition-id": k, "num-partitions": nodes} for k in range(nodes))
        self._contexts = {
            101 + k: Context(1, 101 + k, place, RecordDict(), {}) for k, place in enumerate(places)
        }
        self._trained = dict.fromkeys(self._contexts, 0)
        self._lock = threading.Lock()  # the classic API sends from several threads

    def set_run(self, run) -> None:
        """Keep the run that there is."""

    @property
    def run(self):
        """The run."""
        return self._run

    def create_message(self, *args, **kwargs):
        """Refuse: messages are made by their own class."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self._contexts)

    def push_messages(self, messages):
        """Refuse: nobody here asks this way."""
        raise NotImplementedError

    def pull_messages(self, message_ids):
        """Refuse: nobody here asks this way."""
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Let every node answer."""
        return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        with self._lock:
            # What would be serialised on the way is no longer shared.
            content = RecordDict({key: _own(value) for key, value in message.content.items()})
            message.content = content
            if message.metadata.message_type == "train":
                self._trained[node] += 1
                self._tell(content, node)
            return self._app(message, self._contexts[node])

    def _tell(self, content: RecordDict, node: int) -> None:
        if self._words is None:
            return
        name = next(iter(content.config_records), "config")
        told = self._words(node - 101, self._trained[node])
        content[name] = ConfigRecord({**content.config_records.get(name, {}), **told})


def _own(record):
    return ConfigRecord(dict(record)) if isinstance(record, ConfigRecord) else record


def tasks(k: int, cycle: int) -> dict:
    """Return the words of a task; the first one is a baseline task."""
    words = {wire.CYCLE: cycle, wire.SEED: 100 * cycle + k}
    return words | ({wire.BASELINE: 1} if cycle == 1 else {wire.EPOCHS: 1 + k, wire.SAMPLES: 20 + 7 * k})


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("app", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", action="store_true")
    parser.add_argument("--config", default="{}")
    arguments = parser.parse_args()
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    changes = json.loads(arguments.config)
    server, client = prepared(arguments.app, arguments.out, (0.0,), changes=changes)
    grid = LocalGrid(client, 4, tasks if arguments.tasks else None)
    server(grid, Context(1, 0, {}, RecordDict(), {}))


if __name__ == "__main__":
    main()
