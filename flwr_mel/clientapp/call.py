"""One call of the app: where it reads its epochs, how long it takes, what it does with its samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from flwr_mel import wire
from flwr_mel.clientapp.virtual import price
from flwr_mel.devices import Measured

#: Samples of an epoch that begins after the time is over, so that no app divides by zero. With BatchNorm, one
#: would be too few.
LEAST = 2
#: Share of the seconds by which sums in floating point may miss a task that takes exactly its seconds.
_ROUNDING = 1e-9


class WatchedConfig(dict[str, Any]):
    """A copy of a config that records whether one key was read.

    Parameters
    ----------
    config : mapping
        What to copy.
    key : str, optional
        The key to watch.
    """

    # Those of dict do not call __getitem__ and __iter__.
    get, pop, setdefault = Mapping.get, MutableMapping.pop, MutableMapping.setdefault  # type: ignore[assignment]
    keys, values, items = Mapping.keys, Mapping.values, Mapping.items  # type: ignore[assignment]

    def __init__(self, config: Mapping[str, Any], key: str | None) -> None:
        super().__init__(config)
        self.key = key
        #: None: unknown, because the app copied or listed the whole config.
        self.was_read: bool | None = False

    def __getitem__(self, key: str) -> Any:
        if key == self.key and self.was_read is False:
            self.was_read = True
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:
        self.was_read = self.was_read or None
        return super().__iter__()

    def copy(self) -> dict[str, Any]:
        """Return a plain dict."""
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return self.copy() | other


def unwatched(config: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a config without recording that it was read.

    Parameters
    ----------
    config : mapping
        Watched or not.
    """
    return dict(dict.items(config) if isinstance(config, dict) else config)


