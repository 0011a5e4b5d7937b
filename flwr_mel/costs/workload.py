"""What one sample and the model cost, in operations and in bits, whoever does the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flwr_mel._validate import complain, count, counts, number

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
    label_bits : float
        Bits shipped per label. The paper counts the features alone, hence 0.
    model_compression, data_compression : float
        Bits sent divided by bits before compression, for the model and for the samples.
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
    label_bits: float = 0
    model_compression: float = 1.0
    data_compression: float = 1.0
    ship_data: bool = True

    def __post_init__(self) -> None:
        for name in ("model_parameters", "features"):
            object.__setattr__(self, name, count(name, getattr(self, name), least=1))
        for name in (
            "operations_per_sample",
            "bits_per_feature",
            "bits_per_parameter",
            "model_compression",
            "data_compression",
        ):
            object.__setattr__(self, name, number(name, getattr(self, name), above=0))
        for name in ("parameters_per_sample", "label_bits"):
            object.__setattr__(self, name, number(name, getattr(self, name), least=0))
        if not isinstance(self.ship_data, bool):
            raise complain("ship_data", "True (PL) or False (FL)", self.ship_data)
        for field, bits in (
            ("model_parameters * bits_per_parameter * model_compression", self.model_bits),
            ("parameters_per_sample * bits_per_parameter * model_compression", self.model_bits_per_sample),
            ("(features * bits_per_feature + label_bits) * data_compression", self.sample_bits),
        ):
            number(field, bits, least=0)

    @classmethod
    def mlp(
        cls,
        layers: Sequence[int],
        *,
        bits_per_feature: float = 8,
        bits_per_parameter: float = 32,
        label_bits: float = 0,
        model_compression: float = 1.0,
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
        bits_per_feature, bits_per_parameter, label_bits : float
            As in the class.
        model_compression, data_compression : float
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
            label_bits=label_bits,
            model_compression=model_compression,
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
        label_bits: float = 0,
        model_compression: float = 1.0,
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
        label_bits : float
            As in the class.
        model_compression, data_compression : float
            As in the class.
        ship_data : bool
            As in the class.
        """
        # Here, so that the library does not load torch.
        from flwr_mel.costs.torch_counter import batch_size, operations, tensors  # noqa: PLC0415

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
            label_bits=label_bits,
            model_compression=model_compression,
            data_compression=data_compression,
            ship_data=ship_data,
        )

    @property
    def sample_bits(self) -> float:
        """Bits to ship one sample to a learner; 0 in FL."""
        if not self.ship_data:
            return 0.0
        return (self.features * self.bits_per_feature + self.label_bits) * self.data_compression

    @property
    def model_bits(self) -> float:
        """Bits of the model that do not depend on the batch, one way: P_m S_m."""
        return self.model_parameters * self.bits_per_parameter * self.model_compression

    @property
    def model_bits_per_sample(self) -> float:
        """Bits of the model that grow with the batch, one way: P_m S_d."""
        return self.parameters_per_sample * self.bits_per_parameter * self.model_compression
