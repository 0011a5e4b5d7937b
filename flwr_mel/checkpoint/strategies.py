"""`Checkpointed`: the wrapper around `MelStrategy`, for both APIs."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from pickle import Pickler
from typing import Any, overload
from zlib import crc32

import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.common import Parameters, ndarrays_to_parameters
from flwr.server.client_manager import ClientManager
from flwr.serverapp import Grid
from flwr.serverapp import strategy as message

from flwr_mel import server, serverapp
from flwr_mel._validate import Phrase, complain, count
from flwr_mel.around import Around, ClassicAround, MessageAround
from flwr_mel.checkpoint.files import lock, pack, read, write
from flwr_mel.cycle.state import State
from flwr_mel.cycle.updates import Arrays
from flwr_mel.records import CycleRecord
from flwr_mel.strategy import KEEP_RECORDS
from flwr_mel.wrapped import layers

log = logging.getLogger("flwr.mel")

Directory = str | os.PathLike[str]
#: Clients in the older records of a checkpoint, all together: about a megabyte.
_KEEP_ROWS = 2000
#: Bytes by which a change of a value is recognised that cannot be kept.
_TRACED = 1 << 24
#: How many checkpoints stay: the one before the newest is used if that is damaged.
_KEEP = 2


class _Checkpoints(Around):
    """What both APIs share: when a checkpoint is written, and what is restored from it."""

    def __init__(self, strategy: Any, directory: Directory) -> None:
        super().__init__(strategy)
        self.directory = Path(directory)
        self._layers = list(layers(strategy.strategy))
        self._constructed = [{name: _text(x) for name, x in vars(layer).items()} for layer in self._layers]
        #: Rows and text of each.
        self._records: deque[tuple[int, str]] = deque(maxlen=KEEP_RECORDS)
        #: Traces of attributes that cannot be kept, and the ones that changed.
        self._traces: dict[str, int] = {}
        self._lost: set[str] = set()
        self._found: dict[str, Any] | None = None
        self._begun = False
        strategy.on_round.append(self._save)

    def summary(self) -> None:
        """Log the directory, then the settings of the wrapped strategy."""
        log.info("\t├──> Checkpointed: %s", self.directory)
        self.strategy.summary()

    def rounds_left(self, num_rounds: int) -> int:
        """Return how many rounds are still to be run.

        Parameters
        ----------
        num_rounds : int
            In total.
        """
        found = self._newest()
        done = 0 if found is None else int(found["state"]["cycle"])
        return max(count("num_rounds", num_rounds) - done, 0)

    def _save(self, record: CycleRecord, model: Arrays) -> None:
        """Write a checkpoint after a round. If that fails, the training goes on."""
        mel = self.strategy
        try:
            self._records.append((len(record.learners), json.dumps(record.as_dict())))
            self._forget_rows()
            self._warn_of_losses(record.cycle)
            content = {
                "classes": self._classes,
                "model": dict(model),
                "state": mel.state.as_dict(),
                "records": [text for _, text in self._records],
                "callbacks": [[_class(x), x.snapshot()] for x in mel.callbacks if hasattr(x, "snapshot")],
                "strategy": [
                    {name: x for name, x in vars(layer).items() if _changed(x, constructed.get(name))}
                    for layer, constructed in zip(self._layers, self._constructed, strict=True)
                ],
            }
            write(self.directory / f"round-{record.cycle:08d}.npz", content)
            for old in self._files()[_KEEP:]:
                old.unlink()
        except Exception as error:
            log.warning("round %d: no checkpoint was written: %s", record.cycle, error)

    def _forget_rows(self) -> None:
        """Keep the clients of the newest record, and of older ones if they are few."""
        rows = 0
        for i in reversed(range(len(self._records))):
            here, text = self._records[i]
            rows += here
            if rows > _KEEP_ROWS and here and i < len(self._records) - 1:
                self._records[i] = 0, json.dumps(json.loads(text) | {"learners": []})

    def _warn_of_losses(self, cycle: int) -> None:
        """Name the attributes of the wrapped strategy that change from round to round and cannot be kept."""
        found = {
            f"{type(layer).__name__}.{name}": _trace(x)
            for layer in self._layers
            for name, x in vars(layer).items()
            if name != "strategy" and _text(x) is None
        }
        old, self._traces = self._traces, {name: x for name, x in found.items() if x is not None}
        changed = {name for name, x in self._traces.items() if old.get(name, x) != x} - self._lost
        if changed:
            self._lost |= changed
            log.warning(
                "round %d: checkpoints cannot keep %s, which changed in this round. A resumed training "
                "goes on without it. Keep state in numbers, texts, lists, dictionaries or numpy arrays",
                cycle,
                ", ".join(sorted(changed)),
            )

    def _restore(self, given: Arrays | None) -> Arrays | None:
        """Restore the newest checkpoint and return its model; None: there is none.

        `given` is the model with which the training would begin.
        """
        found, self._begun = self._newest(), True
        if found is None:
            return None
        model: dict[str, npt.NDArray[Any]] = found["model"]
        if given is not None and _layout(model) != _layout(given):
            self._reject("another model", _layout(model), _layout(given))
        self._found = None
        records = [CycleRecord.from_dict(json.loads(text)) for text in found["records"]]
        kept = [(len(x.learners), text) for x, text in zip(records, found["records"], strict=True)]
        self._records = deque(kept, maxlen=KEEP_RECORDS)
        for layer, attributes in zip(self._layers, found["strategy"], strict=True):
            for name, value in attributes.items():
                if _is_state(layer, name):
                    setattr(layer, name, value)
                else:
                    log.warning("%s.%s is not restored: it is no state", type(layer).__name__, name)
        stopped = self._restore_callbacks(found["callbacks"], records[-1])
        self.strategy.resume(replace(State.from_dict(found["state"]), stopped=stopped), records)
        log.info("the training in %s continues after round %d", self.directory, records[-1].cycle)
        return model

    def _restore_callbacks(self, saved: list[list[Any]], last: CycleRecord) -> str:
        """Restore callbacks, each from the next snapshot of its class; return why training stays stopped."""
        stopped = ""
        for callback in self.strategy.callbacks:
            if hasattr(callback, "resume"):
                callback.resume(last.cycle)
            mine = next((entry for entry in saved if entry[0] == _class(callback)), None)
            if mine is not None and hasattr(callback, "restore"):
                saved.remove(mine)
                callback.restore(mine[1])
                # Asked again: its criteria may have changed since.
                stopped = stopped or (last.stopped and callback(last)) or ""
        if last.stopped:
            log.info("training had stopped after round %d: %s", last.cycle, last.stopped)
        return stopped

    @property
    def _classes(self) -> list[str]:
        """Full names of the classes of the wrapped strategies, from outside to inside."""
        return [_class(layer) for layer in (self.strategy, *self._layers)]

    def _files(self) -> list[Path]:
        """Return the checkpoints, the newest first."""
        return sorted(self.directory.glob("round-*.npz"), reverse=True)

    def _newest(self) -> dict[str, Any] | None:
        """Return the newest checkpoint that can be read; None: there are none."""
        if self._found is None:
            self._open()
            damaged = []
            for path in self._files():
                try:
                    self._found = read(path)
                    break
                except Exception as error:  # whatever a damaged file causes
                    log.warning("checkpoint %s cannot be read: %s: %s", path, type(error).__name__, error)
                    damaged.append(path)
            if damaged and self._found is None:
                got = Phrase(f"{self.directory}: no checkpoint in it can be read")
                remedy = (
                    "To start from the beginning, move the checkpoints and the files of records away, or "
                )
                remedy += "give other paths."
                raise complain(
                    "directory", "a directory with a readable checkpoint or with none", got, remedy
                )
            for path in damaged:
                path.rename(path.with_suffix(".damaged"))
        if self._found is not None and self._found["classes"] != self._classes:
            self._reject("other strategies", self._found["classes"], self._classes)
        return self._found

    def _open(self) -> None:
        """Create and lock the directory, and remove what killed processes left half written."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock(self.directory)
            for leftover in self.directory.glob(".round-*.tmp"):
                leftover.unlink()
        except OSError as error:
            rule = "a directory that can be written to"
            raise complain("directory", rule, str(self.directory), f"{error}.") from error

    def _reject(self, what: str, old: list[Any], new: list[Any]) -> None:
        """Raise for a checkpoint of another training; name the first entry that differs."""
        pairs = [(a, b) for a, b in zip(old, new, strict=False) if a != b]
        a, b = pairs[0] if pairs else (f"{len(old)} entries", f"{len(new)} entries")
        got = Phrase(f"{self.directory}, which holds a training run with {what}: {a} there, {b} here")
        raise complain("directory", "a directory for this training run only", got, "Give another one.")