class Call:
    """What is known of one call of the app.

    Parameters
    ----------
    task : mapping, optional
        The server's task. Without one, the app does its own work.
    clock : callable
        Returns seconds; the call starts now.
    device : Measured, optional
        Of a virtual fleet. Time is then the price of the samples drawn so far, and the clock is not used.
    """

    def __init__(
        self,
        task: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = perf_counter,
        device: Measured | None = None,
    ) -> None:
        task = task or {}
        self._clock, self._start, self._device = clock, clock(), device
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
        limit = task.get(wire.SECONDS)
        #: Seconds that the task may take.
        self.limit = float(limit) if isinstance(limit, int | float) and limit >= 0 else math.inf
        #: Seconds that the task took; None while it is under way.
        self.took: float | None = None
        self.named_key: str | None = task.get(wire.EPOCHS_KEY)
        #: The project's own number of epochs, if it was found.
        self.own_epochs: int | None = None
        self.config: WatchedConfig | None = None
        #: The app may have read its epochs where it is not observed.
        self.unobserved = False
        #: The app read `Assignment.epochs`.
        self.epochs_read = False
        self._chosen: int | None = None
        self.samples_held: int | None = None
        self.samples_drawn: int | None = None
        #: The app stops in time; it stopped before its work was done.
        self.stops = self.stopped = False
        # Epochs that the loader began.
        self._began = 0
        # Seconds per sample of the fastest batch, as others include loading and warming up. 0: unknown.
        self._pace = 0.0

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

    def chose(self, used: int, held: int) -> None:
        """Record a choice of samples; of several, the one from the most data counts."""
        if self.samples_held is None or held >= self.samples_held:
            self._chosen, self.samples_held = used, held

    def begin(self) -> bool:
        """Record that an epoch of the loader begins; return whether it is the first."""
        self.stops, self._began, self.samples_drawn = True, self._began + 1, self.samples_drawn or 0
        return self.samples_drawn == 0

    def drew(self, samples: int) -> None:
        """Record that the app trains on samples."""
        self.samples_drawn = (self.samples_drawn or 0) + samples

    def paced(self, seconds: float, samples: int) -> None:
        """Record how long a batch took."""
        pace = seconds / max(samples, 1)
        self._pace = min(self._pace or pace, pace)

    def now(self) -> float:
        """Return the seconds since the message arrived."""
        if self._device is None:
            return self._clock() - self._start
        drawn, chosen = self.samples_drawn, self._chosen or 0
        return price(self._device, drawn or 0, chosen if drawn is None else min(drawn, chosen))[0]

    def left(self) -> float:
        """Return the seconds that are left; infinity without a limit."""
        return self.limit if self.limit == math.inf else self.limit - self.now()

    def ask_left(self) -> float:
        """Return the seconds that are left to the app, which stops when they are over."""
        left, self.stops = self.left(), True
        whole = self._due * (self._chosen or math.inf)
        self.stopped = self.stopped or (left <= 0 and (self.samples_drawn or 0) < whole)
        return left

    @property
    def _due(self) -> int:
        """Epochs that the app is to do."""
        return self.epochs or self.own_epochs or 1

    def room(self) -> float:
        """Return how many samples fit into the seconds that are left, if every later epoch does its least."""
        left, pace, new = self.left(), self._pace, 0.0
        if self._device is not None:
            pace = self._device.c2
            new = self._device.c1 if (self.samples_drawn or 0) < (self._chosen or math.inf) else 0.0
        if not pace or left == math.inf:
            return math.inf if left > 0 else 0
        later = LEAST * max(0, self._due - self._began)
        return (left + _ROUNDING * self.limit - later * pace) // (pace + new)

    @property
    def samples_used(self) -> int | None:
        """Distinct samples that the app trained on, as far as it is known."""
        drawn = self.samples_drawn if self.stopped else None
        return self._chosen if self._chosen is None or drawn is None else min(self._chosen, drawn)

    def report(self, examples: int | None = None) -> dict[str, Any]:
        """Return what is known under the keys of the wire; unknown values are left out.

        Parameters
        ----------
        examples : int, optional
            That the app's reply counts.
        """
        in_config = self.config.was_read if self.config is not None else None
        read = True if self.epochs_read or in_config else None if self.unobserved else in_config
        facts = {
            wire.TRAIN_SECONDS: self.took,
            wire.OWN_EPOCHS: self.own_epochs,
            wire.EPOCHS_READ: None if read is None else int(read),
            wire.SAMPLES_USED: self.samples_used,
            wire.SAMPLES_HELD: self.samples_held,
            wire.SAMPLES_DRAWN: self.samples_drawn,
            wire.STOPS: int(self.stops) or None,
            wire.STOPPED: int(self.stopped) or None,
            wire.PROBLEM: self.problem,
        }
        if self._device is not None:
            facts |= self._priced(self._device, read, self.samples_used or examples)
        return {key: value for key, value in facts.items() if value is not None}

    def _priced(self, device: Measured, read: bool | None, samples: int | None) -> dict[str, Any]:
        """Return what is different on a virtual fleet; its docstring has the rule for uncounted work."""
        drawn, own = self.samples_drawn, self.own_epochs or 1
        words: dict[str, Any] = {wire.VIRTUAL: 1, wire.TRAIN_SECONDS: None}
        if drawn is None:  # then no time passes before the end
            words[wire.STOPS] = None
            drawn = (samples or 0) * (own if read is False else self.epochs or own)
        if samples is None:
            reason = "no virtual time: the app neither chose samples nor replied with num-examples"
            return {**words, wire.PROBLEM: self.problem or reason}
        words[wire.TRAIN_SECONDS], words[wire.TRAIN_JOULES] = price(device, drawn, samples)
        return words


_current: ContextVar[Call | None] = ContextVar("flwr_mel_call", default=None)


@contextmanager
def recorded(call: Call) -> Iterator[None]:
    """Let `Assignment` record into this call until the end of the block, and its clock stop there.

    Parameters
    ----------
    call : Call
        Of the app.
    """
    token = _current.set(call)
    try:
        yield
    finally:
        call.took = call.now()
        _current.reset(token)


def current_call(default: Call | None = None) -> Call:
    """Return the call under way; without a mod the default, or one that is not reported."""
    return _current.get() or default or Call()


def number_of_epochs(value: object) -> int | None:
    """Return a value of a config as a number of epochs; None if it is none.

    Parameters
    ----------
    value : object
        For example 3, 3.0 or "3".
    """
    return int(value) if wire.is_epochs(value) else None  # type: ignore[call-overload]
