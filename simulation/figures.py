"""All figures of a sweep, from its results alone: nothing is trained here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from simulation import figures_checks, figures_paper, figures_past
from simulation.figures_rows import NoCells, Row
from simulation.figures_style import save, style

logger = logging.getLogger(__name__)

#: File name and maker of every figure.
FIGURES: dict[str, Callable[[Sequence[Row], str], Figure]] = {
    "final_accuracy": figures_paper.final_accuracy,
    "progression": figures_paper.progression,
    "updates_to_target": figures_paper.updates_to_target,
    "convergence_check": figures_checks.convergence_check,
    "ha_against_hu": figures_checks.aware_against_unaware,
    "baselines": figures_past.baselines,
    "cost_to_accuracy": figures_past.cost_to_accuracy,
    "rules": figures_past.rules,
    "averaging": figures_past.averaging,
    "federated": figures_past.federated,
    "gain_of_asynchrony": figures_checks.gain_of_asynchrony,
}


def draw(
    results: Sequence[Row], out: Path, *, notice: str = "", skipped: dict[str, str] | None = None
) -> list[Path]:
    """Draw every figure for which there are cells, as PNG and SVG; the same rows give the same bytes.

    Parameters
    ----------
    results : sequence of dict
        Rows as `simulation.results.read_results` returns them.
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
        with style():
            try:
                paths += save(make(results, notice), out, name)
            except NoCells as reason:
                logger.info("figure %s skipped: %s", name, reason)
                if skipped is not None:
                    skipped[name] = str(reason)
    return paths
