"""Split a dataset among learners by flwr-datasets' partitioners."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import complain, count, number

#: Partitions of fewer samples are drawn again.
LEAST = 10
# Each seed is good for eleven draws inside flwr-datasets.
_SEEDS = 5


def partition(
    labels: npt.NDArray[np.integer],
    partitions: int,
    alpha: float | None,
    seed: int,
    *,
    least: int = LEAST,
) -> list[npt.NDArray[np.int64]]:
    """Split the samples so that each is in exactly one partition.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Label of each sample.
    partitions : int
        Number of partitions.
    alpha : float or None
        Concentration of the Dirichlet distribution over the labels, the smaller the more uneven; None for
        equal parts drawn at random.
    seed : int
        Seed of the split.
    least : int
        Fewest samples in a partition, for Dirichlet only; lowered to half the mean where the mean is small.

    Returns
    -------
    list of ndarray of int64
        The sample indices of each partition.
    """
    n = len(labels)
    partitions = count("partitions", partitions, least=1)
    if partitions > n:
        raise complain("partitions", f"at most the number of samples ({n})", partitions)
    seeds = np.random.SeedSequence(count("seed", seed)).generate_state(_SEEDS + 1)
    # The partitioners keep the order of the data: a shuffle before them makes the parts random.
    order = np.random.default_rng(seeds[0]).permutation(n)
    if alpha is None:
        return _split_iid(order, partitions)
    alpha = number("alpha", alpha, above=0.0, remedy="Use None for equal random parts.")
    least = min(count("least", least), max(1, n // (2 * partitions)))
    for draw in seeds[1:]:
        parts = _split_dirichlet(order, np.asarray(labels)[order], partitions, alpha, least, int(draw))
        if parts is not None:
            return parts
    raise complain(
        "alpha",
        f"large enough to give each of {partitions} partitions at least {least} of {n} samples",
        alpha,
        "Raise alpha, lower `least`, or use fewer partitions.",
    )


def _split_iid(order: npt.NDArray[np.int64], partitions: int) -> list[npt.NDArray[np.int64]]:
    from datasets import Dataset  # noqa: PLC0415 (slow to import)
    from flwr_datasets.partitioner import IidPartitioner  # noqa: PLC0415

    partitioner = IidPartitioner(num_partitions=partitions)
    partitioner.dataset = Dataset.from_dict({"index": order})
    return [_indices(partitioner.load_partition(k)) for k in range(partitions)]


def _split_dirichlet(
    order: npt.NDArray[np.int64],
    labels: npt.NDArray[np.integer],
    partitions: int,
    alpha: float,
    least: int,
    seed: int,
) -> list[npt.NDArray[np.int64]] | None:
    """Return the parts, or None where none of the draws had `least` samples in each."""
    from datasets import Dataset  # noqa: PLC0415
    from flwr_datasets.partitioner import DirichletPartitioner  # noqa: PLC0415

    partitioner = DirichletPartitioner(partitions, "label", alpha, min_partition_size=least, seed=seed)
    partitioner.dataset = Dataset.from_dict({"index": order, "label": labels})
    with warnings.catch_warnings():
        # It warns at each new draw; a split that fails for good is reported by the caller.
        warnings.filterwarnings("ignore", message="The specified min_partition_size")
        try:
            partitioner.load_partition(0)
        except ValueError as error:
            if "max number of attempts" in str(error):
                return None
            raise
    return [_indices(partitioner.load_partition(k)) for k in range(partitions)]


def _indices(part: object) -> npt.NDArray[np.int64]:
    return np.asarray(part.with_format("numpy")["index"][:], dtype=np.int64)  # type: ignore[attr-defined]
