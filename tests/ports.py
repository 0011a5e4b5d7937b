"""Ports for servers that must be told theirs."""

import random
import socket


def free_port():
    """Return a port that is free, from below those that systems give to outgoing connections.

    So nobody but another call of this gets it before the server does, and drawn at random, that one does not.
    """
    draw = random.SystemRandom()
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port := draw.randrange(10_000, 32_000)))
            except OSError:
                continue
            return port
