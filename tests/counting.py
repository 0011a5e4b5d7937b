"""Work, counted instead of timed: the count is the same on every machine, however busy it is."""

import sys


def calls(function, *args, **kwargs):
    """Call a function; return its result and how many calls, of Python or C, it took."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = function(*args, **kwargs)
    finally:
        sys.setprofile(before)
    return result, count
