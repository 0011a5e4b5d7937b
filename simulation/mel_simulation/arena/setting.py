"""A setting of the arena: which learners hold which data and learn what, and how long they may."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from flwr_mel._validate import IntArray, complain, frozen
from flwr_mel.costs import Coefficients
from flwr_mel.devices import Device
from flwr_mel.paper import PAPER_CLASSES, PaperFleet
from mel_simulation.arena.tasks import TASKS, Task, task_of
from mel_simulation.scenario.partition import partition
from mel_simulation.scenario.phones import phone_fleet

FLEETS = ("paper", "phones", "spread", "spread-far")
#: How data are split: by chance, by Dirichlet's distribution over the labels, by speaker, or so that the last
#: quarter of the learners alone hold the last labels.
IID, SPEAKERS, RARE = "iid", "speakers", "rare"
RARE_LABELS = 2
#: Of the fleets "spread": how many times faster the first learner is than the last, and how many times slower
#: the links of the last quarter are in "spread-far".
_SPREAD, _FAR = 40.0, 10.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What all rivals meet. Times are in virtual seconds, by the cost model.

    Parameters
    ----------
    name, title : str
        For files and for people.
    task : str
        What is learnt, see `mel_simulation.arena.tasks`.
    samples : int
        Training samples that are used; 0: all.
    fleet : str
        "paper": the paper's devices, places drawn by the seed; "phones": models and links of the seed, up to
        41 times apart in speed; "spread": the paper's links with speeds 40 times apart, the slowest learner
        last; "spread-far": also with slower links for the slowest quarter.
    learners : int
        K.
    split : str
        "iid", "speakers", "rare", or Dirichlet's concentration as a number.
    targets : tuple of float
        Test accuracies (0 to 1) to be reached, rising; a bout is over when the last one is.
    rounds : float
        How long a bout may last, in rounds of plain FedAvg with one epoch on all data.
    power_w : float
        Energy limit of a learner per second of a cycle, W; 0: none.
    throttled : bool
        Whether devices keep the limit themselves, whoever gives them work: a job takes as long as its energy
        at `power_w`. Otherwise only contestants that plan with it keep it.
    jitter : float
        How far time and energy of a job may be from what the cost model says, as a share: each job has a
        factor of its own between 1 - jitter and 1 + jitter, which no contestant knows.
    data_dir : str
        Where the data are; empty: where the simulation looks for them. Not part of the result.
    """

    name: str
    title: str
    task: str
    samples: int = 0
    fleet: str = "paper"
    learners: int = 20
    split: str = IID
    targets: tuple[float, ...] = (0.9,)
    rounds: float = 20.0
    power_w: float = 1.0
    throttled: bool = False
    jitter: float = 0.0
    data_dir: str = ""

    def __post_init__(self) -> None:
        for key, value, choices in (("task", self.task, TASKS), ("fleet", self.fleet, FLEETS)):
            if value not in choices:
                raise complain(key, f"one of {', '.join(choices)}", value)
        if self.split not in (IID, SPEAKERS, RARE):
            float(self.split)
        object.__setattr__(self, "targets", tuple(self.targets))

    @property
    def job(self) -> Task:
        """What is learnt."""
        return task_of(self.task, self.data_dir, self.samples)

    def parts(self, seed: int) -> list[IntArray]:
        """Return the rows that each learner holds."""
        return _parts(self, seed)

    def devices(self, seed: int) -> list[Device]:
        """Return the learners' devices."""
        if self.fleet == "phones":
            return phone_fleet(seed, self.learners)
        devices = list(PaperFleet(seed, self.learners, 0.0, 0.0, 0.0).devices(1))
        return devices if self.fleet == "paper" else _spread(devices, self.fleet == "spread-far")

    def factor(self, seed: int, job: int) -> float:
        """Return by how much a job's time and energy differ from the cost model's."""
        if not self.jitter:
            return 1.0
        return float(np.random.default_rng([seed, 17, job]).uniform(1 - self.jitter, 1 + self.jitter))

    def coefficients(self, seed: int) -> Coefficients:
        """Return what work costs each learner."""
        return Coefficients.from_devices(self.devices(seed), self.job.workload)


