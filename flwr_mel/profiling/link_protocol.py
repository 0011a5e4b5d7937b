"""What `flwr-mel profile --link` and `flwr-mel link-server` say to each other.

One connection, requests one after the other, each a short line: ``mel1 ping 0``, ``mel1 up N`` (then N
bytes follow) and ``mel1 down N``. The server answers ``ok``: to an upload once it has all of it, to a
download before the N bytes. What it does not do it answers with ``no`` and the reason, and closes.
"""

from __future__ import annotations

import os
import socket
from time import monotonic

MAGIC = "mel1"
LONGEST_LINE = 200
#: Random, so that nothing on the way compresses it.
BLOCK = os.urandom(1 << 18)


class Stream:
    """A socket that knows when it must be done.

    Parameters
    ----------
    sock : socket.socket
        Connected, with or without TLS.
    seconds : float
        After this long every call raises TimeoutError.
    """

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._sock, self._end = sock, monotonic() + seconds

    def send_line(self, *words: object) -> None:
        """Send words as a line."""
        self._hurry()
        self._sock.sendall((" ".join(map(str, words)) + "\n").encode())

    def line(self) -> str:
        """Return the next line, "" at the end of the stream; ValueError if it is too long or no text."""
        line = b""
        while not line.endswith(b"\n"):
            self._hurry()
            byte = self._sock.recv(1)  # lines are few and short, and what follows must stay unread
            if not byte:
                return ""
            line += byte
            if len(line) > LONGEST_LINE:
                raise ValueError("a line is too long")
        return line.decode().strip()

    def send_bytes(self, n: int) -> None:
        """Send n random bytes."""
        view = memoryview(BLOCK)
        while n > 0:
            self._hurry()
            n -= self._sock.send(view[: min(n, len(BLOCK))])

    def drop_bytes(self, n: int) -> None:
        """Receive n bytes and forget them; ConnectionError if fewer come."""
        while n > 0:
            self._hurry()
            got = len(self._sock.recv(min(n, len(BLOCK))))
            if not got:
                raise ConnectionError("the other side closed the connection")
            n -= got

    def _hurry(self) -> None:
        left = self._end - monotonic()
        if left <= 0:
            raise TimeoutError("out of time")
        self._sock.settimeout(left)
