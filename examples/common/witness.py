"""Mods and handlers that a project knows nothing of: slow devices, and a witness of what clients did."""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time

from flwr.app import Context, Message

from flwr_mel import wire
from flwr_mel.clientapp.watch import unwatched


def note(path: Path, **words: object) -> None:
    """Append a line in one write, since many processes do."""
    line = json.dumps({"time": time(), **words}) + "\n"
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())


@dataclass(frozen=True)
class Witness:
    """The innermost mod: makes devices slow, and writes down every training.

    Parameters
    ----------
    path : Path
        Where lines go.
    paces : tuple of float
        Seconds that each partition takes for one epoch of one sample, if this machine is not slower. Not so
        many times what the processor took: that would make loading a library slow, too.
    """

    path: Path
    paces: tuple[float, ...]

    def __call__(self, message: Message, context: Context, call_next: Callable) -> Message:
        """Train, wait as long as the slower device would take, note what was done."""
        partition = int(context.node_config["partition-id"])
        began, start = time(), monotonic()
        reply = call_next(message, context)
        if message.metadata.message_type == "train" and reply.has_content():
            words = {**_task(message), **_done(reply)}
            pace = self.paces[partition % len(self.paces)]
            sleep(max(start + pace * words["ran"] * words["rows"] - monotonic(), 0.0))
            note(self.path, partition=partition, began=began, pid=os.getpid(), **words)
        return reply


def _task(message: Message) -> dict[str, object]:
    for record in message.content.config_records.values():
        if wire.CYCLE in record:
            words = unwatched(record)  # what is read here is not read by the app
            keys = {"cycle": wire.CYCLE, "epochs": wire.EPOCHS, "samples": wire.SAMPLES}
            return {name: words.get(key) for name, key in keys.items()}
    return {}


def _done(reply: Message) -> dict[str, object]:
    records = (*reply.content.metric_records.values(), *reply.content.config_records.values())
    said = {key: value for record in records for key, value in record.items()}
    rows = said.get("rows", said.get("num-examples", said.get("num_examples")))
    return {
        "ran": said["epochs-run"],
        "rows": rows,
        "said": said.get("num-examples", said.get("num_examples")),
        "steps": said.get("steps"),
        "epsilon": said.get("epsilon"),
    }


class Lines(logging.Handler):
    """Writes down what the server logs, and when.

    Parameters
    ----------
    path : Path
        Where lines go.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        note(self._path, level=record.levelname, text=record.getMessage())
