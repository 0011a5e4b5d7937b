"""Run a command in a network namespace of its own, behind a link with delay and loss.

    python -m tests.deployment.far_link NET DELAY LOSS COMMAND...

The link is two tun devices, one here (NET.1) and one there (NET.2), between which this process carries every
packet: DELAY seconds later, or with probability LOSS not at all. It does what tc's netem does, and needs
no kernel that has it. Needs root. Nothing outlives it: namespace and devices go with the process.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress

_CLONE_NEWNET, _TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x40000000, 0x400454CA, 0x0001, 0x1000
_LARGEST = 65_536


def open_tun(name):
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return handle


def configure(name, own, other):
    for words in (f"addr add {own} peer {other} dev {name}", f"link set {name} up", "link set lo up"):
        subprocess.run(["ip", *words.split()], check=True)


def carry(ends, delay_s, loss, going_on):
    """Carry packets between two ends."""
    rng, late = random.Random(0), []
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    number = 0
    while going_on():
        wait_s = min(max(late[0][0] - time.monotonic(), 0.0), 0.2) if late else 0.2
        for end in select.select(ends, [], [], wait_s)[0]:
            with suppress(BlockingIOError):
                packet = os.read(end, _LARGEST)
                if rng.random() >= loss:
                    number += 1
                    heapq.heappush(late, (time.monotonic() + delay_s, number, other[end], packet))
        while late and late[0][0] <= time.monotonic():
            *_, end, packet = heapq.heappop(late)
            with suppress(OSError):  # a full queue drops, as routers do
                os.write(end, packet)


def main(net, delay_s, loss, *command):
    name = f"mel{os.getpid() % 100_000}"
    here = open_tun(name)
    configure(name, f"{net}.1", f"{net}.2")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")
    there = open_tun(name)
    configure(name, f"{net}.2", f"{net}.1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    child = subprocess.Popen(command)
    try:
        carry((here, there), float(delay_s), float(loss), lambda: child.poll() is None)
    finally:
        if child.poll() is None:
            child.kill()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
