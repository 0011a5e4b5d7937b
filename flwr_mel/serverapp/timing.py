"""Notes when replies arrive, on the server's own clock, so that no learner's clock or word is needed."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf
from time import monotonic, sleep, time
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_mel.flower.transport import in_memory
from flwr_mel.serverapp.in_progress import InProgress
from flwr_mel.serverapp.looking import Looks

# Between two looks for replies passes this share of the time waited so far: times are exact to about as much,
# and the looks grow with the logarithm of the time, until they are as rare as Flower's own.
_SHARE, _SHORTEST_S, _LONGEST_S = 0.03, 0.05, 3.0
# ... and at least so many times what the last look took, so that a SuperLink with thousands of messages is
# not kept busy by being asked.
_REST = 4.0


def pause_s(waited_s: float, look_s: float = 0.0) -> float:
    """Return how long to wait until the next look for replies.

    Parameters
    ----------
    waited_s : float
        Since the messages were sent.
    look_s : float
        What the last look took.
    """
    return max(min(max(_SHARE * waited_s, _SHORTEST_S), _LONGEST_S), _REST * look_s)


class RoundTrips:
    """Seconds from sending a message to the arrival of its reply, by message id.

    Parameters
    ----------
    apart : InProgress, optional
        Messages that nobody waits for; their replies are looked for along with those that are waited for.
    """

    def __init__(self, apart: InProgress | None = None) -> None:
        self.apart = InProgress() if apart is None else apart
        self.patience_s: float | None = None
        self.quorum = 1.0
        self.cycle_s: float | None = None
        #: How long the last messages were waited for.
        self.waited_s = 0.0
        self._sent: dict[str, float] = {}
        self._took: dict[str, float] = {}
        self._left: dict[str, float] = {}
        self._came: dict[str, float] = {}

    def wait(
        self, patience_s: float | None = None, quorum: float = 1.0, cycle_s: float | None = None
    ) -> None:
        """Say how long the next messages' replies are waited for, beside the caller's timeout.

        Parameters
        ----------
        patience_s : float, optional
            At most so long.
        quorum : float
            Until this share of them is there.
        cycle_s : float, optional
            If no message is sent: so long for what is in progress, or cycles would go by in which nobody
            works. Without it nobody is waited for then.
        """
        self.patience_s, self.quorum, self.cycle_s = patience_s, quorum, cycle_s

    def watch(self, grid: Grid) -> Grid:
        """Return the grid with a clock in it.

        A grid that sends in a way of its own, such as the simulation's window, has a method ``through`` that
        puts the clock between itself and Flower's grid, and so goes on sending in its way.

        Parameters
        ----------
        grid : Grid
            Flower's, or one wrapped around it.
        """
        through = getattr(grid, "through", None)
        watched: Any = through(self.watch) if callable(through) else TimedGrid(grid, self)
        return watched  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Begin anew with what is in progress, so that other replies that never come are not waited for."""
        kept = set(self.apart.ids())
        self._sent = {key: since for key, since in self._sent.items() if key in kept}
        self._took = {key: took for key, took in self._took.items() if key in kept}
        self._left = {key: at for key, at in self._left.items() if key in kept}
        self._came = {key: at for key, at in self._came.items() if key in kept}

    def sent(self, ids: Iterable[str], since: float) -> None:
        """Note that messages were sent.

        Parameters
        ----------
        ids : iterable of str
            Theirs; empty ones, of messages that could not be sent, are left out.
        since : float
            When, on `time.monotonic`.
        """
        sent = {message_id: since for message_id in ids if message_id}
        self._sent |= sent
        self._left |= sent

    def arrived(self, replies: Iterable[Message], at: float | None = None) -> None:
        """Note that replies are there; errors of the engine are no replies.

        Parameters
        ----------
        replies : iterable of Message
            What came.
        at : float, optional
            When, on `time.monotonic`; by default now.
        """
        now = monotonic() if at is None else at
        for reply in replies:
            since = self._sent.pop(reply.metadata.reply_to_message_id, None)
            if since is not None and not reply.has_error():
                self._took[reply.metadata.reply_to_message_id] = now - since
                self._came[reply.metadata.reply_to_message_id] = now

    def of(self, messages: dict[str, str]) -> dict[str, float]:
        """Return the seconds by node, as far as they are known.

        Parameters
        ----------
        messages : dict of message id to node
            What was sent to whom.
        """
        return {node: self._took[key] for key, node in messages.items() if key in self._took}

    def times(self, messages: dict[str, str]) -> tuple[dict[str, float], dict[str, float]]:
        """Return when messages left and when their replies came by node, in seconds since 1970.

        Parameters
        ----------
        messages : dict of message id to node
            What was sent to whom.
        """
        offset = time() - monotonic()
        left = {node: self._left[key] + offset for key, node in messages.items() if key in self._left}
        came = {node: self._came[key] + offset for key, node in messages.items() if key in self._came}
        return left, came


