"""The cost model: time and energy of a learner as functions of its epochs and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, Phrase, complain, count, counts, frozen, number, numbers
from flwr_mel.devices import Device

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Workload:
    """The training job as the cost model sees it.

    Parameters
    ----------
    model_parameters : int
        Parameters exchanged per cycle in each direction, S_m in the paper.
    operations_per_sample : float
        Operations to train on one sample in one epoch, C_m.
    features : int
        Features per sample, F.
    bits_per_feature, bits_per_parameter : float
        Precision on the wire, P_d and P_m.
    parameters_per_sample : float
        Parameters that grow with the batch, S_d (model parallelism); 0 otherwise.
    data_compression : float
        Bits sent divided by bits before compression, for the samples.
    ship_data : bool
        True: parallelized learning (PL), the server ships the samples. False: federated learning
        (FL), data stay with the learners.
    """

    model_parameters: int
    operations_per_sample: float
    features: int
    bits_per_feature: float = 8
    bits_per_parameter: float = 32
    parameters_per_sample: float = 0
    data_compression: float = 1.0
    ship_data: bool = True

    def __post_init__(self) -> None:
        for name in ("model_parameters", "features"):
            object.__setattr__(self, name, count(name, getattr(self, name), least=1))
        for name in (
            "operations_per_sample",
            "bits_per_feature",
            "bits_per_parameter",
            "data_compression",
        ):
            object.__setattr__(self, name, number(name, getattr(self, name), above=0))
        name = "parameters_per_sample"
        object.__setattr__(self, name, number(name, self.parameters_per_sample, least=0))
        if not isinstance(self.ship_data, bool):
            raise complain("ship_data", "True (PL) or False (FL)", self.ship_data)
        for field, bits in (
            ("model_parameters * bits_per_parameter", self.model_bits),
            ("parameters_per_sample * bits_per_parameter", self.model_bits_per_sample),
            ("features * bits_per_feature * data_compression", self.sample_bits),
        ):
            number(field, bits, least=0)

    @classmethod
    def mlp(
        cls,
        layers: Sequence[int],
        *,
        bits_per_feature: float = 8,
        bits_per_parameter: float = 32,
        data_compression: float = 1.0,
        ship_data: bool = True,
    ) -> Workload:
        """Derive S_m and C_m of a fully connected network from its layer sizes.

        As in the paper S_m counts the weights (280,440 for 784-300-124-60-10) and C_m is four
        operations per weight and bias: a multiplication and an addition forward, the same backward.

        Parameters
        ----------
        layers : sequence of int
            Sizes from the input to the output layer, at least two.
        bits_per_feature, bits_per_parameter : float
            As in the class.
        data_compression : float
            As in the class.
        ship_data : bool
            As in the class.
        """
        sizes = counts("layers", layers, least=1).tolist()
        if len(sizes) < 2:
            raise complain("layers", "at least an input and an output size", list(layers))
        weights = sum(a * b for a, b in pairwise(sizes))
        biases = sum(sizes[1:])
        return cls(
            model_parameters=weights,
            operations_per_sample=4 * (weights + biases),
            features=sizes[0],
            bits_per_feature=bits_per_feature,
            bits_per_parameter=bits_per_parameter,
            data_compression=data_compression,
            ship_data=ship_data,
        )

    @classmethod
    def from_torch(
        cls,
        model: torch.nn.Module,
        sample: Any,
        *,
        exchanged: Mapping[str, torch.Tensor] | None = None,
        data_compression: float = 1.0,
        ship_data: bool = True,
    ) -> Workload:
        """Count what any torch model costs, with torch's own counter of operations.

        One forward and one backward pass are run. An addition and a multiplication count as two operations,
        and a layer's backward pass is two products (for its weights and for its input), so a fully connected
        network has 6 operations per weight, 4 in the first layer, whose input needs no gradient. The paper's
        formula (`mlp`) has 4 per weight and bias. Either is right with a clock that is counted the same way:
        operations per second that the device really does, e.g. C_m times samples per second of a measured
        training.

        Parameters
        ----------
        model : torch.nn.Module
            To be trained; it is left as it was.
        sample : tensor, or tuple or mapping of tensors
            A batch that the model can be called with, of one sample or more: the first dimension counts them.
        exchanged : mapping of tensors, optional
            What travels each cycle; default: the model's ``state_dict()``. For adapters (LoRA) give theirs.
        data_compression : float
            As in the class.
        ship_data : bool
            As in the class.
        """
        # Here, so that the library does not load torch.
        from flwr_mel.torch_counter import batch_size, operations, tensors  # noqa: PLC0415

        sent = list((model.state_dict() if exchanged is None else exchanged).values())
        parameters = sum(tensor.numel() for tensor in sent)
        inputs, samples = tensors(sample), batch_size(sample)
        features = sum(tensor.numel() for tensor in inputs) // samples
        return cls(
            model_parameters=parameters,
            operations_per_sample=operations(model, sample),
            features=features,
            bits_per_feature=sum(t.nbytes for t in inputs) * 8 / samples / features,
            bits_per_parameter=sum(tensor.nbytes for tensor in sent) * 8 / max(parameters, 1),
            data_compression=data_compression,
            ship_data=ship_data,
        )

    @property
    def sample_bits(self) -> float:
        """Bits to ship one sample to a learner; 0 in FL."""
        if not self.ship_data:
            return 0.0
        return self.features * self.bits_per_feature * self.data_compression

    @property
    def model_bits(self) -> float:
        """Bits of the model that do not depend on the batch, one way: P_m S_m."""
        return self.model_parameters * self.bits_per_parameter

    @property
    def model_bits_per_sample(self) -> float:
        """Bits of the model that grow with the batch, one way: P_m S_d."""
        return self.parameters_per_sample * self.bits_per_parameter


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
    if not isinstance(devices, Sequence) or isinstance(devices, str | bytes):
        raise complain("devices", "a list or tuple of Device objects", devices)
    if not devices:
        raise complain("devices", "at least one device", Phrase("an empty fleet"))
    for k, device in enumerate(devices):
        if not isinstance(device, Device):
            raise complain("devices", "a flwr_mel.Device", device, index=k)
    if not isinstance(workload, Workload):
        raise complain("workload", "a flwr_mel.Workload", workload)
