"""How deep hypothesis searches."""

import os

from hypothesis import settings

SLOW = os.environ.get("FLWR_MEL_SLOW") == "1"


def examples(number, **options):
    """Try the same examples in every run; with FLWR_MEL_SLOW=1 forty times as many, new ones every time."""
    depth = 40 if SLOW else 1
    return settings(max_examples=number * depth, derandomize=not SLOW, deadline=None, **options)
