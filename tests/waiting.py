"""Waiting for other processes."""

import time

#: Seconds after which a test gives up. It tells what hangs from what is slow, however busy the machine is, so
#: it is far above what anything takes. Nothing is expected within it.
PATIENCE_S = 900.0


def wait_for(what, pause_s=0.2):
    """Call until it returns something true, and return that."""
    end_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_at:
        if found := what():
            return found
        time.sleep(pause_s)
    raise AssertionError(f"{getattr(what, '__name__', what)} did not come true in {PATIENCE_S} s")
