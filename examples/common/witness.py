"""Mods and handlers that a project knows nothing of: slow devices, and a witness of what clients did."""

import json
import logging
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time

import numpy as np
from flwr.app import Context, Message

from flwr_mel import wire


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
    seed : int
        With it, the partition and the round, the generators that a project may draw from begin every
        training, so that runs repeat; what a project seeds itself stays as it is.
    """

    path: Path
    paces: tuple[float, ...]
    seed: int = 0

    def __call__(self, message: Message, context: Context, call_next: Callable) -> Message:
        """Train, wait as long as the slower device would take, note what was done."""
        partition = int(context.node_config["partition-id"])
        _sow([self.seed, partition, _round(message)])
        began, start = time(), monotonic()
        reply = call_next(message, context)
        if message.metadata.message_type == "train" and reply.has_content():
            words = {**_task(message), **_done(reply)}
            pace = self.paces[partition % len(self.paces)]
            sleep(max(start + pace * words["ran"] * words["rows"] - monotonic(), 0.0))
            note(self.path, partition=partition, began=began, pid=os.getpid(), **words)
        return reply


def _round(message: Message) -> int:
    """Return the number of the round, which projects get with their message in one of two ways."""
    words = [dict(record) for record in message.content.config_records.values()]
    told = [record["server-round"] for record in words if "server-round" in record]
    return int(told[0] if told else message.metadata.group_id or 0)


def _sow(entropy: list[int]) -> None:
    """Seed the generators that everything in a process shares; torch only where it is used."""
    seeds = np.random.SeedSequence(entropy).generate_state(3)
    random.seed(int(seeds[0]))
    np.random.seed(seeds[1])  # noqa: NPY002 (projects use it)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(int(seeds[2]))


def _task(message: Message) -> dict[str, object]:
    for record in message.content.config_records.values():
        if wire.CYCLE in record:
            words = dict(record)
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
