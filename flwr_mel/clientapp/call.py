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
        limit = task.get(wire.SECONDS, math.inf)
        #: Seconds that the task may take.
        self.limit = math.inf
        if isinstance(limit, int | float) and limit >= 0:
            self.limit = float(limit)
        else:
            self.problem = f"{wire.SECONDS} is {limit!r}: the task has no limit"
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
        self._by_loader = self._asked = self._over = False
        #: The loader left out samples, because the seconds were over.
        self.cut = False
        # Seconds per sample of the fastest batch. The first ones may include loading and warming up.
        self._pace = math.inf

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

    def drew(self, samples: int, *, by_loader: bool = True) -> None:
        """Record that the app trains on samples."""
        self.samples_drawn = (self.samples_drawn or 0) + samples
        self._by_loader = self._by_loader or by_loader

    def now(self) -> float:
        """Return the seconds since the message arrived."""
        if self._device is None:
            return self._clock() - self._start
        drawn = self.samples_drawn
        seen = (self._chosen or 0) if drawn is None else min(drawn, self._chosen or drawn)
        return price(self._device, drawn or 0, seen)[0]

    def left(self) -> float:
        """Return the seconds that are left; infinity without a limit."""
        return self.limit if self.limit == math.inf else self.limit - self.now()

    def ask_left(self) -> float:
        """Return the seconds that are left to the app, which stops by them."""
        left = self.left()
        self._asked, self._over = True, self._over or left <= 0
        return left

    def paced(self, seconds: float, samples: int) -> None:
        """Record how long a batch took."""
        self._pace = min(self._pace, seconds / max(samples, 1))

    def room(self) -> float:
        """Return how many samples fit into the seconds that are left."""
        left = self.left()
        if left == math.inf:
            return left
        pace = 0.0 if self._pace == math.inf else self._pace
        if self._device is not None:
            new = (self.samples_drawn or 0) < (self._chosen or math.inf)
            pace = self._device.c2 + (self._device.c1 if new else 0)
        if pace == 0:
            return math.inf if left > 0 else 0.0
        return max(0.0, (left + _ROUNDING * self.limit) // pace)

    @property
    def samples_used(self) -> int | None:
        """Distinct samples that the app trained on, as far as it is known."""
        if self._chosen is None or self.samples_drawn is None or not self.stopped:
            return self._chosen
        return min(self._chosen, self.samples_drawn)

    @property
    def stopped(self) -> bool:
        """Whether the seconds of the task were over before its work was done."""
        if self.samples_drawn is None or self._chosen is None:
            return self.cut or self._over
        whole = (self.epochs or self.own_epochs or 1) * self._chosen
        return self.cut or (self._over and self.samples_drawn < whole)

    def read(self) -> bool | None:
        """Return whether the app read its epochs; None: unknown."""
        in_config = self.config.was_read if self.config is not None else None
        if self.epochs_read or in_config:
            return True
        return None if self.unobserved else in_config

    def report(self, examples: int | None = None) -> dict[str, Any]:
        """Return what is known under the keys of the wire; unknown values are left out.

        Parameters
        ----------
        examples : int, optional
            That the app's reply counts.
        """
        read, took, joules = self.read(), self.took, None
        stops = self._by_loader or self._asked
        if self._device is not None:
            took, joules = self._priced(self._device, read, examples)
            # Without a count, no virtual time passes in a loop of the app's own.
            stops = stops and self.samples_drawn is not None
        facts = {
            wire.OWN_EPOCHS: self.own_epochs,
            wire.EPOCHS_READ: None if read is None else int(read),
            wire.SAMPLES_USED: self.samples_used,
            wire.SAMPLES_HELD: self.samples_held,
            wire.SAMPLES_DRAWN: self.samples_drawn,
            wire.STOPS: 1 if stops else None,
            wire.STOPPED: 1 if self.stopped else None,
            wire.TRAIN_SECONDS: took,
            wire.TRAIN_JOULES: joules,
            wire.VIRTUAL: None if self._device is None else 1,
            wire.PROBLEM: self.problem,
        }
        return {key: value for key, value in facts.items() if value is not None}

    def _priced(
        self, device: Measured, read: bool | None, examples: int | None
    ) -> tuple[float | None, float | None]:
        """Price the work on the virtual device.

        If samples were not counted, they are the epochs times the samples used. The epochs are those of the
        task, unless the app did not read them. The samples are those chosen, or else those of the reply.
        """
        samples = self.samples_used or examples
        if samples is None:
            self.problem = "no virtual time: the app neither chose samples nor replied with num-examples"
            return None, None
        own = self.own_epochs or 1
        drawn = self.samples_drawn
        if drawn is None:
            drawn = samples * (own if read is False else self.epochs or own)
        return price(device, drawn, samples)


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