def _spread(devices: list[Device], far: bool) -> list[Device]:
    """Return devices from the fastest to the slowest; `far`: with slower links for the slowest quarter."""
    fastest, steps = max(PAPER_CLASSES.values()), len(devices) - 1
    slow = len(devices) - max(len(devices) // 4, 1)
    spread = []
    for k, d in enumerate(devices):
        rate_bps = d.rate_bps / _FAR if far and k >= slow else d.rate_bps
        spread.append(replace(d, cpu_hz=fastest * _SPREAD ** (-k / steps), rate_bps=rate_bps))
    return spread


@lru_cache(maxsize=8)
def _parts(setting: Setting, seed: int) -> list[IntArray]:
    """Split the data; all rivals meet the same parts, and Dirichlet's take half a second to make."""
    labels = setting.job.labels.astype(np.int64)
    if setting.split == SPEAKERS:
        parts = _by_group(labels, setting.learners, seed)
    elif setting.split == RARE:
        parts = _rare(labels, setting.learners, seed)
    else:
        alpha = None if setting.split == IID else float(setting.split)
        parts = partition(labels, setting.learners, alpha, seed)
    return [frozen(part) for part in parts]


def _rare(labels: IntArray, learners: int, seed: int) -> list[IntArray]:
    """Give the last labels to the last quarter of the learners, all others to the rest."""
    few, last = max(learners // 4, 1), labels > labels.max() - RARE_LABELS
    rng = np.random.default_rng([seed, 13])
    common, theirs = (rng.permutation(np.flatnonzero(rows)) for rows in (~last, last))
    return [*np.array_split(common, learners - few), *np.array_split(theirs, few)]


def _by_group(groups: IntArray, learners: int, seed: int) -> list[IntArray]:
    """Give whole groups to learners, the largest first to the learner that holds least."""
    names, sizes = np.unique(groups, return_counts=True)
    order = np.random.default_rng([seed, 11]).permutation(len(names))
    order = order[np.argsort(-sizes[order], kind="stable")]
    held, owner = np.zeros(learners, dtype=np.int64), np.zeros(len(names), dtype=np.int64)
    for group in order:
        mine = int(held.argmin())
        owner[group], held[mine] = mine, held[mine] + sizes[group]
    of_row = owner[np.searchsorted(names, groups)]
    return [np.flatnonzero(of_row == k) for k in range(learners)]


@dataclass(frozen=True, slots=True)
class Profile:
    """Which bouts there are.

    Parameters
    ----------
    name : str
        Of the file.
    settings : tuple of Setting
        In the order of the page.
    seeds : sequence of int
        Reported ones.
    tuning_seed : int or None
        On which the rivals' settings are chosen, never reported; None: the first of each rival's list is
        taken.
    rivals : sequence of str
        Their names; empty: all.
    """

    name: str
    settings: tuple[Setting, ...]
    seeds: Sequence[int]
    tuning_seed: int | None = None
    rivals: Sequence[str] = ()


@lru_cache(maxsize=4)
def read_profile(path: Path, data_dir: str = "") -> Profile:
    """Read a profile.

    Parameters
    ----------
    path : Path
        A TOML file: ``seeds``, optionally ``tuning-seed`` and ``rivals``, and ``[[setting]]`` tables.
    data_dir : str
        Directory of the data.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        settings = tuple(Setting(**table, data_dir=data_dir) for table in content.pop("setting"))
        return Profile(path.stem, settings, **{key.replace("-", "_"): content[key] for key in content})
    except (KeyError, TypeError, ValueError) as error:
        raise complain("profile", f"made of known keys and names ({error})", str(path)) from None
