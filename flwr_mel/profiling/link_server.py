"""The other end of the link measurement. It keeps nothing, and it has limits for everything."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from flwr_mel._validate import complain, count, number
from flwr_mel.profiling.link_protocol import MAGIC, Stream

log = logging.getLogger("flwr.mel")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server gives away at most.

    Parameters
    ----------
    connection_bytes : int
        Both ways, per connection.
    connection_s : float
        After this long a connection is closed, whatever it does.
    connections : int
        At the same time; more are turned away.
    lifetime_s : float
        Then the server ends. A forgotten server should not stay open.
    """

    connection_bytes: int = 1 << 30
    connection_s: float = 60.0
    connections: int = 4
    lifetime_s: float = 3600.0

    def __post_init__(self) -> None:
        count("connection_bytes", self.connection_bytes, least=1)
        count("connections", self.connections, least=1)
        number("connection_s", self.connection_s, above=0)
        number("lifetime_s", self.lifetime_s, above=0)


class LinkServer:
    """Answers `measure_link`.

    Parameters
    ----------
    host, port : str, int
        Where to listen; port 0 takes a free one. Loopback unless told otherwise.
    limits : Limits
        What it gives away.
    cert_file, key_file : path, optional
        PEM files: use TLS.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        limits: Limits | None = None,
        cert_file: str | Path | None = None,
        key_file: str | Path | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._tls = _server_context(cert_file, key_file)
        self._seats = threading.BoundedSemaphore(self._limits.connections)
        self._stopped = threading.Event()
        if count("port", port) > 65535:
            raise complain("port", "a port from 0 to 65535", port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error
            raise complain("address", "one to listen at", f"{host}:{port}", f"{why}.") from error
        self.host, self.port = self._socket.getsockname()[:2]

    def serve(self) -> None:
        """Answer until `stop` is called or the lifetime is over."""
        end = monotonic() + self._limits.lifetime_s
        with self._socket:
            self._socket.settimeout(0.2)
            while not self._stopped.is_set() and monotonic() < end:
                try:
                    sock, peer = self._socket.accept()
                except TimeoutError:
                    continue
                except OSError as error:  # the visitor has left already, or we are out of files
                    log.warning("a connection was not accepted: %s", error)
                    self._stopped.wait(0.2)
                    continue
                self._admit(sock, str(peer[0]))

    def stop(self) -> None:
        """End `serve` soon; connections in progress end by their own limits."""
        self._stopped.set()

    def _admit(self, sock: socket.socket, peer: str) -> None:
        if self._seats.acquire(blocking=False):
            threading.Thread(target=self._seat, args=(sock, peer), daemon=True).start()
            return
        # With TLS there is no cheap way to say it: the handshake is what a flood would make us pay for.
        if self._tls is None:
            sock.settimeout(1.0)
            with suppress(OSError):
                sock.sendall(b"no too many connections, try again later\n")
        sock.close()

    def _seat(self, sock: socket.socket, peer: str) -> None:
        try:
            sock.settimeout(self._limits.connection_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with sock if self._tls is None else self._tls.wrap_socket(sock, server_side=True) as talk:
                self._answer(Stream(talk, self._limits.connection_s))
        except (OSError, ValueError) as error:
            log.info("the connection of %s ended: %s", peer, error)
        finally:
            sock.close()
            self._seats.release()

    def _answer(self, stream: Stream) -> None:
        left = self._limits.connection_bytes
        while line := stream.line():
            words = line.split()
            if len(words) != 3 or words[0] != MAGIC or not (words[2].isascii() and words[2].isdigit()):
                return stream.send_line("no", "not understood")
            what, n = words[1], int(words[2])
            left -= n
            if left < 0:
                return stream.send_line("no", f"limit of {self._limits.connection_bytes} bytes reached")
            if what == "up":
                stream.drop_bytes(n)
            elif what not in ("ping", "down"):
                return stream.send_line("no", "not understood")
            stream.send_line("ok")
            if what == "down":
                stream.send_bytes(n)
        return None


def _server_context(cert: str | Path | None, key: str | Path | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise complain("tls_cert and tls_key", "given together", f"{cert} and {key}")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(str(cert), str(key))
    except (OSError, ssl.SSLError) as error:
        raise complain("tls_cert and tls_key", "PEM files", f"{cert} and {key}", f"{error}.") from error
    return context
