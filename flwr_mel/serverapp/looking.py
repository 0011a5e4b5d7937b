"""Looks for replies that one slow upload cannot hold up.

Flower's SuperLink hands a reply out as soon as it is announced. `pull_messages` then waits until all of it is
uploaded, for two hours if need be, and everything that was asked for along with it waits, too: a cycle with
a deadline of 50 s took 60. So replies are asked for apart from each other, in threads that nobody waits for:
what they bring later is there at a later look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from threading import Event, Thread
from time import monotonic

from flwr.app import Message

# So many requests at once; more messages than that share them, and then one may wait for another.
_MOST = 32
# After so long a look goes on without those that have not ended.
_PATIENCE_S = 1.0


class _Look:
    """One request in a thread of its own, which does not keep the process from ending.

    Parameters
    ----------
    pull : callable
        A grid's `pull_messages`.
    ids : list of str
        What to ask for.
    """

    def __init__(self, pull: Callable[[list[str]], Iterable[Message]], ids: list[str]) -> None:
        self.ids, self.replies = ids, list[Message]()
        self.began = self.ended = monotonic()
        self.error: BaseException | None = None
        self.over = Event()
        self._pull = pull
        Thread(target=self._run, name="look for replies", daemon=True).start()

    def _run(self) -> None:
        try:
            self.replies = list(self._pull(self.ids))
        except BaseException as error:  # raised where somebody hears it
            self.error = error
        finally:
            self.ended = monotonic()
            self.over.set()


class Looks:
    """Asks for replies apart from each other.

    Parameters
    ----------
    pull : callable
        A grid's `pull_messages`.
    """

    def __init__(self, pull: Callable[[list[str]], Iterable[Message]]) -> None:
        self._pull = pull
        self._running: list[_Look] = []
        self._came: dict[str, tuple[Message, float]] = {}
        #: What the slowest of the last requests took that found nothing: the burden of asking.
        self.asking_s = 0.0

    def look(self, ids: Iterable[str], patience_s: float = _PATIENCE_S) -> list[tuple[Message, float]]:
        """Return the replies that are there, and when they were, on `time.monotonic`.

        Parameters
        ----------
        ids : iterable of str
            Messages to which replies are wanted. One that an earlier look is still waiting for is not asked
            for again: Flower hands a reply out once.
        patience_s : float
            How long to wait for the requests at most.
        """
        wanted = list(ids)
        asked = {key for look in self._running for key in look.ids} | self._came.keys()
        fresh = [key for key in wanted if key not in asked]
        began = [_Look(self._pull, fresh[k::_MOST]) for k in range(min(_MOST, len(fresh)))]
        self._running += began
        end = monotonic() + min(patience_s, _PATIENCE_S)
        for look in began:
            look.over.wait(max(end - monotonic(), 0.0))
        self._collect()
        empty = [look.ended - look.began for look in began if look.over.is_set() and not look.replies]
        self.asking_s = max(empty, default=0.0)
        return [self._came.pop(key) for key in wanted if key in self._came]

    def _collect(self) -> None:
        over = [look for look in self._running if look.over.is_set()]
        self._running = [look for look in self._running if look not in over]
        for look in over:
            if look.error is not None:
                raise look.error
            self._came |= {x.metadata.reply_to_message_id: (x, look.ended) for x in look.replies}

    def forget(self, wanted: Collection[str]) -> None:
        """Drop the replies that came and that nobody wants any more.

        Parameters
        ----------
        wanted : collection of str
            Messages to which replies are wanted.
        """
        self._came = {key: found for key, found in self._came.items() if key in wanted}
