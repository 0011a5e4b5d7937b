"""End what was started, with everything that it started in turn."""

import time
from contextlib import suppress

import psutil


def end(process, patience_s=4.0):
    """End a process and everything it started, politely first; each attempt may take some seconds.

    Flower and Ray put their own children into sessions of their own, so the process group is not enough: the
    tree is looked up before its processes end and orphans lose their parent.
    """
    family = tree(process.pid)
    for ask in (psutil.Process.terminate, psutil.Process.kill):
        family = {child for old in family if alive(old) for child in tree(old.pid)}
        for one in family:
            with suppress(psutil.Error):
                ask(one)
        deadline = time.monotonic() + patience_s
        while any(map(alive, family)) and time.monotonic() < deadline:
            process.poll()
            time.sleep(0.05)
    process.wait(60)  # killed by now, but its last threads may take a moment on a busy machine


def tree(pid):
    """Return a process and its descendants."""
    try:
        parent = psutil.Process(pid)
        return {parent, *parent.children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def alive(process):
    """Whether a process still does something; one that has ended may wait for its parent to notice."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
