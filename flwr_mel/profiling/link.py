"""The link's rate, from real transfers to `flwr-mel link-server` beside the SuperLink."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from flwr_mel._validate import Phrase, complain, number
from flwr_mel.profiling.fit import mad
from flwr_mel.profiling.link_protocol import MAGIC, Stream

_PINGS = 9
_FIRST_BLOCK = 1 << 12
#: A block that takes less than this, or than this many round trips, says more of delays than of the rate.
_LEAST_BLOCK_S, _LEAST_TRIPS, _FEWEST_BLOCKS = 0.1, 5, 3
#: Each way: enough for seconds of a gigabit, and both ways stay below what a server gives by default.
_MOST_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class LinkRate:
    """What was measured.

    Parameters
    ----------
    up_bps, down_bps : float
        Bits per second to and from the server, TCP payload.
    up_spread_bps, down_spread_bps : float
        MAD over the blocks.
    round_trip_s : float
        Median of short messages there and back.
    bytes_moved : int
        Both ways.
    """

    up_bps: float
    down_bps: float
    up_spread_bps: float
    down_spread_bps: float
    round_trip_s: float
    bytes_moved: int


def parse_address(text: str) -> tuple[str, int]:
    """Split "host:port"; an IPv6 host stands in brackets.

    Parameters
    ----------
    text : str
        As on the command line.
    """
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise complain("link", "HOST:PORT of a flwr-mel link-server", text)
    return host, int(port)


def measure_link(
    host: str,
    port: int,
    *,
    seconds: float = 2.0,
    timeout_s: float = 10.0,
    ca_file: str | Path | None = None,
    on_block: Callable[[str, float], None] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> LinkRate:
    """Send and receive growing blocks for some seconds each way.

    Parameters
    ----------
    host, port : str, int
        Where the link server listens.
    seconds : float
        For each direction, about; less on a link so fast that 256 MiB are through before.
    timeout_s : float
        To connect; also what a transfer may take beyond `seconds`.
    ca_file : path, optional
        Root certificates in PEM format: use TLS, and trust only these.
    on_block : callable, optional
        Told "up" or "down" and the rate, after each block.
    clock : callable
        Returns seconds since some moment in the past.

    Raises
    ------
    ValueError
        Nobody answers, the certificate is not trusted, or the server refuses.
    """
    seconds = number("link_seconds", seconds, above=0)
    where = f"{host}:{port}"
    try:
        with _connect(host, port, timeout_s, ca_file) as sock:
            stream = Stream(sock, 2 * seconds + 2 * timeout_s)
            trips = [_timed(stream, "ping", 0, clock) for _ in range(_PINGS)]
            trip = float(np.median(trips))
            up, sent = _rates(stream, "up", seconds, trip, on_block, clock)
            down, received = _rates(stream, "down", seconds, trip, on_block, clock)
    except ssl.SSLError as error:
        why = error.reason or error
        check = Phrase("{}. Check {}.", str(why), "link_ca")
        raise complain("link", "a link server whose certificate is trusted", where, check) from error
    except TimeoutError as error:
        remedy = "It did not answer in time. Is the address reachable?"
        raise complain("link", "a link server that answers", where, remedy) from error
    except OSError as error:
        hint = "Start one there: flwr-mel link-server --host 0.0.0.0 --port PORT"
        why = f"{error.strerror or error}. {hint}"
        raise complain("link", "a link server that answers", where, why) from error
    return LinkRate(*_middle(up, down), trip, sent + received)


def _connect(host: str, port: int, timeout_s: float, ca_file: str | Path | None) -> socket.socket:
    context = None
    if ca_file is not None:
        try:
            context = ssl.create_default_context(cafile=str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise complain("link_ca", "a PEM file of certificates", str(ca_file), f"{error}.") from error
    sock = socket.create_connection((host, port), timeout=timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if context is None else context.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def _timed(stream: Stream, what: str, n: int, clock: Callable[[], float]) -> float:
    """Make one request and return its seconds."""
    start = clock()
    try:
        stream.send_line(MAGIC, what, n)
        if what == "up":
            stream.send_bytes(n)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server's reason may still be there to be read
    answer = stream.line()
    if answer != "ok":
        reason = answer.removeprefix("no ") if answer.startswith("no ") else "it is no flwr-mel link-server"
        got = Phrase(f"a refusal: {reason if answer else 'it closed the connection'}")
        raise complain("link", "a link server that agrees", got)
    if what == "down":
        stream.drop_bytes(n)
    return clock() - start


def _rates(
    stream: Stream,
    way: str,
    seconds: float,
    trip: float,
    on_block: Callable[[str, float], None] | None,
    clock: Callable[[], float],
) -> tuple[list[float], int]:
    """Return the rates of the blocks that were long enough, and the bytes of all."""
    end, block, moved = clock() + seconds, _FIRST_BLOCK, 0
    rates: list[tuple[float, float]] = []
    while not rates or (clock() < end and moved + block <= _MOST_BYTES):
        took = _timed(stream, way, block, clock)
        moved += block
        # The request and its answer travel for one round trip, in which no payload does.
        rate = 8 * block / max(took - trip, took / 10)
        rates.append((took, rate))
        if on_block is not None:
            on_block(way, rate)
        # Grow at most fourfold, towards blocks of a fifth of the time, so that several are compared.
        block = max(_FIRST_BLOCK, int(min(4 * block, rate / 8 * seconds / 5, _MOST_BYTES / 8)))
    least = max(_LEAST_BLOCK_S, _LEAST_TRIPS * trip)
    good = [rate for took, rate in rates if took >= least]
    if (
        len(good) < _FEWEST_BLOCKS
    ):  # a fast link, or one with long delays: the later half, with the larger blocks
        good = [rate for _, rate in rates[len(rates) // 2 :]]
    return good, moved


def _middle(up: list[float], down: list[float]) -> tuple[float, float, float, float]:
    return float(np.median(up)), float(np.median(down)), mad(up), mad(down)