class TimedGrid:
    """A grid that times its messages and looks for replies more often than Flower's.

    Parameters
    ----------
    grid : Grid
        Flower's.
    clock : RoundTrips
        Told when messages leave and replies arrive.
    """

    def __init__(self, grid: Grid, clock: RoundTrips) -> None:
        self._grid = grid
        self._clock = clock
        # In memory there are no uploads, and threads would only cost.
        self._looks = None if in_memory(grid) else Looks(grid.pull_messages)

    def __getattr__(self, name: str) -> Any:
        if name in ("_grid", "_looks"):  # not there yet, while being copied
            raise AttributeError(name)
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send; a message's time runs from the moment the first of them is sent, as the cycle's does."""
        since = monotonic()
        ids = list(self._grid.push_messages(messages))
        self._clock.sent(ids, since)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Look for replies."""
        replies = list(self._grid.pull_messages(message_ids))
        self._clock.arrived(replies)
        return replies

    def look(self, message_ids: Iterable[str], patience_s: float = 1.0) -> list[Message]:
        """Look for replies without waiting for those that are still being uploaded.

        Parameters
        ----------
        message_ids : iterable of str
            As for `pull_messages`.
        patience_s : float
            How long it may take.
        """
        if self._looks is None:
            return list(self.pull_messages(message_ids))
        found = self._looks.look(message_ids, patience_s)
        for reply, at in found:
            self._clock.arrived([reply], at)
        return [reply for reply, _ in found]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send all and return the replies that come in time, as `Grid.send_and_receive` does."""
        clock = self._clock
        messages = list(messages)  # Flower goes through them twice
        start = monotonic()
        open_ids = {message_id for message_id in self.push_messages(messages) if message_id}
        patience_s = clock.patience_s if open_ids else clock.cycle_s or 0.0
        timeout = min((seconds for seconds in (timeout, patience_s) if seconds is not None), default=None)
        enough = ceil(clock.quorum * len(open_ids))
        replies: list[Message] = []
        if self._looks is not None:
            self._looks.forget(clock.apart.open_ids())
        # Where all are waited for anyway, one request for all is enough.
        hurried = patience_s is not None or clock.quorum < 1 or bool(clock.apart.open_ids())

        asked_s = 0.0

        def awaited() -> bool:
            return len(replies) < enough if enough else bool(clock.apart.open_ids())

        while awaited() and (timeout is None or monotonic() - start < timeout):
            looked = monotonic()
            ids = [*open_ids, *clock.apart.open_ids()]
            if hurried and self._looks is not None:
                found = self.look(ids, inf if timeout is None else start + timeout - looked)
                asked_s = self._looks.asking_s
            else:
                found = list(self.pull_messages(ids))
                # Of a look that finds something most is their way here, which is no burden by asking.
                took_s = monotonic() - looked
                asked_s = min(asked_s, took_s) if found else took_s
            came = [reply for reply in found if not clock.apart.take_in(reply)]
            replies += came
            open_ids -= {reply.metadata.reply_to_message_id for reply in came}
            if awaited():
                pause = pause_s(monotonic() - start, asked_s)
                left = pause if timeout is None else start + timeout - monotonic()
                sleep(max(min(pause, left), 0.0))
        clock.waited_s = monotonic() - start
        return replies
