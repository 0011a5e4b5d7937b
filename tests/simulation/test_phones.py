"""Fleets of real phones."""

import numpy as np
import pytest
from mel_simulation.scenario.phones import MIDDLE_HZ, links, phone_fleet, phones


def test_the_tables_are_the_sources():
    scores = np.array([score for _, score in phones()])
    assert len(scores) == 333
    assert scores.max() / scores.min() == pytest.approx(41.05, abs=0.01)
    assert np.percentile(scores, [25, 50, 75]).tolist() == [568, 1548, 2154]
    assert len({model for model, _ in phones()}) > 300
    assert len(links()) == 19
    assert links()[0] == pytest.approx([7491.4 * 8e3, 3369.3 * 8e3, 4935.2 * 8e3, 2767.3 * 8e3])


def test_one_seed_is_one_fleet():
    first = phone_fleet(3, 2000)
    assert first == phone_fleet(3, 2000) != phone_fleet(4, 2000)
    hz = np.array([d.cpu_hz for d in first])
    assert np.median(hz) == pytest.approx(MIDDLE_HZ, rel=0.05)
    assert hz.max() / hz.min() == pytest.approx(41.05, abs=0.01)
    assert len({d.name for d in first}) == 2000
    # Means of the rates as they are published, less what slow moments cost.
    means = np.array([2 / (1 / down + 1 / up) for down, _, up, _ in links()])
    rates = np.array([d.rate_bps for d in first])
    assert 0.7 * means.mean() < rates.mean() < means.mean()
    assert rates.min() > 0
