"""Fleets of real phones, and links as they were measured."""

import numpy as np
import pytest
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.fleet import VirtualFleet
from mel_simulation.scenario.phones import MIDDLE_HZ, PhoneFleet, links, phones
from mel_simulation.scenario.traces import Traces

TRACE = "trace,mobility,second,down_kbit_s,up_kbit_s\n"


def test_the_tables_are_the_sources():
    scores = np.array([phone.score for phone in phones()])
    assert len(scores) == 333
    assert scores.max() / scores.min() == pytest.approx(41.05, abs=0.01)
    assert np.percentile(scores, [25, 50, 75]).tolist() == [568, 1548, 2154]
    assert len({phone.model for phone in phones()}) > 300
    assert all(2009 <= phone.year <= 2019 for phone in phones())
    assert len(links()) == 19
    assert links()[0] == pytest.approx((7491.4 * 8e3, 3369.3 * 8e3, 4935.2 * 8e3, 2767.3 * 8e3))


def test_one_seed_is_one_fleet_whose_links_change_from_cycle_to_cycle():
    fleet = PhoneFleet(3, 2000)
    first, again, second = fleet.devices(1), fleet.devices(1), fleet.devices(2)
    assert first == again
    assert [d.cpu_hz for d in first] == [d.cpu_hz for d in second]
    assert [d.name for d in first] == [d.name for d in second]
    assert [d.rate_bps for d in first] != [d.rate_bps for d in second]
    assert first != PhoneFleet(4, 2000).devices(1)
    hz = np.array([d.cpu_hz for d in first])
    assert np.median(hz) == pytest.approx(MIDDLE_HZ, rel=0.05)
    assert hz.max() / hz.min() == pytest.approx(41.05, abs=0.01)
    assert len({d.name for d in first}) == 2000
    assert len({d.joules_per_operation for d in first}) == 1
    # Means of the rates as they are published, less what slow moments cost.
    means = np.array([2 / (1 / down + 1 / up) for down, _, up, _ in links()])
    rates = np.mean([fleet.rates_bps(cycle) for cycle in range(1, 40)], axis=0)
    assert 0.5 * means.min() < rates.min()
    assert rates.max() < 1.3 * means.max()
    assert (fleet.rates_bps(1) > 0).all()


def test_a_larger_fleet_begins_with_the_same_models():
    few, more = PhoneFleet(0, 10).devices(), PhoneFleet(0, 100).devices()
    assert [d.cpu_hz for d in few] == [d.cpu_hz for d in more[:10]]


def test_a_trace_is_replayed_second_by_second():
    lines = [f"a,x,{t},{1000 * (t + 1)},{1000 * (t + 1)}\n" for t in range(6)]
    traces = Traces.parse([TRACE, *lines])
    begin = round(traces.rates_bps(5, 1, 1, 1.0)[0] / 1e6) - 1
    for cycle in range(1, 9):
        wanted = 1e6 * ((begin + cycle - 1) % 6 + 1)
        assert traces.rates_bps(5, 1, cycle, 1.0)[0] == pytest.approx(wanted)
    # Over two seconds the mean; down and up together where they differ.
    two = np.mean([begin + 1, (begin + 1) % 6 + 1])
    assert traces.rates_bps(5, 1, 1, 2.0)[0] == pytest.approx(1e6 * two)
    uneven = Traces.parse([TRACE, "a,x,0,3000,1000\n"])
    assert uneven.rates_bps(0, 1, 1, 1.0)[0] == pytest.approx(1.5e6)
    dead = Traces.parse([TRACE, "a,x,0,0,0\n"])
    assert dead.rates_bps(0, 1, 1, 1.0)[0] > 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "links must be a table with the columns trace, second"),
        ("trace,second\n1,2\n", "links must be a table with the columns"),
        (TRACE, "at least one line"),
        (TRACE + "0,x,0,fast,1\n", "line 2: down_kbit_s, up_kbit_s must be numbers of at least 0"),
        (TRACE + "0,x,0,1,1\n0,x,1,-1,1\n", "line 3"),
        (TRACE + "0,x,0,1\n", "line 2"),
    ],
)
def test_bad_traces_are_refused(text, says):
    with pytest.raises(ValueError, match=says):
        Traces.parse(text.splitlines(keepends=True), "t.csv")


def test_simulations_have_phones():
    config = RunConfig(phones=True, seed=4)
    assert VirtualFleet(7, config).devices(3) == PhoneFleet(4, 7).devices(3)
    with pytest.raises(ValueError, match="mobility must be left out with phones"):
        RunConfig(phones=True, mobility=3.0)
