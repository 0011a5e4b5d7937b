"""A fleet: the learners of one job, given by data sheet or by measurement, in any mix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import InputError, Phrase, complain
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.costs import Coefficients, Workload
from flwr_mel.devices import COEFFICIENTS, Device, Measured
from flwr_mel.paper import PAPER_LAYERS


@dataclass(frozen=True, slots=True)
class Fleet:
    """Learners, and the training job their costs are about.

    Parameters
    ----------
    learners : sequence of Device or Measured
        In order; at least one. Names are unique; an unnamed learner is called device-<number>.
    workload : Workload, optional
        The job. None: the paper's network, unless a method is given another.
    """

    learners: Sequence[Device | Measured]
    workload: Workload | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "learners", tuple(self.learners))
        if not self.learners:
            raise complain("learners", "at least one device", Phrase("an empty fleet"))
        for learner in self.learners:
            if not isinstance(learner, Device | Measured):
                raise complain("learners", "Device or Measured objects", learner)
        seen: set[str] = set()
        for name in self.names:
            check_name(name)
            if name in seen:
                raise complain("name", "unique in the fleet", name)
            seen.add(name)

    def __len__(self) -> int:
        return len(self.learners)

    @property
    def names(self) -> list[str]:
        """What the learners are called."""
        return [learner.name or f"device-{k}" for k, learner in enumerate(self.learners, 1)]

    @property
    def energy_limit_j(self) -> list[float | None]:
        """E_k; None where there is no limit."""
        return [learner.energy_limit_j for learner in self.learners]

    @property
    def max_samples(self) -> list[int | None]:
        """The most samples per learner; None where there is no limit."""
        return [learner.max_samples for learner in self.learners]

    @property
    def measured(self) -> int:
        """How many learners have measured coefficients, which no workload changes."""
        return sum(isinstance(learner, Measured) for learner in self.learners)

    def job(self, workload: Workload | None = None) -> Workload:
        """Return the given workload, else the fleet's, else the paper's."""
        return workload or self.workload or Workload.mlp(PAPER_LAYERS)

    def coefficients(self, workload: Workload | None = None) -> Coefficients:
        """Derive, or look up, everybody's costs.

        Parameters
        ----------
        workload : Workload, optional
            In place of the fleet's own.
        """
        columns = {field: np.empty(len(self)) for field in COEFFICIENTS}
        described = [k for k, x in enumerate(self.learners) if isinstance(x, Device)]
        if described:
            devices = [x for x in self.learners if isinstance(x, Device)]
            try:
                derived = Coefficients.from_devices(devices, self.job(workload))
            except InputError as error:
                raise self._named(error, described) from None
            for field in COEFFICIENTS:
                columns[field][described] = getattr(derived, field)
        for k, learner in enumerate(self.learners):
            if isinstance(learner, Measured):
                for field in COEFFICIENTS:
                    columns[field][k] = getattr(learner, field)
        return Coefficients(**columns)

    def problem(
        self,
        *,
        cycle_time_s: float | str,
        total_samples: int,
        staleness: int = 0,
        min_samples: int = 1,
        max_epochs: int | None = None,
        energy_limit_j: float | None = None,
        workload: Workload | None = None,
    ) -> AllocationProblem:
        """Build the allocation problem of this fleet.

        Parameters
        ----------
        cycle_time_s, total_samples, staleness, min_samples, max_epochs
            As in `AllocationProblem`.
        energy_limit_j : float, optional
            One limit for all, in place of the learners' own.
        workload : Workload, optional
            In place of the fleet's own.
        """
        return AllocationProblem(
            self.coefficients(workload),
            cycle_time_s=cycle_time_s,
            energy_limit_j=self.energy_limit_j if energy_limit_j is None else energy_limit_j,
            total_samples=total_samples,
            staleness=staleness,
            min_samples=min_samples,
            max_samples=self.max_samples,
            max_epochs=max_epochs,
        )

    def _named(self, error: InputError, index: Sequence[int]) -> InputError:
        """Put the learner's name before an error about the k-th entry of an array."""
        if error.index is None:
            return error
        remedy = "Check the units of this device and of the workload."
        who = f'device "{self.names[index[error.index]]}"'
        return complain(error.field, error.rule, error.value, remedy, where=who)


def check_name(name: object) -> str:
    """Return a name that a table can show."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise complain("name", "text of printable characters", name)
    return name
