"""From a distance to a link rate: the paper's cellular channel (its Table 1)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2, log10

from flwr_mel._validate import complain, number


def watts(dbm: float) -> float:
    """Convert dBm to watts."""
    try:
        return float(10 ** (number("dbm", dbm) / 10 - 3))
    except OverflowError:
        raise complain("dbm", "a power that is finite in watts", dbm) from None


@dataclass(frozen=True, slots=True)
class Channel:
    """Path loss and Shannon rate.

    Attenuation is ``loss_at_1km_db + loss_per_decade_db * log10(R in km)``; the rate is
    ``W log2(1 + P h / (N0 W))``. N0 is a density, so it is multiplied by W; the paper's formula
    omits that.

    Parameters
    ----------
    bandwidth_hz : float
        W.
    noise_dbm_per_hz : float
        N0.
    loss_at_1km_db, loss_per_decade_db : float
        The attenuation model.
    """

    bandwidth_hz: float = 5e6
    noise_dbm_per_hz: float = -174.0
    loss_at_1km_db: float = 128.0
    loss_per_decade_db: float = 37.1

    def __post_init__(self) -> None:
        for name in ("noise_dbm_per_hz", "loss_at_1km_db"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        object.__setattr__(self, "bandwidth_hz", number("bandwidth_hz", self.bandwidth_hz, above=0))
        slope = number("loss_per_decade_db", self.loss_per_decade_db, least=0)
        object.__setattr__(self, "loss_per_decade_db", slope)
        try:
            number("noise", watts(self.noise_dbm_per_hz) * self.bandwidth_hz, above=0)
        except ValueError:
            rule = "such that the noise in watts is finite and > 0"
            raise complain("noise_dbm_per_hz", rule, self.noise_dbm_per_hz) from None

    def attenuation_db(self, distance_m: float) -> float:
        """Path loss at a distance."""
        km = number("distance_m", distance_m, above=0) / 1000
        return self.loss_at_1km_db + self.loss_per_decade_db * (log10(km) if km else -inf)

    def rate_bps(self, distance_m: float, tx_power_w: float) -> float:
        """Shannon rate at a distance for a transmit power."""
        number("tx_power_w", tx_power_w, above=0)
        attenuation = self.attenuation_db(distance_m)
        noise_w = watts(self.noise_dbm_per_hz) * self.bandwidth_hz
        try:
            rate = self.bandwidth_hz * log2(1 + tx_power_w * 10 ** (-attenuation / 10) / noise_w)
        except OverflowError:
            rate = inf
        if not 0 < rate < inf:
            what = f"{distance_m!r} m: {attenuation:g} dB"
            raise complain("distance_m", "such that the rate is finite and > 0", what, "Check the units.")
        return rate
