"""What a call takes besides training: seconds f + c w for w samples passed, from tasks with unequal work.

Loading data, copying a model or starting an optimiser takes its time however little is trained. A rate
alone, seconds per sample, would change with every change of the work. Both numbers follow a Kalman filter, in
which f stays as it is and c may drift: tasks that are all alike say nothing of f, and leave it as it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flwr_mel._validate import complain, number
from flwr_mel.learning.logfilter import CLIP

# At most this share of a call is taken for fixed: work is never free.
_MOST = 0.95


@dataclass(slots=True)
class CallCost:
    """What is believed of f and c.

    Parameters
    ----------
    fixed_s, rate : float
        f and c.
    variance : tuple of three floats
        Of f, of both together, of c. The first is 0 before the first task.
    work : float
        Of the last task.
    """

    fixed_s: float = 0.0
    rate: float = 0.0
    variance: tuple[float, float, float] = (0.0, 0.0, 0.0)
    work: float = 0.0

    def observe(self, work: float, seconds: float, noise: float, drift: float) -> None:
        """Take in one task.

        Parameters
        ----------
        work, seconds : float
            Samples passed, and how long the call took.
        noise, drift : float
            By how much single tasks deviate and speeds wander, relative to themselves.
        """
        if not (work > 0 and seconds > 0):
            return
        self.work = work
        if not self.variance[0]:
            # One task: nothing is fixed as far as is known, and all of it may be.
            spread = seconds**2
            self.rate = seconds / work
            self.variance = (spread, -spread / work, (1 + noise**2) * spread / work**2)
            return
        ff, fc, cc = self.variance
        cc += (drift * self.rate) ** 2
        gain_f, gain_c = ff + fc * work, fc + cc * work
        total = gain_f + gain_c * work + (noise * seconds) ** 2
        clip = CLIP * math.sqrt(total)
        innovation = min(max(seconds - self.fixed_s - self.rate * work, -clip), clip)
        self.fixed_s += gain_f / total * innovation
        self.rate += gain_c / total * innovation
        self.variance = (ff - gain_f**2 / total, fc - gain_f * gain_c / total, cc - gain_c**2 / total)
        self._bound(seconds)

    def _bound(self, seconds: float) -> None:
        """Keep f between nothing and most of the call, and c where it then is likeliest."""
        bounded = min(max(self.fixed_s, 0.0), _MOST * seconds)
        if self.variance[0] > 0:
            self.rate += self.variance[1] / self.variance[0] * (bounded - self.fixed_s)
        self.fixed_s = bounded

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return {**asdict(self), "variance": list(self.variance)}

    @classmethod
    def from_dict(cls, data: object) -> CallCost:
        """Read back what `as_dict` gave; refuse anything else.

        Parameters
        ----------
        data : mapping
            From `as_dict`.
        """
        if not isinstance(data, Mapping) or set(data) != set(cls.__dataclass_fields__):
            raise complain("call", f"a mapping with {', '.join(cls.__dataclass_fields__)}", data)
        spread = data["variance"]
        if not isinstance(spread, list | tuple) or len(spread) != 3:
            raise complain("call.variance", "three numbers", spread)
        ff, fc, cc = (number("call.variance", x) for x in spread)
        if min(ff, cc) < 0:
            raise complain("call.variance", "of f and of c at least 0", spread)
        fixed_s, work = (number(f"call.{name}", data[name], least=0) for name in ("fixed_s", "work"))
        return cls(fixed_s, number("call.rate", data["rate"]), (ff, fc, cc), work)
