"""Lays the epochs over the places where an app reads them, and sees whether it does."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, KeysView, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Context

from flwr_mel import wire
from flwr_mel.clientapp.drawn import Drawn

log = logging.getLogger("flwr.mel")

#: The call under way, for whoever gets a copy of the config (`Assignment.from_config`).
current: ContextVar[Watch | None] = ContextVar("flwr_mel_watch", default=None)

_MISSING = object()


@dataclass
class Place:
    """One config of a call, and what the app did with it.

    Parameters
    ----------
    key : str, optional
        Where the project's epochs are in it.
    own : object
        What stood there.
    laid : object
        What stands there during the call.
    """

    key: str | None
    own: object = _MISSING
    laid: object = _MISSING
    reads: Counter[str] = field(default_factory=Counter)
    listings: int = 0
    copied: bool = False

    def read(self, key: str | None) -> bool:
        """Whether the app asked for this key, other than by copying everything."""
        return key is not None and self.reads[key] > self.listings

    def restore(self, config: MutableMapping[str, Any]) -> None:
        """Put back what stood there, unless the app itself wrote something else."""
        if self.key is None or config.get(self.key, _MISSING) != self.laid:
            return
        if self.own is _MISSING:
            config.pop(self.key, None)
        else:
            config[self.key] = self.own


class Watch:
    """What is seen of one call of the app.

    Parameters
    ----------
    epochs : int, optional
        tau_k, laid over the project's own epochs; None: a free task, which leaves them as they are.
    named : str, optional
        The key of the project's epochs, if somebody said it; then it is laid wherever it may be looked for.
    """

    def __init__(self, epochs: int | None, named: str | None = None) -> None:
        self.epochs = epochs
        self.named = named
        self.places: list[Place] = []
        self.blind = False  # nothing could be laid or watched
        self.asked = False  # somebody read `Assignment.epochs`
        self.told: int | None = None  # the project's own epochs, told by the app itself
        self.used: int | None = None
        self.held: int | None = None
        self.drawn = 0
        self.loaders: Drawn = Counter()

    def place(self, config: Mapping[str, Any], *, add: bool = True) -> Place:
        """Find the epochs of one config, and what to lay over them."""
        key = self.named if self.named is not None else wire.find_epochs_key(config)
        if key is not None and key not in config and not (add and self.epochs is not None):
            key = None
        place = Place(key)
        if key is not None:
            place.own = config.get(key, _MISSING)
            place.laid = place.own if self.epochs is None else _like(place.own, self.epochs)
        self.places.append(place)
        return place

    def chose(self, used: int, held: int) -> None:
        """Note a choice of samples; of several the one from the most data counts."""
        if self.held is None or held >= self.held:
            self.used, self.held = used, held

    @property
    def read(self) -> str:
        """Whether the app read its epochs: yes, no or unknown."""
        if self.asked or any(p.read(p.key) or p.read(wire.EPOCHS) for p in self.places):
            return wire.YES
        unseen = self.blind or any(place.copied or place.listings for place in self.places)
        return wire.UNKNOWN if unseen else wire.NO

    @property
    def own(self) -> tuple[str, object] | None:
        """Key and value of the project's own epochs: where it read them, else where they were."""
        there = [p for p in self.places if p.key is not None and p.own is not _MISSING]
        there.sort(key=lambda p: not p.read(p.key))
        return (str(there[0].key), there[0].own) if there else None

    @property
    def own_epochs(self) -> int | None:
        """The project's own number of epochs, if it is known."""
        if self.told is not None:
            return self.told
        return int(float(str(self.own[1]))) if self.own and wire.is_epochs(self.own[1]) else None

    @property
    def done(self) -> float | None:
        """Epochs done, as far as is known."""
        if self.read == wire.YES:
            return self.epochs if self.epochs is not None else self.own_epochs
        if self.drawn and self.used:
            return round(self.drawn / self.used, 3)
        return None


def _like(own: object, epochs: int) -> int | float | str:
    """Give the epochs the type that the app expects."""
    if isinstance(own, str):
        return str(epochs)
    return float(epochs) if isinstance(own, float) else epochs


# --- configs that tell what is read ------------------------------------------------------------------------


