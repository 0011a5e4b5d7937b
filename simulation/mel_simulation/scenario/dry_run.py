"""A dry run of the first cycle, so that a hopeless configuration fails before anybody trains."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from flwr_mel._validate import Phrase, complain
from flwr_mel.orchestrator import OnInfeasible, Orchestrator, Settings, Stopping
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.fleet import VirtualFleet
from mel_simulation.scenario.job import dataset_of, local_indices, min_samples, total_samples, workload_of

_REMEDIES = ("cycle_time", "energy", "min_samples")


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Return the keyword arguments of either `MelStrategy`."""
    scheme, data = config.scheme_object(), dataset_of(config)
    return {
        "cycle_time_s": config.cycle_time,
        "total_samples": total_samples(config),
        "staleness": scheme.staleness,
        "min_samples": min_samples(config),
        "solver": scheme.solver,
        "workload": workload_of(config),
        "mode": "parallelized" if config.mode == "pl" else "federated",
        "dataset": (data.train_x, data.train_y) if config.mode == "pl" else None,
        "seed": config.seed,
        "learning": False,  # all costs are declared, and time is the cost model's
        "max_share": None,  # the paper's weights, whatever they are
        "stragglers": config.stragglers,
        "max_span": config.max_span,
        "stopping": Stopping(target=config.target_accuracy or None),
    }


@contextmanager
def unspoken() -> Iterator[None]:
    """Plan without a word: a dry run's tasks are nobody's, and its log lines would only confuse."""
    logger = logging.getLogger("flwr.mel")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def rehearse(config: RunConfig, learners: int) -> None:
    """Plan the first cycle.

    Parameters
    ----------
    config : RunConfig
        The run.
    learners : int
        K.

    Raises
    ------
    Infeasible
        With the diagnosis.
    ValueError
        If nobody would have anything to do.
    """
    config = replace(config, learners=learners)
    orchestrator = Orchestrator(Settings(**settings_of(config), on_infeasible=OnInfeasible.ERROR))
    fleet = VirtualFleet(learners, config)
    for k in range(learners):
        held = len(local_indices(config, k, learners)) if config.mode == "fl" else None
        orchestrator.hear(str(k), fleet.words(k, 1, held))
    with unspoken():
        plan = orchestrator.plan(1, [str(k) for k in range(learners)])
    if not plan.tasks and orchestrator.record is not None:
        why = "; ".join(orchestrator.record.notes) or "no learner can take part"
        remedy = Phrase("Raise {} or {}, lower {}, or use fewer learners.", *_REMEDIES)
        raise complain("learners", "able to do something in the first cycle", Phrase(why), remedy)
