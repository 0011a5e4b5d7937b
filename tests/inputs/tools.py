"""Good objects to spoil, bad values to spoil them with, and what a complaint must say."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Coefficients, Device, Workload

NAN, INF = math.nan, math.inf
HUGE = 10**5000  # Python refuses to print it
NOT_NUMBERS = ["5", b"5", None, True, np.True_, [5], (5,), {5}, {}, 5j, object(), float, np.array(5.0)]
NOT_FINITE = [NAN, INF, -INF, np.float64("nan"), 10**400, HUGE, Fraction(HUGE, 3)]
NOT_COUNTS = [1.5, NAN, INF, -1, 2**40 + 1, 2**63, HUGE, Fraction(1, 3), Fraction(HUGE, 3), np.float32(0.5)]


def device(**changes):
    return Device(**{"cpu_hz": 2.4e9, "rate_bps": 22e6, "tx_power_w": 0.2, **changes})


def workload(**changes):
    return Workload(**{"model_parameters": 100, "operations_per_sample": 400.0, "features": 10, **changes})


def coefficients(**changes):
    fields = {
        "c2": [1e-3, 2e-3],
        "c1": [0, 0],
        "c0": [0.1, 0.1],
        "g2": [1e-3, 1e-3],
        "g1": [0, 0],
        "g0": [0, 0],
    }
    return Coefficients(**{**fields, **changes})


def problem(**changes):
    fields = {"coefficients": coefficients(), "cycle_time_s": 10.0, "total_samples": 2000}
    return AllocationProblem(**{**fields, **changes})


def complaint(call, *args, **kwargs):
    """The message of the ValueError; anything else, warnings included, fails the test."""
    with pytest.raises(ValueError, match="must be") as caught:
        call(*args, **kwargs)
    text = str(caught.value)
    assert len(text) < 500
    assert "\n" not in text
    return text


def names(text, field, value):
    """Field first, then the rule, then the value."""
    assert re.match(rf"{re.escape(field)}(\[\d+\])? must be \S.*, got \S", text), text
    try:
        shown = repr(value)
    except ValueError:
        shown = "thousands of digits"
    assert shown[:20] in text or f"{len(shown):,} characters" in text or "values" in text, text