class WatchedDict(dict[str, Any]):
    """A dict that counts reads. Copies of it are plain dicts."""

    place: Place
    below: MutableMapping[str, Any]

    @classmethod
    def over(cls, below: MutableMapping[str, Any], watch: Watch, *, add: bool = True) -> WatchedDict:
        """Copy a config and lay the epochs over it."""
        laid = cls(below)
        laid.below = below
        laid.place = watch.place(below, add=add)
        if laid.place.key is not None:
            laid[laid.place.key] = laid.place.laid
        return laid

    def __getitem__(self, key: str) -> Any:
        self.place.reads[key] += 1
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:
        # Also what makes dict(self) and {**self} take the slow way, which is seen.
        self.place.listings += 1
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        """Return a view; going through it counts."""
        return KeysView(self)

    def items(self) -> Any:
        """Return a view of everything."""
        self.place.copied = True
        return super().items()

    def copy(self) -> dict[str, Any]:
        """Return a plain dict."""
        return dict(self.items())

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value or the default."""
        self.place.reads[key] += 1
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a value and return it."""
        self.place.reads[key] += 1
        return super().pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return a value, which becomes the default if there is none."""
        self.place.reads[key] += 1
        return super().setdefault(key, default)

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)

    def settle(self) -> None:
        """Carry what the app itself wrote to the config below; the epochs are not its."""
        now = dict(super().items())
        self.place.restore(now)
        if now != self.below:
            self.below.clear()
            self.below.update(now)


class WatchedRecord(ConfigRecord):
    """A ConfigRecord that counts reads. A record becomes one and ceases to be one in place."""

    def _place(self) -> Place:
        place: Place = self.__dict__["mel_place"]
        return place

    def __getitem__(self, key: str) -> Any:
        self._place().reads[key] += 1
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:
        self._place().listings += 1
        return super().__iter__()

    def keys(self) -> KeysView[str]:
        """Return a view; going through it counts."""
        return KeysView(self)

    def items(self) -> Any:
        """Return a view of everything."""
        self._place().copied = True
        return super().items()

    def copy(self) -> Any:
        """Return a plain record."""
        return ConfigRecord(dict(self.items()))

    def __reduce__(self) -> Any:
        return ConfigRecord, (dict(self.items()),)


def unwatched(config: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a config without this counting as a read."""
    if isinstance(config, WatchedRecord):
        return dict(ConfigRecord.items(config))
    if isinstance(config, WatchedDict):
        return dict(dict.items(config))
    return dict(config)


def watch_of(config: Mapping[str, Any]) -> Watch | None:
    """Return who watches the call that this config belongs to."""
    own = config.__dict__.get("mel_watch") if isinstance(config, WatchedRecord) else None
    return own if own is not None else current.get()


# --- the call ----------------------------------------------------------------------------------------------


@contextmanager
def laid_over(
    context: Context, records: list[ConfigRecord], task: ConfigRecord, watch: Watch
) -> Iterator[None]:
    """Lay the epochs over run config and message for the time of one call.

    Contexts may share one run config, so it is copied and not written to, but for what the app itself writes.

    Parameters
    ----------
    context : Context
        Of the call.
    records : list of ConfigRecord
        The configs of the message.
    task : ConfigRecord
        The one among them that carries the task: an unseen key that somebody named goes there.
    watch : Watch
        Sees what happens.
    """
    below = context.run_config
    while isinstance(below, WatchedDict):  # a call of the same context that has not ended yet
        below = below.below  # type: ignore[assignment]
    over = WatchedDict.over(below, watch)
    token = current.set(watch)
    try:
        for record in records:
            place = watch.place(record, add=record is task)
            record.__dict__.update(mel_place=place, mel_watch=watch, mel_kind=type(record))
            if place.key is not None:
                record[place.key] = place.laid  # type: ignore[assignment]
            record.__class__ = WatchedRecord
        context.run_config = over
        yield
    finally:
        current.reset(token)
        try:
            _take_away(context, over, records)
        except Exception:
            log.exception("what was laid over the config could not be taken away")


def _take_away(context: Context, over: WatchedDict, records: list[ConfigRecord]) -> None:
    for record in records:
        place: Place | None = record.__dict__.pop("mel_place", None)
        record.__dict__.pop("mel_watch", None)
        record.__class__ = record.__dict__.pop("mel_kind", type(record))
        if place is not None:
            place.restore(record)
    over.settle()
    if isinstance(context.run_config, WatchedDict):
        context.run_config = over.below  # type: ignore[assignment]
    else:  # the app put another one there; what was laid may have come along
        over.place.restore(context.run_config)
