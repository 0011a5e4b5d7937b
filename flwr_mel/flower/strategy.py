"""What the strategies of both APIs have in common: arguments, parts, what they say of themselves."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from time import monotonic, time
from typing import Any, ClassVar

import numpy.typing as npt

from flwr_mel._validate import complain
from flwr_mel.allocation import Solver
from flwr_mel.checkpoint import Checkpoints
from flwr_mel.checkpoint.keeper import Keeper, Model
from flwr_mel.costs import Workload
from flwr_mel.devices import Device
from flwr_mel.flower.arrays import Array, Key
from flwr_mel.flower.inner import Undo, check_inner, needed_metrics, rule_of
from flwr_mel.flower.inner_state import InnerState
from flwr_mel.flower.moving import Models
from flwr_mel.flower.names import Names, NamesLike
from flwr_mel.flower.patience import Patience
from flwr_mel.flower.reasons import RefusedUpdate
from flwr_mel.flower.replies import Reply, Sieve
from flwr_mel.flower.sizes import too_large
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import (
    Average,
    Mode,
    OnInfeasible,
    Orchestrator,
    Settings,
    Stopped,
    Stopping,
    Stragglers,
)
from flwr_mel.orchestrator.averaging import AUTO, bounded_share, capped
from flwr_mel.orchestrator.core import KEEP_RECORDS
from flwr_mel.records import Callback, CycleRecord
from flwr_mel.solvers import Exact

log = logging.getLogger("flwr.mel")

_SETTINGS = {field.name for field in fields(Settings)}
_EXACT, _NEVER = Exact(), Stopping()


class MelStrategy:
    """Makes any Flower strategy heterogeneity-aware; each API has one of its own.

    Wraps a Flower strategy. Each cycle every learner gets its own number of epochs and samples, so that all
    report within the cycle time and nobody exceeds its energy limit. No number need be given: then the first
    cycle is the round that the project had before, and from what it took all others follow.

    Parameters
    ----------
    inner_strategy : Strategy
        Of the same API. Samples clients and aggregates; gets updates that were checked, weighted by allocated
        samples.
    cycle_time_s : float, optional
        T: everybody reports within this time. Default: it follows from what is measured, and no round is
        longer than the project's own.
    total_samples : int, optional
        d per cycle, of the whole fleet: where the strategy chooses a part of it, the cycle has that share.
        Default: all data (the dataset, or what the learners hold, as far as it fits into T).
    callbacks : iterable of callables
        Each takes every finished `CycleRecord`, e.g. `flwr_mel.records.JsonlWriter`.
    probe_timeout_s : float
        How long learners may take to say what they can do. A cycle waits so long for new ones, once, and only
        while fewer than half of the others are known. A simulation's engine starts in this time.
    idle_timeout_s : float
        How long a cycle waits for the answers of those who had no task in the one before. 0: it does not, and
        they take part when they have answered. Simulations wait, so that one seed gives one result.
    checkpoints : flwr_mel.checkpoint.Checkpoints or path, optional
        Where to keep a checkpoint of every cycle; see docs/CHECKPOINTS.md. When there are some already,
        training goes on after the last one.
    resume : bool
        False: there must not be any yet.
    keep_records : int
        How many of the last cycles `records` has, and every checkpoint. Callbacks get all of them.
    max_share : float or str, optional
        The largest share of the weight in an average that one learner may have, whatever it claims. "auto":
        half, or twice the mean share where that is less; none for fewer than three learners. None: no
        bound.
    max_norm_ratio : float, optional
        How many times as large as the middle one an update may be, more where more work was done; larger ones
        are cut back to the middle one's size. 2 is a good value; default: no bound.
    names : mapping of node id to name, or path, optional
        Which node, that is which key, goes by which name, whatever the nodes claim; or a JSON file with
        that, which may grow during a run. Nodes that are not in it go by their ids.
    learning : Learning or bool, optional
        Plan with times and energies learnt from the replies: True, or a `Learning`, for everybody, False for
        nobody. Default: for learners that declare nothing of themselves.
    average : str
        "samples" (weights d_k, the paper's), "nova" or "nova-held" (FedNova's normalisation with
        p_k = d_k / d or n_k / n), around FedAvg and strategies that average as it does. MelFedNova brings its
        own. See `Average`.
    stragglers : str, optional
        What becomes of learners that do not keep up: "span" (the default of the Message API), "exclude" or
        "keep", the paper's (the default of the classic API, whose rounds wait for every reply, and where no
        cycle time is given, since that one suits everybody). See `Settings`.
    solver : Solver or str
        `Exact()`, or an objective by its name: "progress", "soonest", "cheapest".
    staleness, min_samples, max_samples, max_epochs, workload, mode, dataset, default_profile,
    on_infeasible, enforce_deadline, deadline_slack, stopping, seed, epochs_key, samples_key,
    allow_insecure_shards, max_span, quorum, turn_after
        See `flwr_mel.orchestrator.Settings`.
    """

    #: The API's own class of strategies, and where the other API's MelStrategy is.
    _kind: ClassVar[type]
    _other: ClassVar[str]

    def __init__(
        self,
        inner_strategy: Any,
        *,
        cycle_time_s: float | None = None,
        total_samples: int | None = None,
        staleness: int | None = None,
        min_samples: int | None = None,
        max_samples: int | None = None,
        max_epochs: int | None = None,
        solver: Solver | str = _EXACT,
        workload: Workload | None = None,
        mode: Mode | str = Mode.FEDERATED,
        dataset: Sequence[npt.NDArray[Any]] | None = None,
        default_profile: Device | None = None,
        on_infeasible: OnInfeasible | str = OnInfeasible.RELAX,
        enforce_deadline: bool = False,
        deadline_slack: float = 0.25,
        stopping: Stopping = _NEVER,
        seed: int = 0,
        learning: Learning | bool | None = None,
        epochs_key: str | None = None,
        samples_key: str | None = None,
        allow_insecure_shards: bool = False,
        average: Average | str = Average.SAMPLES,
        stragglers: Stragglers | str | None = None,
        max_span: int = 4,
        quorum: float = 1.0,
        turn_after: int = 10,
        max_share: float | str | None = AUTO,
        max_norm_ratio: float | None = None,
        callbacks: Iterable[Callback] = (),
        probe_timeout_s: float = 120.0,
        idle_timeout_s: float = 0.0,
        checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
        resume: bool = True,
        keep_records: int = KEEP_RECORDS,
        names: NamesLike | None = None,
    ) -> None:
        check_inner(inner_strategy, self._kind, self._other)
        average = rule_of(inner_strategy, average)
        solver = Exact(objective=solver) if isinstance(solver, str) else solver
        if stragglers is None and cycle_time_s is None:
            stragglers = Stragglers.KEEP  # T is such that nobody is too slow for it, and nobody waits
        stragglers = self._policy(stragglers)
        settings = Settings(**{name: value for name, value in locals().items() if name in _SETTINGS})
        self.strategy = inner_strategy
        self.orchestrator = Orchestrator(settings, _callables(callbacks), keep_records=keep_records)
        self.orchestrator.clock = _clock
        state = None if checkpoints is None else InnerState(inner_strategy)
        self._models = Models(self._named, self._encoded)
        self._keeper = Keeper(checkpoints, resume, state, self.orchestrator, self._named, self._models)
        self._sieve = Sieve(needed_metrics(inner_strategy))
        self._undo = Undo(inner_strategy)
        self._names = Names(names)
        self._set_up(Patience(probe_timeout_s, idle_timeout_s))
        self._built = True

    def __getattr__(self, name: str) -> Any:
        """Give what only the wrapped strategy has: its own methods and attributes."""
        if name.startswith("__") or "strategy" not in self.__dict__:  # or not there yet, while being copied
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.strategy, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what only the wrapped strategy has where it reads it."""
        ours = name in self.__dict__ or hasattr(type(self), name) or "_built" not in self.__dict__
        if ours or not hasattr(self.strategy, name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.strategy, name, value)

    @staticmethod
    def _policy(asked: Stragglers | str | None) -> Stragglers | str:
        """Return what becomes of slow learners, where the user does not say."""
        return Stragglers.SPAN if asked is None else asked

    def _set_up(self, patience: Patience) -> None:
        """Make what only this API needs."""
        raise NotImplementedError

    @property
    def records(self) -> list[CycleRecord]:
        """The last `keep_records` cycles."""
        return self.orchestrator.records

    @property
    def stopped(self) -> Stopped | None:
        """Cycle and reason, once a stopping criterion is met."""
        return self.orchestrator.state.stopped

    def summary(self) -> None:
        """Log what is asked for, and then what the wrapped strategy says of itself."""
        log.info("\t├──> MelStrategy around %s:", type(self.strategy).__name__)
        lines = summary_of(self.orchestrator.settings)
        for line in lines:
            log.info("\t│\t%s── %s", "└" if line is lines[-1] else "├", line)
        if callable(inner := getattr(self.strategy, "summary", None)):
            inner()

    # --- the model ----------------------------------------------------------------------------------

    @staticmethod
    def _views(model: Any) -> dict[Key, Array]:
        """Return views of a model's arrays; raise `RefusedUpdate` if they cannot be read."""
        raise NotImplementedError

    @staticmethod
    def _named(model: Any) -> Model:
        """Return a model's arrays by name."""
        raise NotImplementedError

    @staticmethod
    def _encoded(model: Model) -> Any:
        """Return named arrays in Flower's form."""
        raise NotImplementedError

    def _expect(self, model: Any) -> None:
        """Take note of the model that goes out, in Flower's form."""
        try:
            self._sieve.begin(self._views(model))
        except RefusedUpdate as error:
            raise ValueError(
                f"MelStrategy checks updates against the model, which it cannot read: {error}. Send "
                "arrays in numpy's format."
            ) from None

    def _oversized(self, replies: Mapping[str, Reply]) -> dict[str, float]:
        """Return by which factors updates are to be cut back that are much larger than the others'."""
        settings = self.orchestrator.settings
        if settings.max_norm_ratio is None or not replies:
            return {}
        # Work that does not count is no excuse.
        weights = [reply.weight for reply in replies.values()]
        share = bounded_share(settings.max_share, len(replies))
        if share is not None:
            weights = capped(weights, list(replies), share)
        works = {x: r.epochs * float(n) for (x, r), n in zip(replies.items(), weights, strict=True)}
        return too_large(self._sieve.sizes(replies), works, settings.max_norm_ratio)

    def _aggregated(self, aggregate: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
        """Let the wrapped strategy make a model and metrics; what is no model is refused, the old one stays.

        Parameters
        ----------
        aggregate : callable
            Its method and arguments.
        """
        self._undo.prepare(self._sieve.model)
        model, metrics = aggregate()
        said: Mapping[str, object] = metrics or {}
        self.orchestrator.observe({f"train-{key}": value for key, value in said.items()})
        if model is None:
            return None, metrics
        try:
            made = self._views(model)
            wrong = self._sieve.judge(made)
        except RefusedUpdate as error:
            wrong = f"cannot be read: {error}"
        if not wrong:
            if self._sieve.unchanged(made):
                self.orchestrator.remark("unchanged", _UNCHANGED)
            return model, metrics
        self._undo()
        self.orchestrator.reject(f"the model that {type(self.strategy).__name__} made {wrong}")
        return None, metrics


_UNCHANGED = (
    "the updates left the model as it was, to the last bit: "
    "clients must return the arrays that they trained, "
    "not those that they were sent, and train with a learning rate above 0"
)


def summary_of(settings: Settings) -> list[str]:
    """Return what is asked for, in lines.

    Parameters
    ----------
    settings : Settings
        Of a strategy.
    """
    d = "all data" if settings.total_samples is None else f"{settings.total_samples:,} samples"
    t = "as measured" if settings.cycle_time_s is None else f"{settings.cycle_time_s:g} s"
    c = "as it comes" if settings.staleness is None else f"{settings.staleness}"
    limits = [] if settings.min_samples is None else [f"at least {settings.min_samples:,} samples each"]
    if settings.max_samples is not None:
        limits.append(f"at most {settings.max_samples:,}")
    if settings.max_epochs is not None:
        limits.append(f"at most {settings.max_epochs:,} epochs")
    if settings.enforce_deadline:
        if settings.cycle_time_s is None:
            limits.append(f"replies within {1 + settings.deadline_slack:g} T")
        else:
            limits.append(f"replies within {settings.cycle_time_s * (1 + settings.deadline_slack):g} s")
    learning = "of those who declare nothing" if settings.learning is None else "off"
    if settings.learning:
        learning = f"Learning({_asked(settings.learning)})"
    solver = f"{type(settings.solver).__name__}({_asked(settings.solver)})"
    return [
        f"cycle time T: {t} | samples d: {d} | staleness c: {c}",
        f"limits: {', '.join([*limits, '']) if limits else ''}each learner's own",
        f"solver: {solver} | mode: {settings.mode} | if infeasible: {settings.on_infeasible}",
        f"learning: {learning} | average: {settings.average}",
        f"of one learner: share of the weight {_words(settings.max_share)}, "
        f"size of an update {_words(settings.max_norm_ratio)}",
        f"stragglers: {settings.stragglers}"
        + (f", up to {settings.max_span} cycles per task" if settings.stragglers is Stragglers.SPAN else ""),
        f"stopping: {_asked(settings.stopping) or 'after the last round'}",
    ]


def _asked(thing: Any) -> str:
    """Return the options of an object that are not the usual ones."""
    options = fields(thing) if is_dataclass(thing) else ()
    asked = [(option.name, getattr(thing, option.name), option.default) for option in options]
    return ", ".join(f"{name}={value}" for name, value, usual in asked if value != usual)


def _words(bound: float | str | None) -> str:
    """Say what a bound is."""
    return "as it comes" if bound is None else f"bounded ({bound})"


def _clock() -> tuple[float, float]:
    """Return the time of day and that of a clock that never jumps."""
    return time(), monotonic()


def _callables(callbacks: Any) -> list[Callback]:
    given = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for callback in given:
        if not callable(callback):
            raise complain("callbacks", "a list of functions that take a CycleRecord", callback)
    return given
