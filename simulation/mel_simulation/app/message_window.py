"""Hand messages to Flower's engine a few at a time.

For every node the engine looks through all messages that are not answered yet, so the messages of 1,000
nodes at once cost a million looks every tenth of a second. A window keeps the cost per learner flat.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from flwr.app import Message

from flwr_mel.grid import TimedGrid

_LEAST, _PER_CPU, _PAUSE_S = 32, 4, 0.02


class Windowed(TimedGrid):
    """A grid that sends the next message when an earlier one is answered. It times nothing."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send all and return the replies that arrive in time, as `Grid.send_and_receive` does."""
        end = None if timeout is None else time.monotonic() + timeout
        waiting, open_ids, replies = list(messages)[::-1], set[str](), list[Message]()
        window = max(_LEAST, _PER_CPU * (os.cpu_count() or 1))
        while (waiting or open_ids) and (end is None or time.monotonic() < end):
            batch = [waiting.pop() for _ in range(min(window - len(open_ids), len(waiting)))]
            open_ids.update(self.push_messages(batch))
            came = list(self.pull_messages(open_ids)) if open_ids else []
            replies += came
            open_ids -= {reply.metadata.reply_to_message_id for reply in came}
            if not came:
                time.sleep(_PAUSE_S)
        return replies
