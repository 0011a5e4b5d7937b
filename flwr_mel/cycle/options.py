"""What a user asks for, as checked values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import Phrase, complain, count, number
from flwr_mel.allocation import Solver
from flwr_mel.costs import Workload
from flwr_mel.devices import Device, Measured
from flwr_mel.solvers import Exact, Rate
from flwr_mel.solvers.rate import LEAST

#: The default deadline in a deployment is this much longer than T. A device that is used for something else
#: is two to three times slower for a while; what takes longer than that hangs.
_GENEROUS = 2.0


class OnInfeasible(StrEnum):
    """What to do if the samples do not fit into the limits of a round."""

    RELAX = "relax"
    """Use the largest number of samples that fits, and note it."""
    SKIP = "skip"
    """Skip the round."""
    ERROR = "error"
    """Raise `flwr_mel.Infeasible`."""


class Average(StrEnum):
    """How the clients' models become one."""

    SAMPLES = "samples"
    """Weighted by d_k, as the paper and FedAvg do."""
    NOVA = "nova"
    """FedNova's average with p_k = d_k / d: data count as they were used."""
    NOVA_HELD = "nova-held"
    """FedNova's average with p_k = n_k / n: data count as clients hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How rounds are run.

    Parameters
    ----------
    deadline_slack : float, "auto" or None
        Stop waiting for replies T (1 + deadline_slack) seconds after sending the tasks (Message API). A later
        reply is dropped, and the client's next task is smaller. "auto": 2 in a deployment, so that only a
        client that hangs is late, and no deadline in a simulation, whose clients wait for CPUs. None: wait
        for all replies, as Flower does.
    probe_timeout_s : float
        How many seconds a round waits for new clients to report their costs and limits.
    on_infeasible : str
        What to do if the samples do not fit into a round: "relax" (use fewer samples), "skip" (skip the
        round) or "error" (raise an error).
    epochs_key : str, optional
        The key under which the clients read their number of epochs from the run config or the message.
        None: the common names, such as `local-epochs`.
    observe : bool
        Plan nothing: every round is the project's own work, which is measured.
    """

    deadline_slack: float | str | None = "auto"
    probe_timeout_s: float = 120.0
    on_infeasible: OnInfeasible = OnInfeasible.RELAX
    epochs_key: str | None = None
    observe: bool = False

    def __post_init__(self) -> None:
        if self.deadline_slack not in (None, "auto"):
            number("deadline_slack", self.deadline_slack, least=0, remedy="0.25 waits for 1.25 T.")
        number("probe_timeout_s", self.probe_timeout_s, above=0)
        _choice(self, "on_infeasible", OnInfeasible)
        if self.epochs_key is not None and (not isinstance(self.epochs_key, str) or not self.epochs_key):
            raise complain("epochs_key", "the name of a key", self.epochs_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Robust:
    """Bounds on what one client can do to the model; all are off by default.

    Parameters
    ----------
    max_samples : int, optional
        The largest number of samples that a client is given or counts for, whatever it reports.
    max_share : float, optional
        The largest share of a round's total weight that one client may have. With n updates in a round it is
        at least 1/n.
    max_norm_ratio : float, optional
        The largest allowed ratio of an update's norm to the median norm. A larger update is scaled down to
        this size. Weights, running statistics and whole numbers are bounded each by themselves. A task with
        more planned work than the median task allows as many times more. Fewer than three updates are also
        compared with the last two rounds. 2 is a good value.
    """

    max_samples: int | None = None
    max_share: float | None = None
    max_norm_ratio: float | None = None

    def __post_init__(self) -> None:
        if self.max_samples is not None:
            object.__setattr__(self, "max_samples", count("max_samples", self.max_samples, least=1))
        if self.max_share is not None and number("max_share", self.max_share, above=0) > 1:
            raise complain("max_share", "a share above 0 and at most 1", self.max_share)
        if self.max_norm_ratio is not None:
            number("max_norm_ratio", self.max_norm_ratio, least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimation:
    """How costs are learned from replies.

    Parameters
    ----------
    on_time : float
        The share of replies that should arrive within the planned time. 0.5 plans with expected times.
    noise : float
        First guess of the relative deviation of a single time from its mean. The replies correct it.
    memory : int
        About how many of the latest replies are used.
    """

    on_time: float = 0.95
    noise: float = 0.1
    memory: int = 30

    def __post_init__(self) -> None:
        if not 0.5 <= number("on_time", self.on_time) <= 0.9999:
            raise complain("on_time", "a share from 0.5 to 0.9999", self.on_time, "0.95 is a good start.")
        if number("noise", self.noise, above=0) > 2:
            raise complain("noise", "at most 2", self.noise, "0.1 means about 10 percent.")
        count("memory", self.memory, least=5)


_EXPECTED = Estimation(on_time=0.5)


@dataclass(frozen=True, slots=True, eq=False)
class Shards:
    """Data on the server that are sent to the clients: parallelized learning.

    Parameters
    ----------
    arrays : sequence of arrays
        Features, labels and so on, all of the same length.
    over_tls : bool
        The operator's declaration that all clients connect over TLS with registered keys. Without it, shards
        are sent only to simulated clients.
    """

    arrays: Sequence[npt.NDArray[Any]]
    over_tls: bool = False

    def __post_init__(self) -> None:
        arrays: object = self.arrays
        if not isinstance(arrays, list | tuple) or not arrays:
            raise complain("shards", "a tuple of arrays, e.g. Shards((x, y))", arrays)
        for i, array in enumerate(arrays):
            if not isinstance(array, np.ndarray) or array.ndim < 1 or array.dtype.hasobject:
                raise complain("shards", "numpy arrays of numbers", array, index=i)
        lengths = {len(array) for array in arrays}
        if len(lengths) > 1 or 0 in lengths:
            raise complain("shards", "arrays of one length above 0", Phrase(f"lengths {sorted(lengths)}"))
        object.__setattr__(self, "arrays", tuple(arrays))

    def __len__(self) -> int:
        return len(self.arrays[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """The keywords of `MelStrategy` that planning and settling need; see there."""

    cycle_time_s: float | str | None = None
    total_samples: int | None = None
    staleness: int | None = None
    min_samples: int | None = None
    max_epochs: int | None = None
    solver: Solver | Rate = field(default_factory=Exact)
    workload: Workload | None = None
    default_device: Device | Measured | None = None
    shards: Shards | None = None
    average: Average = Average.SAMPLES
    estimation: Estimation | None = None
    robust: Robust = field(default_factory=Robust)
    rounds: Rounds = field(default_factory=Rounds)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.cycle_time_s is not None and not self.best:
            remedy = "Give seconds, 'best', or leave it out."
            number("cycle_time_s", self.cycle_time_s, above=0, remedy=remedy)
        for name in ("total_samples", "min_samples", "max_epochs"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, count(name, getattr(self, name), least=1))
        if self.staleness is not None:
            remedy = "0 is the synchronous scheme; leave it out for no cap."
            object.__setattr__(self, "staleness", count("staleness", self.staleness, remedy=remedy))
        self._check_solver()
        _choice(self, "average", Average)
        _instance(self, "workload", Workload)
        _instance(self, "default_device", Device | Measured)
        _instance(self, "shards", Shards, "Wrap the arrays: Shards((x, y)).")
        _instance(self, "estimation", Estimation)
        _instance(self, "robust", Robust, optional=False)
        _instance(self, "rounds", Rounds, optional=False)
        count("seed", self.seed)
        if isinstance(self.default_device, Device) and self.workload is None:
            remedy = "Give e.g. workload=Workload.mlp((784, 300, 10)), or a Measured device."
            raise complain("workload", "given with a default_device of physical values", None, remedy)
        if self.total_samples is not None and (self.min_samples or 0) > self.total_samples:
            raise complain("min_samples", f"at most total_samples = {self.total_samples:,}", self.min_samples)
        if self.shards is not None and self.cycle_time_s is None:
            rule = "given with shards: without local data, there is no baseline round to derive it from"
            raise complain("cycle_time_s", rule, None, "Give seconds or 'best'.")
        if self.shards is not None and (self.total_samples or 0) > len(self.shards):
            rule = f"at most the {len(self.shards):,} samples of the shards"
            raise complain("total_samples", rule, self.total_samples)

    def _check_solver(self) -> None:
        """Check that solver and cycle time go together."""
        if isinstance(self.solver, Rate):
            if not self.best:
                raise complain("cycle_time_s", "'best' with solver=Rate(...)", self.cycle_time_s)
        elif not callable(getattr(self.solver, "solve", None)):
            raise complain("solver", "a solver object such as Exact(), or Rate(...)", self.solver)
        elif self.best and self.solver != Exact():
            raise complain("solver", "Rate(...) or left out with cycle_time_s='best'", self.solver)
        if self.best and self.total_samples is not None:
            rule = "left out with cycle_time_s='best', which chooses the samples of each round"
            raise complain("total_samples", rule, self.total_samples)

    @property
    def best(self) -> bool:
        """Whether T follows from the costs."""
        return isinstance(self.cycle_time_s, str) and self.cycle_time_s == "best"

    @property
    def time_s(self) -> float | None:
        """T, if it was given in seconds."""
        return None if isinstance(self.cycle_time_s, str) else self.cycle_time_s

    @property
    def allocator(self) -> Solver:
        """The solver for a T that is known."""
        return Exact() if isinstance(self.solver, Rate) else self.solver

    @property
    def rate(self) -> Rate:
        """The objective with cycle_time_s="best"."""
        return self.solver if isinstance(self.solver, Rate) else Rate()

    @property
    def least_samples(self) -> int:
        """Samples of the smallest task where nothing else decides."""
        return self.min_samples or LEAST

    def learning(self, *, declared: bool, stops: bool = False) -> Estimation | None:
        """Return how costs are learned; None: a client's declared costs are used unchanged.

        A derived T is no deadline: tasks are planned with expected times, as T is. So are those of a client
        that stops in time by itself. A margin would only make them smaller than the project's own work.
        """
        if declared and self.estimation is None:
            return None
        learned = self.estimation or (Estimation() if self.time_s is not None else _EXPECTED)
        return replace(learned, on_time=0.5) if stops else learned

    def deadline_s(self, cycle_time_s: float, *, simulated: bool) -> float | None:
        """Return after how many seconds replies are dropped; None: all replies are awaited."""
        slack = self.rounds.deadline_slack
        if isinstance(slack, str):
            slack = None if simulated else _GENEROUS
        return None if slack is None or not cycle_time_s else cycle_time_s * (1 + slack)


def _choice(value: object, name: str, kind: type[StrEnum]) -> None:
    """Turn a field's text into a member of an enumeration."""
    given = getattr(value, name)
    if given not in list(kind):
        raise complain(name, f"one of {', '.join(repr(str(x)) for x in kind)}", given)
    object.__setattr__(value, name, kind(given))


def _instance(value: object, name: str, kind: Any, remedy: str = "", *, optional: bool = True) -> None:
    """Check the type of a field."""
    given = getattr(value, name)
    if isinstance(given, kind) or (optional and given is None):
        return
    kinds = getattr(kind, "__args__", (kind,))
    words = " or ".join(k.__name__ for k in kinds)
    raise complain(name, f"a {words}" + (" or None" if optional else ""), given, remedy)
