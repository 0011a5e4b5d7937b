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
from flwr_mel.devices import Capability, Device
from flwr_mel.learning import Learning
from flwr_mel.orchestrator.averaging import AUTO, Average
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


class Stragglers(StrEnum):
    """What becomes of learners that are slower than the others."""

    KEEP = "keep"
    """They take part, and nobody does more than c epochs more than the slowest: the paper's."""
    EXCLUDE = "exclude"
    """Who does not keep up with the others' pace is left out of the cycle."""
    SPAN = "span"
    """Who does not keep up gets several cycles for one task; late updates count when they come."""


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
        if not isinstance(self.metric, str):
            raise complain("metric", "the name of a metric", self.metric)
        for name in ("higher_is_better", "battery"):
            if not isinstance(getattr(self, name), bool):
                raise complain(name, "True or False", getattr(self, name))

    def better(self, new: float, old: float | None) -> bool:
        """Whether a metric improved."""
        return old is None or (new > old if self.higher_is_better else new < old)

    def reached(self, value: float) -> bool:
        """Whether the target is met."""
        return self.target is not None and (
            value >= self.target if self.higher_is_better else value <= self.target
        )


_POLICIES: tuple[tuple[str, type[StrEnum]], ...] = (
    ("mode", Mode),
    ("on_infeasible", OnInfeasible),
    ("stragglers", Stragglers),
    ("average", Average),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Keyword arguments of both `MelStrategy` classes.

    Parameters
    ----------
    cycle_time_s : float, optional
        T: everybody reports within this time. Default: it follows from what is measured, and no round is
        longer than the project's own (`flwr_mel.orchestrator.cycle_time`).
    total_samples : int, optional
        d per cycle, of the whole fleet: where the strategy chooses a part of it, the cycle has that share.
        Default: all data (the dataset, or what the learners hold, as far as it fits into T).
    staleness : int, optional
        c: no two learners' epochs differ by more. Default: 1; where learners are measured and declare
        nothing, whatever max_epochs allows, or the fast would wait for nothing.
    min_samples : int, optional
        d_l: least batch of a learner that takes part. Default: 1; where learners are measured, 32 or what
        the smallest holds.
    max_samples : int, optional
        Nobody gets more, whatever it says of itself: bounds the weight of a learner that claims too much.
    max_epochs : int, optional
        Nobody does more. Default: no limit; where learners are measured, 5 times the project's own epochs.
    solver : Solver
        `Exact()` by default.
    workload : Workload, optional
        Needed when learners give physical values; ship_data must fit the mode.
    mode : str
        "federated" or "parallelized".
    dataset : tuple of arrays, optional
        Parallelized mode: what the server cuts into shards, e.g. (features, labels).
    default_profile : Device, optional
        For learners that say nothing of themselves; without it they are measured if they have the mod, and
        left out if not.
    on_infeasible : str
        "relax" (use the largest number of samples that fits), "skip" or "error".
    enforce_deadline : bool
        Go on after cycle_time_s * (1 + deadline_slack). What real learners reply later is dropped; with
        stragglers="span" it counts when it comes.
    deadline_slack : float
        See above.
    stragglers : str
        "keep" (the paper's: all wait for the slowest), "exclude" (who does not keep up is left out) or "span"
        (it gets up to max_span cycles for one task, and what comes late counts when it comes).
    max_span : int
        The most cycles for one task. The server keeps as many old models as tasks in progress began with, at
        most twice this number.
    quorum : float
        With "span": the share of a cycle's replies with which it goes on; those that come later count then.
    turn_after : int
        Who had no work for so many cycles, because it does not keep up, gets a task of its own pace. Not with
        "keep".
    stopping : Stopping
        When to stop.
    seed : int
        One seed, one result.
    learning : Learning or bool, optional
        Plan with times and energies learnt from the replies: True or a `Learning` for everybody, False for
        nobody. Default: for learners that declare nothing; what the others declare is believed, and one that
        was late is taken for slower.
    epochs_key : str, optional
        Under which key the project's clients read their epochs, if it is none of the usual names.
    samples_key : str, optional
        Also put d_k into the client's own config under this name.
    allow_insecure_shards : bool
        Parallelized mode: ship data to real devices even without TLS and registered nodes.
    average : str
        How updates are averaged: "samples" (by d_k, the paper's), "nova" (FedNova's, p_k = d_k / d) or
        "nova-held" (FedNova's, p_k = n_k / n, what learners say they hold, at most `max_samples`; an update
        that took m cycles counts in m cycles, see `flwr_mel.orchestrator.echoes`).
    max_share : float or str, optional
        The largest share of the weight in an average that one learner may have, whatever it claims. "auto":
        half, or twice the mean share where that is less; no bound for fewer than three learners. None:
        no bound, the paper's. Work is not touched by it, only what it counts for.
    max_norm_ratio : float, optional
        How many times as large as the middle one an update may be, more where more work was done; larger ones
        are cut back to the middle one's size. 2 leaves almost all honest updates alone (docs/BENCHMARKS.md).
        Default: no bound, because finding out how large updates are takes as long as checking them.
    """

    cycle_time_s: float | None = None
    total_samples: int | None = None
    staleness: int | None = None
    min_samples: int | None = None
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
    stragglers: Stragglers = Stragglers.KEEP
    max_span: int = 4
    quorum: float = 1.0
    turn_after: int = 10
    stopping: Stopping = field(default_factory=Stopping)
    seed: int = 0
    learning: Learning | bool | None = None
    epochs_key: str | None = None
    samples_key: str | None = None
    allow_insecure_shards: bool = False
    average: Average = Average.SAMPLES
    max_share: float | str | None = AUTO
    max_norm_ratio: float | None = None

    def __post_init__(self) -> None:
        if self.cycle_time_s is not None:
            number("cycle_time_s", self.cycle_time_s, above=0, remedy="Give seconds.")
        for name in ("total_samples", "max_epochs", "max_samples", "min_samples"):
            if getattr(self, name) is not None:
                count(name, getattr(self, name), least=1)
        if self.staleness is not None:
            count("staleness", self.staleness)
        count("seed", self.seed)
        count("max_span", self.max_span, least=1)
        count("turn_after", self.turn_after, least=1)
        if number("quorum", self.quorum, above=0) > 1:
            raise complain("quorum", "at most 1: everybody's reply", self.quorum)
        number("deadline_slack", self.deadline_slack, least=0)
        for name, kind in _POLICIES:
            value = getattr(self, name)
            if value not in list(kind):
                raise complain(name, f"one of {', '.join(repr(str(o)) for o in kind)}", value)
            object.__setattr__(self, name, kind(value))
        if not isinstance(self.solver, Solver) or isinstance(self.solver, type):
            raise complain("solver", "a solver object such as Exact()", self.solver)
        for name, wanted in (("workload", Workload), ("default_profile", Device)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, wanted):
                raise complain(name, f"a flwr_mel.{wanted.__name__}", value)
        self._check_types()
        self._check_data()

    def _check_types(self) -> None:
        if self.learning is True:
            object.__setattr__(self, "learning", Learning())
        if self.learning is not False and not isinstance(self.learning, Learning | None):
            raise complain("learning", "a flwr_mel.learning.Learning, True or False", self.learning)
        for name in ("allow_insecure_shards", "enforce_deadline"):
            if not isinstance(getattr(self, name), bool):
                raise complain(name, "True or False", getattr(self, name))
        for name in ("epochs_key", "samples_key"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise complain(name, "a name such as 'local-epochs'", value)
        if self.max_norm_ratio is not None:
            number(
                "max_norm_ratio",
                self.max_norm_ratio,
                least=1,
                remedy="2 leaves almost all honest updates alone.",
            )
        if self.max_share is not None and self.max_share != AUTO:
            rule = "'auto', None, or a share above 0 and at most 1"
            share = self.max_share
            number_like = isinstance(share, int | float) and not isinstance(share, bool)
            if not number_like or not 0 < float(share) <= 1:
                raise complain("max_share", rule, share)
        if not isinstance(self.stopping, Stopping):
            raise complain("stopping", "a flwr_mel.server.Stopping", self.stopping)

    def _check_data(self) -> None:
        if self.mode is Mode.PARALLELIZED and self.average is Average.NOVA_HELD:
            remedy = "Learners hold nothing that counts there: the server ships the data."
            raise complain("average", "'samples' or 'nova' in parallelized mode", str(self.average), remedy)
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
        if self.cycle_time_s is None:
            raise complain(
                "cycle_time_s", "given in parallelized mode", None, "No round is there to measure."
            )
        if not isinstance(self.dataset, Sequence) or not len(self.dataset):
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

    @property
    def longest_task(self) -> int:
        """Cycles that a task may take."""
        return self.max_span if self.stragglers is Stragglers.SPAN else 1

    def default_capability(self, name: str) -> Capability | None:
        """Return the profile of a learner that says nothing of itself; None: it is left out."""
        if self.default_profile is None:
            return None
        d = self.default_profile
        return Capability(name, device=d, energy_limit_j=d.energy_limit_j, max_samples=d.max_samples)


#: Cycles to come may be this much shorter than the last one.
_SPARE = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce(Settings):
    """Settings with what the user left open filled in, for one cycle; see `flwr_mel.orchestrator.cycle_time`.

    Parameters
    ----------
    cycle_time_s : float
        T; 0 while it is not given and nothing is measured.
    staleness, min_samples : int
        c and d_l.
    paced : bool
        Whether T is not the user's.
    own_round_s : float, optional
        Then what the project's own round took.
    asked_s : tuple of float
        Then what the rule for T gave in the last cycles.
    lasts_s : float, optional
        How long the last cycle was: it ends when the last of those who are waited for reports.
    **others
        As for `Settings`.
    """

    cycle_time_s: float = 0.0
    staleness: int = 1
    min_samples: int = 1
    paced: bool = False
    own_round_s: float | None = None
    asked_s: tuple[float, ...] = ()
    lasts_s: float | None = None

    def __post_init__(self) -> None:
        """Check nothing: what it is made of was checked."""

    def window(self, cycles: int) -> float:
        """Return the time for a task of so many cycles, in units of T.

        One cycle is T, for which everybody is waited. Several are as long as cycles really are, with
        `_SPARE` for shorter ones to come: else a task of nearly 2 T would be back in the third cycle.

        Parameters
        ----------
        cycles : int
            m.
        """
        if cycles == 1 or not self.lasts_s:
            return float(cycles)
        return max(1.0, cycles * min(_SPARE * self.lasts_s / self.cycle_time_s, 1.0))
