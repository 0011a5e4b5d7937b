"""Axes, numbers and labels."""

import math

import numpy as np

from flwr_mel.records import CycleRecord, LearnerRecord
from flwr_mel.report import load_run
from flwr_mel.report.axis import cycles_axis, fit
from flwr_mel.report.charts import spread
from flwr_mel.report.ledger import ledger
from flwr_mel.report.numerals import ranges, short, used
from flwr_mel.report.tables import learner_table
from tests.report.helpers import add


def test_axes_hold_their_values_with_round_ticks():
    rng = np.random.default_rng(0)
    for _ in range(300):
        values = rng.normal(size=5) * 10 ** rng.uniform(-8, 9)
        for tight in (False, True):
            axis = fit("x", values, zero=bool(rng.random() < 0.5), tight=tight)
            assert axis.low <= values.min() * (1 + 1e-9) + 1e-12 or axis.low <= values.min()
            assert axis.high >= values.max() or math.isclose(axis.high, values.max())
            assert 1 <= len(axis.ticks) <= 9
            assert len({text for _, text in axis.ticks}) == len(axis.ticks)
    assert fit("x", np.zeros(3), zero=True).ticks[0] == (0.0, "0.0")
    for last, ticks in (
        (12, [2, 4, 6, 8, 10, 12]),
        (6, [1, 2, 3, 4, 5, 6]),
        (11, [2, 4, 6, 8, 10]),
        (2, [1, 2]),
    ):
        assert [v for v, _ in cycles_axis(np.arange(1.0, last + 1)).ticks] == ticks
    assert [t for _, t in cycles_axis(np.arange(1.0, 31)).ticks] == ["1", "5", "10", "15", "20", "25", "30"]
    assert [t for _, t in fit("a", np.array([0.3, 0.95]), share=True, most=1.0).ticks][-1] == "100%"


def test_numbers_for_people():
    assert [short(x) for x in (0, 1234567, 0.5, 3.0, 1e-9, None, "x", math.nan)] == [
        "0", "1,234,567", "0.5", "3", "1e-09", "\u2013", "\u2013", "\u2013",
    ]  # fmt: skip
    assert used(0.99999) == "99%"
    assert used(1.0) == "100%"
    assert ranges([1, 2, 3, 7, 9, 10]) == "1\u20133, 7, 9\u201310"
    placed = spread([100, 101, 99, 100, 210], 210)
    assert min(np.diff(sorted(placed))) >= 15.9
    assert max(placed) <= 210


def test_the_table_says_what_part_of_the_model_a_learners_data_are(tmp_path):
    rows = [LearnerRecord("a", "1", share=0.25), LearnerRecord("b", "2", share=0.75)]
    run = load_run(add(tmp_path / "new", CycleRecord(1, 1.0, learners=rows)))
    text = str(learner_table(run, ledger(run)))
    assert "of the model" in text
    assert "25 %" in text
    assert "75 %" in text
    old = load_run(add(tmp_path / "old", CycleRecord(1, 1.0, learners=[LearnerRecord("a", "1")])))
    assert " %<" not in str(learner_table(old, ledger(old)))
