"""All figures of a sweep, from its results alone: nothing is trained here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from mel_simulation.paper.figures import asynchrony, rivals, rules, schemes, style
from mel_simulation.paper.rows import NoCells, Row

logger = logging.getLogger(__name__)

#: File name and maker of every figure.
FIGURES: dict[str, Callable[[Sequence[Row], str], Figure]] = {
    "final_accuracy": schemes.final_accuracy,
    "progression": schemes.progression,
    "updates_to_target": schemes.updates_to_target,
    "convergence_check": asynchrony.convergence_check,
    "ha_against_hu": asynchrony.aware_against_unaware,
    "baselines": rivals.baselines,
    "cost_to_accuracy": rivals.cost_to_accuracy,
    "rules": rules.rules,
    "averaging": rules.averaging,
    "federated": rules.federated,
    "gain_of_asynchrony": asynchrony.gain_of_asynchrony,
}


#: What each figure is about, for somebody who has read nothing else.
TITLES = {
    "final_accuracy": "How accurate is the model after 6 and after 12 cycles?",
    "progression": "How accuracy grows from cycle to cycle",
    "updates_to_target": "How many cycles does an accuracy take?",
    "convergence_check": "Check: asynchronous training with c = 0 is synchronous training",
    "ha_against_hu": "Batches that fit the devices (HA) against equal batches (HU)",
    "baselines": "Accuracy for time and energy, with allocation and without",
    "cost_to_accuracy": "Time and energy that an accuracy takes, with and without allocation",
    "rules": "Which learner should get which samples? Rules at equal limits",
    "averaging": "How should the learners' models be averaged?",
    "federated": "Data that stay on the devices, with uneven labels: which rule helps?",
    "gain_of_asynchrony": "When does it pay that learners do different numbers of epochs?",
}


def draw(
    results: Sequence[Row], out: Path, *, notice: str = "", skipped: dict[str, str] | None = None
) -> list[Path]:
    """Draw every figure for which there are cells, as PNG; the same rows give the same bytes.

    Parameters
    ----------
    results : sequence of dict
        Rows as `mel_simulation.sweep.results.read_results` returns them.
    out : Path
        The directory of the figures.
    notice : str
        The sweep's notice about its data, for the footers.
    skipped : dict, optional
        Filled with the name of every figure that was not drawn and what it needs. They are logged too.

    Returns
    -------
    list of Path
        The files written.
    """
    paths: list[Path] = []
    for name, make in FIGURES.items():
        with style.style():
            try:
                figure = make(results, notice)
                style.headline(figure, TITLES[name])
                paths.append(style.save(figure, out, name))
            except NoCells as reason:
                logger.info("figure %s skipped: %s", name, reason)
                if skipped is not None:
                    skipped[name] = str(reason)
    return paths