class Checkpointed(_Checkpoints):
    """Wraps a `MelStrategy` so that an interrupted training continues after its last complete round.

    Message API: call `start` as before; ``num_rounds`` includes the rounds before an interruption. Classic
    API: give ``ServerConfig(num_rounds=strategy.rounds_left(100))``.

    Parameters
    ----------
    strategy : MelStrategy
        Of either API; the result is a strategy of the same API.
    directory : path
        A directory for this training run only, on a disk that outlives the process. The last two checkpoints
        are kept.
    """

    @overload
    def __new__(cls, strategy: serverapp.MelStrategy, directory: Directory) -> MessageCheckpointed: ...
    @overload
    def __new__(cls, strategy: server.MelStrategy, directory: Directory) -> ClassicCheckpointed: ...
    def __new__(cls, strategy: Any, directory: Directory) -> Any:  # noqa: ARG004
        """Return an object of the API's class."""
        if isinstance(strategy, serverapp.MelStrategy):
            return object.__new__(MessageCheckpointed)
        if isinstance(strategy, server.MelStrategy):
            return object.__new__(ClassicCheckpointed)
        got = Phrase(f"a {type(strategy).__name__}")
        raise complain("strategy", "a MelStrategy", got, 'Write Checkpointed(MelStrategy(...), "directory").')


