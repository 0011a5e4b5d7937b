"""Split a dataset among learners, as flwr-datasets does, whose import takes seconds in every actor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray, complain, count, number

#: Fewest samples in a part with uneven labels, or half the mean; with a smaller part all are drawn again.
_LEAST = 10
_SEEDS, _DRAWS_PER_SEED = 5, 11


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
    n = len(labels)
    if count("parts", parts, least=1) > n:
        raise complain("parts", f"at most the number of samples ({n})", parts)
    seeds = np.random.SeedSequence(count("seed", seed)).generate_state(_SEEDS + 1)
    order = np.random.default_rng(seeds[0]).permutation(n)
    if alpha is None:
        return np.array_split(order, parts)
    number("alpha", alpha, above=0.0, remedy="Use None for equal random parts.")
    least = min(_LEAST, max(1, n // (2 * parts)))
    shuffled = np.asarray(labels)[order]
    for rng in (np.random.default_rng(int(each)) for each in seeds[1:]):
        for _ in range(_DRAWS_PER_SEED):
            found = _dirichlet(shuffled, parts, alpha, rng)
            if min(map(len, found)) >= least:
                for part in found:
                    rng.shuffle(part)
                return [order[part] for part in found]
    raise complain(
        "alpha",
        f"large enough to give each of {parts} parts at least {least} of {n} samples",
        alpha,
        "Raise alpha, or use fewer parts.",
    )


def _dirichlet(
    labels: npt.NDArray[np.integer], parts: int, alpha: float, rng: np.random.Generator
) -> list[IntArray]:
    """Draw the shares of each label, and cut its samples by them."""
    found: list[list[IntArray]] = [[] for _ in range(parts)]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        ends = (np.cumsum(rng.dirichlet([alpha] * parts)) * len(rows)).astype(int)[:-1]
        for part, more in zip(found, np.split(rows, ends), strict=True):
            part.append(more)
    return [np.concatenate(part) for part in found]
