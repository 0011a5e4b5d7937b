"""Split a dataset among learners by flwr-datasets' partitioners."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray, complain

#: Fewest samples in a part with uneven labels (or half the mean); a smaller part is drawn again.
_LEAST = 10
# Each seed is good for eleven draws inside flwr-datasets.
_SEEDS = 5


def partition(labels: npt.NDArray[np.integer], parts: int, alpha: float | None, seed: int) -> list[IntArray]:
    """Split the samples so that each is in exactly one part; return the indices of each part.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Label of each sample.
    parts : int
        Number of parts.
    alpha : float or None
        Concentration of the Dirichlet distribution over the labels, the smaller the more uneven; None for
        equal parts drawn at random.
    seed : int
        Seed of the split.
    """
    from flwr_datasets.partitioner import DirichletPartitioner, IidPartitioner  # noqa: PLC0415 (slow)

    n = len(labels)
    if parts > n:
        raise complain("parts", f"at most the number of samples ({n})", parts)
    seeds = np.random.SeedSequence(seed).generate_state(_SEEDS + 1)
    # The partitioners keep the order of the data: a shuffle before them makes the parts random.
    order = np.random.default_rng(seeds[0]).permutation(n)
    if alpha is None:
        return _split(IidPartitioner(num_partitions=parts), {"index": order})
    least = min(_LEAST, max(1, n // (2 * parts)))
    columns = {"index": order, "label": np.asarray(labels)[order]}
    for draw in seeds[1:]:
        try:
            return _split(
                DirichletPartitioner(parts, "label", alpha, min_partition_size=least, seed=int(draw)), columns
            )
        except ValueError as error:
            if "max number of attempts" not in str(error):
                raise
    raise complain(
        "alpha",
        f"large enough to give each of {parts} parts at least {least} of {n} samples",
        alpha,
        "Raise alpha, or use fewer parts.",
    )


def _split(partitioner: Any, columns: dict[str, Any]) -> list[IntArray]:
    from datasets import Dataset  # noqa: PLC0415

    partitioner.dataset = Dataset.from_dict(columns)
    with warnings.catch_warnings():
        # The Dirichlet partitioner warns at each new draw.
        warnings.filterwarnings("ignore", message="The specified min_partition_size")
        parts = [partitioner.load_partition(k) for k in range(partitioner.num_partitions)]
    return [np.asarray(part.with_format("numpy")["index"][:], dtype=np.int64) for part in parts]
