"""The run configuration: the one declaration of a run's options.

Name, type, default, choices, range and help of every option are declared here. `flwr run -c` and
`flwr-mel simulate` read them; ``python docs/options.py`` writes them into ``[tool.flwr.app.config]`` of
pyproject.toml and the table of docs/SIMULATION.md (a test compares).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from flwr_mel._validate import complain, count, number
from flwr_mel.allocation.handout import Handout
from flwr_mel.solvers import Exact, Rate, SuggestImprove
from flwr_mel.solvers.schemes import Scheme, SchemeName, scheme
from mel_simulation.scenario.data import DATASETS

#: The scheme that chooses T, with `Rate`.
RATE = "rate"
#: Of FedAdam, beside its step: small steps need a small tau.
ADAM: dict[str, Any] = {"beta_1": 0.8, "beta_2": 0.99, "tau": 1e-6}

#: What a resumed run may change. The fleet and the data themselves are compared, not their paths.
RESUMABLE = ("cycles", "target-accuracy", "run-dir", "resume", "fleet", "data-dir")


def option(default: Any, text: str, choices: Iterable[str] = (), **limits: float) -> Any:
    """Declare an option: a dataclass field with its help, choices and range (`least`, `above`)."""
    return field(default=default, metadata={"text": text, "choices": tuple(map(str, choices)), **limits})


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a simulation does; Flower spells the names with dashes."""

    scheme: str = option(
        "ha-asyn",
        "heterogeneity-aware: ha-asyn, ha-sync; equal batches: hu-asyn, hu-sync; "
        "rate: short cycles whose T follows from the costs",
        (*SchemeName, RATE),
    )
    mode: str = option("pl", "pl: parallelized, samples are shipped; fl: federated, data stay", ("pl", "fl"))
    cycles: int = option(12, "global cycles", least=1)
    cycle_time: float = option(
        10.0, "T, seconds; with rate: the time to which the energy limits refer", above=0
    )
    energy: float = option(10.0, "mean energy limit E per learner and cycle, joules; 0: no limits", least=0)
    energy_spread: float = option(2.5, "E_k is drawn each cycle from E plus or minus up to this", least=0)
    staleness: int = option(2, "c, the largest difference in epochs (asynchronous schemes)", least=0)
    solver: str = option(
        "exact", "exact (ours) or suggest-improve (the paper's)", ("exact", "suggest-improve")
    )
    handout: str = option("proportional", "how samples are handed out", Handout)
    learners: int = option(20, "number of learners, K; with flwr run also the number of SuperNodes", least=1)
    fleet: str = option("", "a fleet file as for flwr-mel plan, with its own limits; empty: the paper's")
    dataset: str = option("mnist", "training data", DATASETS)
    data_dir: str = option("", "directory of idx files; empty: cache, download, embedded subset")
    alpha: float = option(0.0, "FL: Dirichlet concentration of the labels over the learners; 0: IID", least=0)
    samples: int = option(0, "d per cycle; 0: all training data, in FL half of them", least=0)
    min_samples: int = option(
        0, "d_l, the smallest batch; 0: 100 per 60,000 samples, at most half an equal share", least=0
    )
    batch_size: int = option(0, "mini-batch of the learners' SGD; 0: 64, on the embedded subset 16", least=0)
    learning_rate: float = option(0.04, "learning rate of the learners' SGD", above=0)
    optimizer: str = option("average", "on the server: average, or adam (FedAdam)", ("average", "adam"))
    eta: float = option(0.004, "step of FedAdam", above=0)
    frugality: float = option(0.0, "for the scheme rate: 0 counts time only, more saves energy", least=0)
    target_accuracy: float = option(0.0, "stop at this accuracy, from 0 to 1; 0: never", least=0)
    seed: int = option(0, "the same seed gives the same result", least=0)
    api: str = option("message", "Flower's strategy API", ("message", "classic"))
    run_dir: str = option("", "where results go; empty: a new directory below ./runs")
    resume: bool = option(False, "continue after the last finished cycle in the run directory")

    def __post_init__(self) -> None:
        for each in options(type(self)):
            each.check(getattr(self, each.name))
        if self.target_accuracy > 1:
            raise complain("target_accuracy", "between 0 and 1", self.target_accuracy)
        if self.energy and self.energy_spread >= self.energy:
            raise complain("energy_spread", f"below energy = {self.energy:g}", self.energy_spread)
        self._refuse_idle()
        if self.data_dir and not Path(self.data_dir).is_dir():
            raise complain("data_dir", "an existing directory of idx files", self.data_dir)
        if self.fleet and not Path(self.fleet).is_file():
            raise complain("fleet", "an existing TOML or CSV file", self.fleet)
        if self.resume and not self.run_dir:
            raise complain("run_dir", "the run to continue when resume is set", self.run_dir)

    def _refuse_idle(self) -> None:
        """Refuse options without effect in this run."""
        scheme, rate = self.scheme, self.scheme == RATE
        sync, unaware = scheme.endswith("-sync"), scheme.startswith("hu-")
        refuse_idle(
            self,
            (rate, "staleness solver handout samples", f"left out for {RATE}, which chooses T and samples"),
            (not rate, "frugality", f"left out for {scheme}"),
            (sync and self.staleness > 0, "staleness", f"left out or 0 for {scheme}"),
            (unaware, "solver handout", f"left out for {scheme}: its batches are equal"),
            (self.optimizer == "average", "eta", "left out without optimizer adam"),
            (self.mode == "pl", "alpha", "left out in mode pl: learners hold no data"),
            (not self.energy, "energy_spread", "left out where energy is 0"),
            (self.fleet != "", "energy energy_spread", "left out with a fleet, which has its own limits"),
        )

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Read Flower's run config, whose keys have dashes; unknown keys are errors."""
        known = {each.key: each for each in options(cls)}
        given: dict[str, Any] = {}
        for key, value in values.items():
            if key not in known:
                raise complain("run config", f"made of {', '.join(known)}", key)
            each = known[key]
            whole = each.kind is float and type(value) is int  # TOML has 10 where a float is meant
            given[each.name] = float(value) if whole else value
            if type(given[each.name]) is not each.kind:
                raise complain(key, f"of type {each.kind.__name__}", value)
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        """Flower's spelling of the configuration."""
        return {key.replace("_", "-"): value for key, value in asdict(self).items()}

    def rate(self) -> Rate:
        """Objective of the scheme rate; energy limits are read as a mean power."""
        return Rate(frugality=self.frugality, reference_s=self.cycle_time)

    def scheme_object(self) -> Scheme:
        """Solver and staleness of the scheme."""
        which, handout = SchemeName(self.scheme), Handout(self.handout)
        solver = Exact(handout=handout) if self.solver == "exact" else SuggestImprove(handout=handout)
        staleness = None if which.synchronous else self.staleness
        return scheme(self.scheme, staleness, solver if which.aware else None)


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it is declared in `RunConfig`."""

    name: str
    kind: type
    default: Any
    text: str
    choices: tuple[str, ...]
    least: float | None = None
    above: float | None = None

    @property
    def key(self) -> str:
        """Flower's spelling."""
        return self.name.replace("_", "-")

    def check(self, value: Any) -> None:
        """Refuse a value that is no choice or out of range."""
        if self.choices and value not in self.choices:
            raise complain(self.name, f"one of {', '.join(self.choices)}", value)
        if self.kind is int:
            count(self.name, value, least=int(self.least or 0))
        elif self.kind is float:
            number(self.name, value, least=self.least, above=self.above)


def options(config: type[RunConfig] = RunConfig) -> tuple[Option, ...]:
    """Return all options in their order."""
    return tuple(Option(f.name, type(f.default), f.default, **f.metadata) for f in fields(config))


def refuse_idle(config: Any, *rules: tuple[bool, str, str]) -> None:
    """Refuse fields without effect that are not at their default.

    Parameters
    ----------
    config : dataclass
        Whose fields have defaults.
    *rules : tuple of bool, str, str
        Whether fields have no effect, their names, and the rule that a change of them breaks.
    """
    defaults = {f.name: f.default for f in fields(config)}
    for idle, names, rule in rules:
        for name in names.split() if idle else ():
            if getattr(config, name) != defaults[name]:
                raise complain(name, rule, getattr(config, name))
