"""One call of the app: where it reads its epochs, and what it does with its samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from flwr_mel import wire


class WatchedConfig(dict[str, Any]):
    """A copy of a config that records whether one key was read.

    Parameters
    ----------
    config : mapping
        What to copy.
    key : str, optional
        The key to watch.
    """

    def __init__(self, config: Mapping[str, Any], key: str | None) -> None:
        super().__init__(config)
        self.key = key
        #: None: unknown, because the app copied or listed the whole config.
        self.was_read: bool | None = False

    def _note(self, key: str) -> None:
        if key == self.key and self.was_read is False:
            self.was_read = True

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value or the default."""
        self._note(key)
        return super().get(key, default)


def _noted(name: str) -> Any:
    """Return a method of dict that makes it unknown whether the key was read."""

    def method(self: WatchedConfig, *args: Any) -> Any:
        self.was_read = self.was_read or None
        return getattr(dict, name)(self, *args)

    return method


# dict(config) and {**config} call `keys`, because `__iter__` is not that of dict.
for _name in ("__iter__", "keys", "values", "items", "copy", "pop", "setdefault", "__or__"):
    setattr(WatchedConfig, _name, _noted(_name))


class Call:
    """What is known of one call of the app.

    Parameters
    ----------
    task : mapping, optional
        The server's task. Without one, the app does its own work.
    """

    def __init__(self, task: Mapping[str, Any] | None = None) -> None:
        task = task or {}
        #: tau_k; None: the project's own epochs.
        self.epochs: int | None = None
        #: One line about an error in the mod.
        self.problem: str | None = None
        if wire.CYCLE in task and wire.BASELINE not in task:
            epochs = task.get(wire.EPOCHS)
            if isinstance(epochs, int) and epochs >= 1:
                self.epochs = epochs
            else:
                self.problem = f"{wire.EPOCHS} is {epochs!r}: the app does its own epochs"
        self.named_key: str | None = task.get(wire.EPOCHS_KEY)
        #: The project's own number of epochs, if it was found.
        self.own_epochs: int | None = None
        self.config: WatchedConfig | None = None
        #: The app may have read its epochs where it is not observed.
        self.unobserved = False
        self.samples_used: int | None = None
        self.samples_held: int | None = None
        self.samples_drawn: int | None = None

    def override(self, config: Mapping[str, Any], *, add: bool = True) -> tuple[str | None, dict[str, Any]]:
        """Return the key of the epochs in a config, and a copy of the config with the epochs of the task.

        Parameters
        ----------
        config : mapping
            A run config, or the config of a message.
        add : bool
            Add a key that the server named if the config does not have it.
        """
        key = self.named_key or wire.find_epochs_key(config)
        if key is None or not (key in config or add):
            return None, dict(config)
        own = config.get(key)
        if self.own_epochs is None:
            self.own_epochs = number_of_epochs(own)
        if self.epochs is None:
            return key, dict(config)
        kind = type(own) if isinstance(own, float | str) else int
        return key, {**config, key: kind(self.epochs)}

    def drew(self) -> None:
        """Record that a sample was drawn from the loader."""
        self.samples_drawn = (self.samples_drawn or 0) + 1

    def chose(self, used: int, held: int) -> None:
        """Record a choice of samples; of several, the one from the most data counts."""
        if self.samples_held is None or held >= self.samples_held:
            self.samples_used, self.samples_held = used, held

    def report(self) -> dict[str, Any]:
        """Return what is known under the keys of the wire; unknown values are left out."""
        read = self.config.was_read if self.config is not None else None
        facts = {
            wire.OWN_EPOCHS: self.own_epochs,
            wire.EPOCHS_READ: None if read is None or (self.unobserved and not read) else int(read),
            wire.SAMPLES_USED: self.samples_used,
            wire.SAMPLES_HELD: self.samples_held,
            wire.SAMPLES_DRAWN: self.samples_drawn,
            wire.PROBLEM: self.problem,
        }
        return {key: value for key, value in facts.items() if value is not None}


_current: ContextVar[Call | None] = ContextVar("flwr_mel_call", default=None)


@contextmanager
def recorded(call: Call) -> Iterator[None]:
    """Let `Assignment` record into this call until the end of the block.

    Parameters
    ----------
    call : Call
        Of the app.
    """
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)


def current_call() -> Call:
    """Return the call under way; without a mod one that is not reported."""
    return _current.get() or Call()


def number_of_epochs(value: object) -> int | None:
    """Return a value of a config as a number of epochs; None if it is none.

    Parameters
    ----------
    value : object
        For example 3, 3.0 or "3".
    """
    return int(value) if wire.is_epochs(value) else None  # type: ignore[call-overload]
