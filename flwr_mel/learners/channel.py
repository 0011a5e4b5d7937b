"""From a distance to a link rate: the paper's cellular channel (its Table 1)."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, log10

from flwr_mel._validate import number


def watts(dbm: float) -> float:
    """Convert dBm to watts."""
    return float(10 ** (number("dbm", dbm) / 10 - 3))


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
        number("bandwidth_hz", self.bandwidth_hz, above=0)
        number("noise_dbm_per_hz", self.noise_dbm_per_hz)
        number("loss_at_1km_db", self.loss_at_1km_db)
        number("loss_per_decade_db", self.loss_per_decade_db, least=0)

    def attenuation_db(self, distance_m: float) -> float:
        """Path loss at a distance."""
        number("distance_m", distance_m, above=0)
        return self.loss_at_1km_db + self.loss_per_decade_db * log10(distance_m / 1000)

    def rate_bps(self, distance_m: float, tx_power_w: float) -> float:
        """Shannon rate at a distance for a transmit power."""
        number("tx_power_w", tx_power_w, above=0)
        gain = 10 ** (-self.attenuation_db(distance_m) / 10)
        noise_w = watts(self.noise_dbm_per_hz) * self.bandwidth_hz
        return self.bandwidth_hz * log2(1 + tx_power_w * gain / noise_w)
