"""Sees which torch DataLoaders a training goes through, so that batches reported as examples are noticed.

Many clients report ``len(loader)``, and nothing in their reply tells that from a number of samples. During a
call, where torch is loaded already, two methods of torch are replaced by ones that count; each call counts in
its own context, so calls in other threads do not mix. Nothing that fails here reaches the app.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

log = logging.getLogger("flwr.mel")

_MARK = "_mel_sizes"


class Sizes(NamedTuple):
    """Of one pass through a loader.

    Parameters
    ----------
    batches, samples : int
        How many it has.
    whole : int
        Samples in batches that are full, and all samples that lie behind: other honest numbers of examples.
    """

    batches: int
    samples: int
    whole: tuple[int, ...]


#: Batches drawn during the call under way, by the sizes of their loader.
Drawn = Counter[Sizes]
_counter: ContextVar[Drawn | None] = ContextVar("flwr_mel_drawn", default=None)

_lock = Lock()
# The calls under way, and what was replaced for them: class, name, torch's own, ours.
_calls: list[Drawn] = []
_replaced: list[tuple[Any, str, Any, Any]] = []


def samples_meant(drawn: Drawn, examples: float | None) -> int | None:
    """Return how many samples a call went through, if what it reports is a number of batches.

    It is one when a loader was passed in whole and has as many batches, or gave as many in all passes
    together, and when no loader has as many samples. None: there is nothing to correct.

    Parameters
    ----------
    drawn : Drawn
        From `counting`.
    examples : float, optional
        What the app reports.
    """
    passed = {sizes: n for sizes, n in drawn.items() if n >= sizes.batches}
    for sizes, n in drawn.items():
        honest = {sizes.samples, *sizes.whole}
        if examples in honest | {count * n // max(sizes.batches, 1) for count in honest}:
            return None
    meant = [(n, sizes.samples) for sizes, n in passed.items() if examples in (sizes.batches, n)]
    return max(meant)[1] if meant else None


@contextmanager
def counting() -> Iterator[Drawn]:
    """Count what is drawn from torch's loaders until the end of the block, in this context only."""
    drawn: Drawn = Counter()
    token = _counter.set(drawn)
    began = _begin(drawn)
    try:
        yield drawn
    finally:
        _counter.reset(token)
        if began:
            _end()


def _begin(drawn: Drawn) -> bool:
    """Replace torch's methods unless another call has; whether this call is to be counted down again."""
    try:
        data = sys.modules.get("torch.utils.data.dataloader")
        if data is None:
            return False
        with _lock:
            if not _calls:
                # Both are looked up before either is replaced.
                made = [
                    (kind, name, plain, make(plain))
                    for kind, name, make in (
                        (data.DataLoader, "__iter__", _iter),
                        (data._BaseDataLoaderIter, "__next__", _next),
                    )
                    for plain in (kind.__dict__[name],)
                ]
                for kind, name, _, ours in made:
                    setattr(kind, name, ours)
                _replaced.extend(made)
            _calls.append(drawn)
    except Exception:
        log.debug("what torch's loaders give cannot be counted", exc_info=True)
        return False
    return True


def _end() -> None:
    with _lock:
        _calls.pop()
        if not _calls:
            while _replaced:
                kind, name, plain, ours = _replaced.pop()
                # Whoever replaced it since then goes on through ours, which counts nothing now.
                if kind.__dict__.get(name) is ours:
                    setattr(kind, name, plain)


def _iter(plain: Any) -> Any:
    @functools.wraps(plain)
    def __iter__(self: Any) -> Any:
        iterator = plain(self)
        if (drawn := _counter.get()) is not None:
            try:
                sizes = _sizes(self)
                drawn[sizes] += 0
                setattr(iterator, _MARK, sizes)
            except Exception:
                log.debug("a loader does not tell its length", exc_info=True)
        return iterator

    return __iter__


def _next(plain: Any) -> Any:
    @functools.wraps(plain)
    def __next__(self: Any) -> Any:
        batch = plain(self)
        drawn, sizes = _counter.get(), getattr(self, _MARK, None)
        if drawn is not None and sizes is not None:
            drawn[sizes] += 1
        return batch

    return __next__


def _sizes(loader: Any) -> Sizes:
    if isinstance(loader.dataset, sys.modules["torch.utils.data"].IterableDataset):
        # Its length is a guess, and asking for it would make torch warn later.
        raise TypeError(f"a {type(loader.dataset).__name__} has no length")
    held, batches = len(loader.dataset), len(loader)
    own = getattr(loader.batch_sampler, "sampler", None)
    sampler = own if loader.batch_size is None else loader.sampler
    samples = held if sampler is None else len(sampler)
    full = batches * (loader.batch_size or 1) if loader.drop_last else samples
    return Sizes(batches, samples, (held, full))
