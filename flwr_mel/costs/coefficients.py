"""The cost model: time and energy of a learner as functions of its epochs and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, Phrase, complain, frozen, numbers
from flwr_mel.costs.workload import Workload

if TYPE_CHECKING:
    from flwr_mel.learners.device import Device


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Coefficients:
    """Costs of K learners, Eqs. (Eq_16_C1isCompact) and (Eq_16_G1isCompact) of the paper.

    A learner that trains tau epochs on d samples needs ::

        t = c2 * tau * d + c1 * d + c0   seconds
        e = g2 * tau * d + g1 * d + g0   joules

    Parameters
    ----------
    c2, c1, c0 : sequence of float
        Seconds per sample and epoch (> 0), per sample, and per cycle.
    g2, g1, g0 : sequence of float
        Joules per sample and epoch, per sample, and per cycle.
    """

    c2: FloatArray
    c1: FloatArray
    c0: FloatArray
    g2: FloatArray
    g1: FloatArray
    g0: FloatArray

    def __init__(
        self,
        c2: npt.ArrayLike,
        c1: npt.ArrayLike,
        c0: npt.ArrayLike,
        g2: npt.ArrayLike,
        g1: npt.ArrayLike,
        g0: npt.ArrayLike,
    ) -> None:
        object.__setattr__(self, "c2", numbers("c2", c2, above=0))
        if not len(self.c2):
            raise complain("c2", "one value per learner, for at least one learner", Phrase("an empty fleet"))
        for name, value in (("c1", c1), ("c0", c0), ("g2", g2), ("g1", g1), ("g0", g0)):
            object.__setattr__(self, name, numbers(name, value, length=len(self.c2), least=0))

    @classmethod
    def from_devices(cls, devices: Sequence[Device], workload: Workload) -> Coefficients:
        """Derive the coefficients from clock, link and transmit power.

        Only the uplink costs a learner energy; the model travels both ways, hence the factors 2 in
        the time coefficients alone.

        Parameters
        ----------
        devices : sequence of Device
            The learners, in order.
        workload : Workload
            The training job.
        """
        _check(devices, workload)
        cpu = np.array([d.cpu_hz for d in devices])
        rate = np.array([d.rate_bps for d in devices])
        power = np.array([d.tx_power_w for d in devices])
        joules_per_operation = np.array([d.joules_per_operation for d in devices])
        with np.errstate(over="ignore"):  # what does not fit is refused as infinite
            return cls(
                c2=workload.operations_per_sample / cpu,
                c1=(workload.sample_bits + 2 * workload.model_bits_per_sample) / rate,
                c0=2 * workload.model_bits / rate,
                g2=joules_per_operation * workload.operations_per_sample,
                g1=power * workload.model_bits_per_sample / rate,
                g0=power * workload.model_bits / rate,
            )

    def __len__(self) -> int:
        return len(self.c2)

    def take(self, index: npt.ArrayLike) -> Coefficients:
        """Return the coefficients of some learners only."""
        at = np.asarray(index)
        part = object.__new__(Coefficients)
        for name in ("c2", "c1", "c0", "g2", "g1", "g0"):
            object.__setattr__(part, name, frozen(getattr(self, name)[at]))
        return part

    def time_s(self, epochs: npt.ArrayLike, samples: npt.ArrayLike) -> FloatArray:
        """Seconds each learner needs; 0 for one without epochs (it is not asked at all)."""
        return self._cost(self.c2, self.c1, self.c0, epochs, samples)

    def energy_j(self, epochs: npt.ArrayLike, samples: npt.ArrayLike) -> FloatArray:
        """Joules each learner spends; 0 for one without epochs."""
        return self._cost(self.g2, self.g1, self.g0, epochs, samples)

    @staticmethod
    def _cost(
        two: FloatArray,
        one: FloatArray,
        zero: FloatArray,
        epochs: npt.ArrayLike,
        samples: npt.ArrayLike,
    ) -> FloatArray:
        tau, d = np.asarray(epochs), np.asarray(samples)
        with np.errstate(over="ignore"):  # infinite is over every limit
            cost: FloatArray = np.where(tau > 0, two * (tau * d) + one * d + zero, 0.0)
        return cost


def _check(devices: object, workload: object) -> None:
    # The learners' package itself builds on this module.
    from flwr_mel.learners.device import Device  # noqa: PLC0415

    if not isinstance(devices, Sequence) or isinstance(devices, str | bytes):
        raise complain("devices", "a list or tuple of Device objects", devices)
    if not devices:
        raise complain("devices", "at least one device", Phrase("an empty fleet"))
    for k, device in enumerate(devices):
        if not isinstance(device, Device):
            raise complain("devices", "a flwr_mel.Device", device, index=k)
    if not isinstance(workload, Workload):
        raise complain("workload", "a flwr_mel.Workload", workload)
