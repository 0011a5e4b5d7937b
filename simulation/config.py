"""The run configuration: one place for its keys, defaults and rules.

The table ``[tool.flwr.app.config]`` of pyproject.toml repeats the defaults, because Flower wants them
there; a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from flwr_mel._validate import complain, count, number
from flwr_mel.allocation.handout import Handout
from flwr_mel.allocation.schemes import Scheme, scheme
from flwr_mel.allocation.schemes import SchemeName as SchemeNames
from flwr_mel.allocation.solution import Objective
from flwr_mel.learners.paper import PAPER_LAYERS
from flwr_mel.solvers import Exact, SuggestImprove
from flwr_mel.solvers.exact import Exclude
from simulation.data import DATASETS

#: Samples of the paper's dataset; the smaller embedded subset is costed as if it had as many.
PAPER_SAMPLES = 60_000
LAYERS = PAPER_LAYERS

#: What a resumed run may change: how far it goes and how it is carried. The fleet and the data themselves
#: are compared, not their paths.
RESUMABLE = ("cycles", "target-accuracy", "api", "run-dir", "resume", "fleet", "data-dir")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a simulation does. Flower spells the keys with dashes.

    Parameters
    ----------
    scheme, mode : str
        "ha-asyn", "ha-sync", "hu-asyn", "hu-sync", "ha-progress"; "pl" (the server ships samples) or "fl".
    cycles : int
        Global cycles.
    cycle_time : float
        T in seconds.
    energy, energy_spread : float
        E_k is drawn anew each cycle from energy plus or minus the spread, joules. energy = 0: no limits.
    staleness : int
        c; the synchronous schemes take it as 0.
    solver, handout : str
        "exact" or "suggest-improve"; "proportional", "even" or "strongest-first".
    exclude : str
        "infeasible": only who cannot take part is left out; "optimal": also stragglers, where that raises the
        sum of epochs (exact solver only).
    learners : int
        K. 0: as many as the federation has nodes.
    fleet : str
        A TOML or CSV fleet file as for `flwr-mel plan`, which then gives the energy limits; empty: the
        paper's fleet.
    mobility : float
        Metres (standard deviation in x and y) that learners of the paper's fleet move between cycles.
    dataset, data_dir : str
        "mnist" or "fashion-mnist"; a directory of idx files, or empty for cache, download or subset.
    alpha : float
        FL: Dirichlet concentration of the labels over the learners. 0: IID.
    samples, min_samples : int
        d per cycle and d_l. 0: all training data, in FL half of them (energy limits may keep a learner from
        passing all it holds); 100 per 60,000 of them, at most half an equal share.
    sample_cost : float
        Samples of the paper that one sample stands for in the cost model. 0: 1 for full datasets; for the
        embedded subset 60,000 / its size, so that epochs come out as in the paper.
    batch_size, learning_rate : int, float
        Of the learners' SGD. batch_size = 0: 64, or 16 on the embedded subset, whose shards are small.
    target_accuracy : float
        Stop there. 0: never.
    seed : int
        One seed, one result.
    api : str
        Which of Flower's strategy APIs carries the run: "message" or "classic".
    run_dir : str
        Where results go. Empty: a new directory below ./runs.
    resume : bool
        Go on after the last finished cycle in run_dir. Only `RESUMABLE` keys may differ from before.
    """

    scheme: str = "ha-asyn"
    mode: str = "pl"
    cycles: int = 12
    cycle_time: float = 10.0
    energy: float = 10.0
    energy_spread: float = 2.5
    staleness: int = 2
    solver: str = "exact"
    handout: str = "proportional"
    exclude: str = "infeasible"
    learners: int = 0
    fleet: str = ""
    mobility: float = 0.0
    dataset: str = "mnist"
    data_dir: str = ""
    alpha: float = 0.0
    samples: int = 0
    min_samples: int = 0
    sample_cost: float = 0.0
    batch_size: int = 0
    learning_rate: float = 0.04
    target_accuracy: float = 0.0
    seed: int = 0
    api: str = "message"
    run_dir: str = ""
    resume: bool = False

    def __post_init__(self) -> None:
        for name, choices in (
            ("scheme", tuple(SchemeNames)),
            ("mode", ("pl", "fl")),
            ("solver", ("exact", "suggest-improve")),
            ("handout", tuple(Handout)),
            ("exclude", tuple(Exclude)),
            ("dataset", tuple(DATASETS)),
            ("api", ("message", "classic")),
        ):
            if getattr(self, name) not in choices:
                raise complain(name, f"one of {', '.join(choices)}", getattr(self, name))
        count("cycles", self.cycles, least=1)
        for name in ("batch_size", "staleness", "learners", "samples", "min_samples", "seed"):
            count(name, getattr(self, name))
        for name in ("cycle_time", "learning_rate"):
            number(name, getattr(self, name), above=0)
        for name in ("energy", "energy_spread", "mobility", "alpha", "sample_cost"):
            number(name, getattr(self, name), least=0)
        if not 0 <= number("target_accuracy", self.target_accuracy) <= 1:
            raise complain("target_accuracy", "between 0 and 1", self.target_accuracy)
        if self.energy and self.energy_spread >= self.energy:
            raise complain("energy_spread", f"below energy = {self.energy:g}", self.energy_spread)
        self._check_rules()
        self._check_paths()

    def _check_rules(self) -> None:
        """Refuse rules that the scheme would not follow."""
        which = SchemeNames(self.scheme)
        if self.exclude != Exclude.INFEASIBLE and (self.solver != "exact" or not which.aware):
            raise complain("exclude", "infeasible without the exact solver and an HA scheme", self.exclude)
        if which is SchemeNames.HA_PROGRESS:
            if self.solver != "exact":
                raise complain("solver", "exact for ha-progress", self.solver)
            if self.handout != Handout.PROPORTIONAL:
                raise complain("handout", "left out for ha-progress, which fixes the batches", self.handout)

    def _check_paths(self) -> None:
        if self.data_dir and not Path(self.data_dir).is_dir():
            raise complain("data_dir", "an existing directory of idx files", self.data_dir)
        if self.fleet and not Path(self.fleet).is_file():
            raise complain("fleet", "an existing TOML or CSV file", self.fleet)
        if self.resume and not self.run_dir:
            raise complain("run_dir", "the run to go on with when resume is set", self.run_dir)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> RunConfig:
        """Read Flower's run config (dashes, any of int, float, str, bool).

        Parameters
        ----------
        values : mapping
            Unknown keys are errors.
        """
        types = {f.name: f.type for f in fields(cls)}
        given: dict[str, Any] = {}
        for key, value in values.items():
            name = key.replace("-", "_")
            if name not in types:
                raise complain("run config", f"made of {', '.join(cls.keys())}", key)
            # TOML writes 10 where a float is meant.
            is_whole = types[name] == "float" and isinstance(value, int) and not isinstance(value, bool)
            given[name] = float(value) if is_whole else value
            if type(given[name]).__name__ != types[name]:
                raise complain(key, f"of type {types[name]}", value)
        return cls(**given)

    @classmethod
    def keys(cls) -> list[str]:
        """All keys, as Flower spells them."""
        return [f.name.replace("_", "-") for f in fields(cls)]

    def as_dict(self) -> dict[str, Any]:
        """Flower's spelling of the configuration."""
        return {key.replace("_", "-"): value for key, value in asdict(self).items()}

    def scheme_object(self) -> Scheme:
        """Solver and staleness of the scheme."""
        which, handout = SchemeNames(self.scheme), Handout(self.handout)
        goal = Objective.PROGRESS if which is SchemeNames.HA_PROGRESS else Objective.EPOCHS
        exact = Exact(handout=handout, exclude=Exclude(self.exclude), objective=goal)
        solver = exact if self.solver == "exact" else SuggestImprove(handout=handout)
        staleness = None if which.synchronous else self.staleness
        return scheme(self.scheme, staleness, solver if which.aware else None)