class MessageCheckpointed(Checkpointed, MessageAround):
    """`Checkpointed` in the Message API."""

    strategy: serverapp.MelStrategy

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *args: Any, **more: Any
    ) -> message.Result:
        """Run the rounds that are left, from the checkpoint's model if there is one.

        Parameters
        ----------
        grid, initial_arrays, num_rounds, *args, **more
            As for `MelStrategy.start`; `num_rounds` is the total.
        """
        arrays, left = self.resume(initial_arrays, num_rounds)
        if args:
            return self.strategy.start(grid, arrays, left, *args, **more)
        return self.strategy.start(grid, arrays, num_rounds=left, **more)

    def resume(self, arrays: ArrayRecord, num_rounds: int) -> tuple[ArrayRecord, int]:
        """Return the model to begin with, and the rounds that are left.

        `start` does this itself. Call it if another strategy, such as a DP wrapper, is the outermost.

        Parameters
        ----------
        arrays : ArrayRecord
            The model of a training without a checkpoint.
        num_rounds : int
            In total.
        """
        left = self.rounds_left(num_rounds)
        model = self._restore(serverapp.views(arrays))
        return arrays if model is None else ArrayRecord({k: Array(x) for k, x in model.items()}), left

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Pass on; an outermost strategy that did not call `resume` is an error."""
        if not self._begun:
            raise RuntimeError(
                "Checkpointed is not the outermost strategy, so its start method is not called. Before the "
                "training, call arrays, num_rounds = checkpointed.resume(arrays, num_rounds)"
            )
        return super().configure_train(server_round, arrays, config, grid)


class ClassicCheckpointed(Checkpointed, ClassicAround):
    """`Checkpointed` in the classic API."""

    strategy: server.MelStrategy

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Begin with the checkpoint's model if there is one."""
        given = self.strategy.initialize_parameters(client_manager)
        # After the wrapped strategy has initialised itself, which would undo it.
        model = self._restore(None if given is None else server.views(given))
        return given if model is None else ndarrays_to_parameters(list(model.values()))


def _class(x: object) -> str:
    """Return the full name of an object's class."""
    return f"{type(x).__module__}.{type(x).__qualname__}"


def _layout(model: Arrays) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes; types may change: FedAdam makes float64 of float32."""
    return [(name, x.shape) for name, x in model.items()]


def _text(value: Any) -> str | None:
    """Return what to compare an attribute by: "" if it has arrays, None if it cannot be kept."""
    arrays: list[npt.NDArray[Any]] = []
    try:
        text = json.dumps(pack(value, arrays))
    except TypeError:
        return None
    return "" if arrays else text


def _changed(value: Any, constructed: str | None) -> bool:
    """Whether an attribute is state: it has arrays, or differs from what the constructor left."""
    text = _text(value)
    return text == "" or (text is not None and text != constructed)


def _is_state(layer: object, name: str) -> bool:
    """Whether a checkpoint may set an attribute: it is plain, or new and hides nothing of the class."""
    if name.startswith("__") or name == "strategy":
        return False
    if name in vars(layer):
        return _text(vars(layer)[name]) is not None
    return not hasattr(type(layer), name) or _text(getattr(type(layer), name)) is not None


class _Trace:
    """A file that keeps only the checksum of the first megabytes that are written."""

    def __init__(self) -> None:
        self.size = self.value = 0

    def write(self, data: Any) -> None:
        """Add to the checksum."""
        self.size, self.value = self.size + memoryview(data).nbytes, crc32(data, self.value)
        if self.size > _TRACED:
            raise EOFError


def _trace(value: Any) -> int | None:
    """Return a number that differs if a value changed; None: it cannot be told. Nothing is ever unpickled."""
    trace = _Trace()
    try:
        Pickler(trace).dump(value)
    except EOFError:  # enough
        pass
    except Exception:
        return None
    return trace.value
