"""Wrong options are named, with the value received."""

import numpy as np
import pytest

from flwr_mel import Device, Estimation, Robust, Rounds, Shards
from flwr_mel.cycle.options import Average, OnInfeasible, Options
from flwr_mel.solvers import EqualBatches, Rate

X, Y = np.zeros((4, 2)), np.arange(4)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Options, {"cycle_time_s": 0}),
        (Options, {"cycle_time_s": "fast"}),
        (Options, {"total_samples": 0}),
        (Options, {"staleness": -1}),
        (Options, {"min_samples": True}),
        (Options, {"max_epochs": 0}),
        (Options, {"solver": 3}),
        (Options, {"average": "median"}),
        (Options, {"workload": (784, 10)}),
        (Options, {"default_device": 3}),
        (Options, {"shards": (X, Y)}),
        (Options, {"estimation": True}),
        (Options, {"robust": None}),
        (Options, {"rounds": 3}),
        (Options, {"seed": -1}),
        (Rounds, {"deadline_slack": -0.1}),
        (Rounds, {"deadline_slack": "never"}),
        (Rounds, {"probe_timeout_s": 0}),
        (Rounds, {"on_infeasible": "panic"}),
        (Rounds, {"epochs_key": ""}),
        (Robust, {"max_share": 1.1}),
        (Robust, {"max_share": 0}),
        (Robust, {"max_samples": 0}),
        (Robust, {"max_norm_ratio": 0.5}),
        (Estimation, {"on_time": 1.0}),
        (Estimation, {"noise": 0}),
        (Estimation, {"noise": 3}),
        (Estimation, {"memory": 1}),
    ],
)
def test_a_wrong_option_is_named(kind, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=name) as caught:
        kind(**wrong)
    assert str(value)[:10] in str(caught.value)


@pytest.mark.parametrize(
    "arrays", [(), X, (X, np.arange(3)), (np.zeros((0, 2)),), ([1, 2],), (np.array([{}]),), (np.array(3.0),)]
)
def test_shards_are_arrays_of_one_length(arrays):
    with pytest.raises(ValueError, match="shards"):
        Shards(arrays)


def test_options_that_belong_together():
    with pytest.raises(ValueError, match="workload"):
        Options(default_device=Device(1e9, 1e6, 0.1))
    with pytest.raises(ValueError, match="total_samples"):
        Options(shards=Shards((X, Y)), total_samples=5, cycle_time_s=1.0)
    with pytest.raises(ValueError, match="cycle_time_s must be given with shards"):
        Options(shards=Shards((X, Y)))
    with pytest.raises(ValueError, match="min_samples"):
        Options(total_samples=5, min_samples=6)
    with pytest.raises(ValueError, match=r"cycle_time_s must be 'best' with solver=Rate"):
        Options(solver=Rate(), cycle_time_s=1.0)
    with pytest.raises(ValueError, match="solver must be Rate"):
        Options(solver=EqualBatches(), cycle_time_s="best")
    with pytest.raises(ValueError, match="total_samples must be left out"):
        Options(total_samples=5, cycle_time_s="best")


def test_names_become_members():
    options = Options(average="nova", rounds=Rounds(on_infeasible="skip"))
    assert options.average is Average.NOVA
    assert options.rounds.on_infeasible is OnInfeasible.SKIP
    with pytest.raises(ValueError, match=r"solver must be a solver object such as Exact\(\), or Rate"):
        Options(solver="epochs")


def test_the_deadline():
    for simulated in (False, True):
        assert Options(rounds=Rounds(deadline_slack=None)).deadline_s(4.0, simulated=simulated) is None
        given = Options(rounds=Rounds(deadline_slack=0.25))
        assert given.deadline_s(4.0, simulated=simulated) == 5.0
        assert given.deadline_s(0.0, simulated=simulated) is None


def test_the_default_deadline_drops_what_hangs_and_only_in_a_deployment():
    assert Options().deadline_s(4.0, simulated=False) == 12.0
    assert Options().deadline_s(0.0, simulated=False) is None
    assert Options().deadline_s(4.0, simulated=True) is None


def test_how_costs_are_learned():
    """A quantile where T is given; expected times where it is derived, or the client stops in time."""
    assert Options(cycle_time_s=1.0).learning(declared=False) == Estimation()
    assert Options().learning(declared=False) == Estimation(on_time=0.5)
    assert Options(cycle_time_s=1.0).learning(declared=False, stops=True) == Estimation(on_time=0.5)
    assert Options(cycle_time_s=1.0).learning(declared=True) is None
    safe = Estimation(on_time=0.9, noise=0.2)
    assert Options(estimation=safe).learning(declared=True) == safe
    assert Options(estimation=safe).learning(declared=True, stops=True) == Estimation(on_time=0.5, noise=0.2)
