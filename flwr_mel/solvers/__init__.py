"""Solvers: small immutable objects for `flwr_mel.allocate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_mel.solvers.equal import EqualBatches
from flwr_mel.solvers.exact import Exact
from flwr_mel.solvers.rate import Rate

if TYPE_CHECKING:
    from flwr_mel.solvers.suggest_improve import SuggestImprove

__all__ = ["EqualBatches", "Exact", "Rate", "SuggestImprove"]


def __getattr__(name: str) -> Any:
    # The paper's solver is loaded on demand, so that the core does not depend on its backend.
    if name == "SuggestImprove":
        from flwr_mel.solvers.suggest_improve import SuggestImprove  # noqa: PLC0415

        return SuggestImprove
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
