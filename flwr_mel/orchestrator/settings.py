"""What the user asks of the orchestrator: limits, policies, stopping criteria."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import complain, count, number
from flwr_mel.allocation import Solver
from flwr_mel.costs import Workload
from flwr_mel.learners import Device
from flwr_mel.learning import Learning
from flwr_mel.orchestrator.capability import Capability
from flwr_mel.solvers import Exact


class Mode(StrEnum):
    """Where the data are."""

    FEDERATED = "federated"
    """Data stay with the learners."""
    PARALLELIZED = "parallelized"
    """The server ships each learner its samples, anew each cycle."""


class OnInfeasible(StrEnum):
    """What happens in a cycle that has no allocation."""

    ERROR = "error"
    """Stop with the diagnosis."""
    SKIP = "skip"
    """Nobody works in this cycle; the model stays."""
    RELAX = "relax"
    """Use the largest number of samples that fits, and say so."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """When enough is enough; whichever comes first. None switches a criterion off.

    Parameters
    ----------
    cycles : int, optional
        Global cycles.
    target : float, optional
        Value of `metric` to reach.
    metric : str
        Which metric `target` and `patience` look at.
    higher_is_better : bool
        False for a loss.
    virtual_time_s : float, optional
        Sum of the cycles' durations by the cost model.
    energy_j : float, optional
        Sum of all learners' energy by the cost model.
    battery : bool
        Stop when a learner has not enough battery left for another cycle like its last.
    patience : int, optional
        Cycles without a better metric.
    """

    cycles: int | None = None
    target: float | None = None
    metric: str = "accuracy"
    higher_is_better: bool = True
    virtual_time_s: float | None = None
    energy_j: float | None = None
    battery: bool = False
    patience: int | None = None

    def __post_init__(self) -> None:
        for name in ("cycles", "patience"):
            if getattr(self, name) is not None:
                count(name, getattr(self, name), least=1)
        for name in ("virtual_time_s", "energy_j"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), above=0)
        if self.target is not None:
            number("target", self.target)

    def better(self, new: float, old: float | None) -> bool:
        """Whether a metric improved."""
        return old is None or (new > old if self.higher_is_better else new < old)

    def reached(self, value: float) -> bool:
        """Whether the target is met."""
        return self.target is not None and (
            value >= self.target if self.higher_is_better else value <= self.target
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Keyword arguments of both `MelStrategy` classes.

    Parameters
    ----------
    cycle_time_s : float
        T: everybody reports within this time.
    total_samples : int, optional
        d per cycle. Default: all data (the dataset, or what the learners say they hold).
    staleness : int
        c: no two learners' epochs differ by more.
    min_samples : int
        d_l: least batch of a learner that takes part.
    max_samples : int, optional
        Nobody gets more, whatever it says of itself: bounds the weight of a learner that claims too much.
    max_epochs : int, optional
        Nobody does more.
    solver : Solver
        `Exact()` by default.
    workload : Workload, optional
        Needed when learners give physical values; ship_data must fit the mode.
    mode : str
        "federated" or "parallelized".
    dataset : tuple of arrays, optional
        Parallelized mode: what the server cuts into shards, e.g. (features, labels).
    default_profile : Device, optional
        For learners that say nothing of themselves; without it they are left out.
    on_infeasible : str
        "relax" (use the largest number of samples that fits), "skip" or "error".
    enforce_deadline : bool
        Drop real learners that do not reply within cycle_time_s * (1 + deadline_slack).
    deadline_slack : float
        See above.
    stopping : Stopping
        When to stop.
    seed : int
        One seed, one result.
    learning : Learning, optional
        Plan with times and energies learnt from the replies. Off by default: then what learners declare is
        believed, and one that was late is taken for slower. Learners that declare nothing take part, from
        conservative assumptions, if there is no default_profile.
    epochs_key, samples_key : str, optional
        Also put tau_k and d_k into the client's own config under these names, for clients that read e.g.
        ``config["local-epochs"]`` already.
    allow_insecure_shards : bool
        Parallelized mode: ship data to real devices even without TLS and registered nodes.
    """

    cycle_time_s: float
    total_samples: int | None = None
    staleness: int = 1
    min_samples: int = 1
    max_samples: int | None = None
    max_epochs: int | None = None
    solver: Solver = field(default_factory=Exact)
    workload: Workload | None = None
    mode: Mode = Mode.FEDERATED
    dataset: Sequence[npt.NDArray[Any]] | None = None
    default_profile: Device | None = None
    on_infeasible: OnInfeasible = OnInfeasible.RELAX
    enforce_deadline: bool = False
    deadline_slack: float = 0.25
    stopping: Stopping = field(default_factory=Stopping)
    seed: int = 0
    learning: Learning | None = None
    epochs_key: str | None = None
    samples_key: str | None = None
    allow_insecure_shards: bool = False

    def __post_init__(self) -> None:
        number("cycle_time_s", self.cycle_time_s, above=0, remedy="Give seconds.")
        if self.total_samples is not None:
            count("total_samples", self.total_samples, least=1)
        for name in ("max_epochs", "max_samples"):
            if getattr(self, name) is not None:
                count(name, getattr(self, name), least=1)
        count("staleness", self.staleness)
        count("min_samples", self.min_samples, least=1)
        count("seed", self.seed)
        number("deadline_slack", self.deadline_slack, least=0)
        for name, kind in (("mode", Mode), ("on_infeasible", OnInfeasible)):
            value = getattr(self, name)
            if value not in list(kind):
                raise complain(name, f"one of {', '.join(repr(str(o)) for o in kind)}", value)
            object.__setattr__(self, name, kind(value))
        if not isinstance(self.allow_insecure_shards, bool):
            raise complain("allow_insecure_shards", "True or False", self.allow_insecure_shards)
        if not isinstance(self.solver, Solver) or isinstance(self.solver, type):
            raise complain("solver", "a solver object such as Exact()", self.solver)
        for name, wanted in (("workload", Workload), ("default_profile", Device), ("learning", Learning)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, wanted):
                raise complain(name, f"a flwr_mel.{wanted.__name__}", value)
        self._check_data()

    def _check_data(self) -> None:
        if self.mode is Mode.FEDERATED:
            if self.dataset is not None:
                raise complain(
                    "dataset", "left out in federated mode", "a dataset", "Data stay with the learners."
                )
            if self.workload is not None and self.workload.ship_data:
                raise complain(
                    "workload.ship_data",
                    "False in federated mode",
                    True,
                    "Build the workload with ship_data=False.",
                )
            return
        if self.dataset is None or not len(self.dataset):
            raise complain(
                "dataset", "a tuple of arrays, e.g. (features, labels), in parallelized mode", self.dataset
            )
        for i, array in enumerate(self.dataset):
            if not isinstance(array, np.ndarray) or array.dtype.kind in "OV":
                raise complain(
                    f"dataset[{i}]", "a numpy array or memmap of numbers or text", type(array).__name__
                )
        sizes = {len(array) for array in self.dataset}
        if len(sizes) != 1:
            raise complain("dataset", "arrays of one length", sorted(sizes))
        if self.total_samples is not None and self.total_samples > len(self.dataset[0]):
            raise complain(
                "total_samples", f"at most the dataset's {len(self.dataset[0])}", self.total_samples
            )
        if self.workload is not None and not self.workload.ship_data:
            raise complain(
                "workload.ship_data",
                "True in parallelized mode",
                False,
                "Build the workload with ship_data=True.",
            )

    def default_capability(self, name: str) -> Capability | None:
        """Return the profile of a learner that says nothing of itself; None: it is left out."""
        if self.default_profile is None:
            return None
        d = self.default_profile
        return Capability(name, device=d, energy_limit_j=d.energy_limit_j, max_samples=d.max_samples)
