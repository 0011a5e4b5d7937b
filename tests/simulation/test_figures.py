"""Figures from results: all there, readable files, the same bytes twice, and what is missing is said."""

import logging
from itertools import product

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.text import Text
from mel_simulation.paper import rows as cells_
from mel_simulation.paper.figures import FIGURES, TITLES, asynchrony, draw, schemes, style
from mel_simulation.paper.figures.style import _percent_ticks
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.schedule import facts, plan_schedule

NOTICE = "EMBEDDED SUBSET: some digits"
BASE = {"cycles": 6, "learners": 20, "energy": 10.0}


def _row(**keys):
    """Plan a cell for real; its accuracy is MADE UP from the work done, to have something to draw."""
    cell = Cell.parse({**BASE, **{key.replace("_", "-"): value for key, value in keys.items()}})
    script = plan_schedule(cell, 20)
    acts = [facts(act) for act in script.cycles]
    rng = np.random.default_rng(cell.config.seed)
    done = np.cumsum([act["progress"] for act in acts])
    curve = [float(0.985 - 0.5 / (1 + (work / 120) ** 1.2) - 0.004 * rng.random()) for work in done]
    about = {"cell": cell.key, "config": cell.as_dict(), "trouble": script.trouble}
    return {**about, "acts": acts, "accuracy": curve, "loss": [1 - a for a in curve]}


@pytest.fixture(scope="module")
def rows():
    asyn = [{"scheme": name, "staleness": c} for name, c in (("ha-asyn", 0), ("ha-asyn", 2), ("hu-asyn", 2))]
    schemes = [{"scheme": "ha-sync"}, *asyn, {"scheme": "hu-sync"}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_MEL_OFFLINE", "1")
        made = [
            _row(**scheme, cycle_time=time, seed=seed)
            for scheme, (time, seed) in product(schemes, ((10.0, 0), (10.0, 1), (20.0, 0)))
        ]
        made += [_row(handout="strongest-first", staleness=c) for c in (0, 2)]
        made += [_row(average="nova")]
        made += [_row(baseline=name, epochs=2) for name in ("fedavg", "fedavg-drop", "fedprox", "partial")]
        made += [_row(mode="fl", alpha=0.5, handout=rule) for rule in ("proportional", "strongest-first")]
    return made


@pytest.fixture(scope="module")
def drawing(rows, tmp_path_factory):
    """The files, and the figures that were written to them."""
    figures, save = [], style.save
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "save", lambda figure, *where: figures.append(figure) or save(figure, *where))
        return draw(rows, tmp_path_factory.mktemp("figures"), notice=NOTICE), figures


@pytest.fixture(scope="module")
def drawn(drawing):
    return drawing[0]


def test_every_figure_is_drawn(drawn):
    assert [path.name for path in drawn] == [f"{name}.png" for name in FIGURES]


def test_every_figure_says_what_it_is_about(drawing):
    assert set(TITLES) == set(FIGURES)
    assert len(set(TITLES.values())) == len(TITLES)
    for name, figure in zip(FIGURES, drawing[1], strict=True):
        words = " ".join(text.get_text() for text in figure.findobj(Text)).split()
        assert " ".join(TITLES[name].split()) in " ".join(words)
        assert "HA:" in words


def test_files_are_of_print_size_small_and_not_empty(drawn):
    for path in drawn:
        image = imread(path)[..., :3]
        assert image.shape[1] >= 200 * 3.5
        assert 0.01 < (image.min(axis=2) < 0.9).mean() < 0.5, path
        assert path.stat().st_size < 150_000


@pytest.mark.slow
def test_a_second_call_gives_the_same_bytes_whatever_the_users_settings(rows, drawn, tmp_path):
    before = mpl.rcParams["font.size"]
    with mpl.rc_context({"font.size": 17, "savefig.dpi": 50}):
        again = draw(rows, tmp_path, notice=NOTICE)
        assert mpl.rcParams["font.size"] == 17
    assert mpl.rcParams["font.size"] == before
    assert [path.read_bytes() for path in drawn] == [path.read_bytes() for path in again]


def test_missing_cells_are_said(rows, tmp_path, caplog):
    only = [row for row in rows if row["config"]["scheme"] == "ha-sync"]
    skipped = {}
    with caplog.at_level(logging.INFO):
        paths = draw(only, tmp_path, skipped=skipped)
    assert {path.stem for path in paths} | set(skipped) == set(FIGURES)
    assert "Asyn" in skipped["convergence_check"]
    assert "baselines" in skipped["cost_to_accuracy"]
    assert "figure baselines skipped" in caplog.text


def test_no_results_no_figures(tmp_path):
    skipped = {}
    assert draw([], tmp_path / "none", skipped=skipped) == []
    assert set(skipped) == set(FIGURES)
    assert not (tmp_path / "none").exists()


def _words(figure):
    legends = [legend.get_title().get_text() for legend in figure.legends]
    return " ".join([*legends, figure.get_supxlabel()])


def test_the_check_of_c0_tells_equal_curves_from_unequal_ones(rows):
    assert "3 pairs of cells, largest difference 0 points" in _words(asynchrony.convergence_check(rows))
    spoilt = [dict(row) for row in rows]
    for row in spoilt:
        if row["config"]["scheme"] == "ha-sync":
            row["accuracy"] = [a - 0.01 for a in row["accuracy"]]
    assert "largest difference 1 points" in _words(asynchrony.convergence_check(spoilt))


def test_footers_say_what_was_used(rows):
    text = _words(schemes.final_accuracy(rows, "EMBEDDED SUBSET"))
    used = ("MNIST (embedded subset)", "d = 4,000", "K = 20", "6 cycles", "2 seeds")
    for word in (*used, "HU-Sync c=0 at E=10, every T"):
        assert word in text.replace("\n", " ")
    assert "embedded" not in _words(schemes.final_accuracy(rows))


def test_sync_and_asyn_with_c0_count_once_per_seed(rows):
    one = [row for row in cells_.plain(rows) if cells_.setting(row) == (10.0, 10.0)]
    groups = cells_.scheme_rows(cells_.trained(one))
    assert {key: len(group) for key, group in groups.items()} == {("HA", 0): 2, ("HA", 2): 2, ("HU", 2): 2}


def test_cycles_and_costs_to_a_target():
    acts = [{"makespan_s": 8.0, "energy_j": 70.0}, {"makespan_s": 9.0, "energy_j": 80.0}]
    row = {"accuracy": [0.9, 0.96], "acts": acts}
    assert cells_.cycles_to(row, 0.96) == 2
    assert cells_.cost_to(row, 0.96, "makespan_s") == 17
    assert cells_.cost_to(row, 0.9, "energy_j") == 70
    assert cells_.cost_to(row, 0.97, "energy_j") == np.inf
    assert cells_.median([3.0, np.inf, np.inf]) == np.inf


def test_the_gain_ratio_is_what_rounding_down_loses():
    row = {"acts": [{"relaxed": 2.8}, {"relaxed": 3.0}, {"relaxed": 0.0}]}
    assert cells_.gain_ratio(row) == pytest.approx((1.4 + 1.0) / 2)
    assert np.isnan(cells_.gain_ratio({"acts": [{"relaxed": 0.0}]}))


@pytest.mark.parametrize("limits", [(0.1, 0.98), (0.7, 0.92), (0.86, 0.93), (0.93, 0.975), (0.966, 0.974)])
def test_accuracy_axes_have_some_round_ticks(limits):
    ticks = _percent_ticks(*limits)
    assert 3 <= len(ticks) <= 7
    assert all(limits[0] <= tick <= limits[1] for tick in ticks)
