"""The arguments of both strategies: typed, complete, checked, and told in the summary."""

import inspect
import logging
import re
from dataclasses import MISSING, fields

import numpy as np
import pytest
from flwr.server import strategy as classic
from flwr.serverapp import strategy as message

import flwr_mel
import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import Settings, Stopping
from flwr_mel.solvers import Exact

BOTH = {
    "classic": (flwr_mel.server.MelStrategy, classic.FedAvg),
    "message": (flwr_mel.serverapp.MelStrategy, message.FedAvg),
}


def make(api, **arguments):
    kind, inner = BOTH[api]
    return kind(inner(), **{"cycle_time_s": 10.0, **arguments})


@pytest.mark.parametrize("api", BOTH)
def test_every_setting_is_a_keyword_with_its_type_and_default(api):
    parameters = inspect.signature(BOTH[api][0]).parameters
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for field in fields(Settings):
        mine = parameters[field.name]
        assert mine.kind is mine.KEYWORD_ONLY
        assert mine.annotation is not mine.empty
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name == "stragglers":
            default = None  # the APIs' differ: one of them cannot span cycles
        assert mine.default == (mine.empty if default is MISSING else default)
    others = set(parameters) - {field.name for field in fields(Settings)}
    own = {"inner_strategy", "callbacks", "probe_timeout_s", "idle_timeout_s", "checkpoints", "resume"}
    assert others == own | {"keep_records", "names"}


@pytest.mark.parametrize("api", BOTH)
@pytest.mark.parametrize("name", ["epochs", "progress", "soonest", "cheapest", "per-cost:1,0.1"])
def test_an_objective_may_be_named_in_place_of_the_solver(api, name):
    assert make(api, solver=name).orchestrator.settings.solver == Exact(objective=name)
    with pytest.raises(ValueError, match="objective must be"):
        make(api, solver="accuracy")


@pytest.mark.parametrize("api", BOTH)
def test_errors_speak_of_the_strategy(api):
    kind, inner = BOTH[api]
    with pytest.raises(TypeError, match=r"MelStrategy\.__init__\(\) missing 1 required .*'inner_strategy'"):
        kind()
    with pytest.raises(TypeError, match=r"MelStrategy\.__init__\(\) got an unexpected .*'cycletime'"):
        kind(inner(), cycletime=3)


@pytest.mark.parametrize("api", BOTH)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs_key", 5),
        ("epochs_key", ""),
        ("samples_key", b"n"),
        ("enforce_deadline", "yes"),
        ("allow_insecure_shards", 1),
        ("stopping", 3),
        ("solver", Exact),
        ("workload", "mlp"),
        ("default_profile", {}),
        ("learning", "yes"),
        ("mode", "both"),
        ("on_infeasible", None),
        ("dataset", 7),
        ("cycle_time_s", "10"),
        ("total_samples", 1.5),
        ("staleness", True),
        ("seed", -1),
        ("callbacks", [1]),
        ("callbacks", 1),
        ("probe_timeout_s", "soon"),
        ("checkpoints", 3),
        ("resume", "no"),
    ],
)
def test_wrong_types_are_refused_by_name(api, name, value):
    more = {"mode": "parallelized"} if name == "dataset" else {}
    with pytest.raises(ValueError, match=rf"^{name} must be"):
        make(api, **{name: value, **more})


@pytest.mark.parametrize(("name", "value"), [("metric", 5), ("battery", "yes"), ("higher_is_better", 0)])
def test_criteria_are_checked_too(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        Stopping(**{name: value})


@pytest.mark.parametrize("api", BOTH)
def test_the_summary_tells_what_was_asked_for(api, caplog, monkeypatch):
    strategy = make(
        api,
        total_samples=6000,
        staleness=2,
        min_samples=5,
        max_samples=600,
        max_epochs=40,
        learning=Learning(on_time=0.9),
        solver=Exact(objective="progress"),
        enforce_deadline=True,
        stopping=Stopping(target=0.9),
    )
    told = []
    if api == "message":
        monkeypatch.setattr(strategy.strategy, "summary", lambda: told.append("inner"))
    # Flower's logger does not hand on, so the handler is put where it is.
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("flwr.mel"), "level", logging.INFO)
    monkeypatch.setattr(logging.getLogger("flwr.mel"), "_cache", {})
    with caplog.at_level(logging.INFO, "flwr.mel"):
        strategy.summary()
    for words in (
        "MelStrategy around FedAvg",
        "cycle time T: 10 s | samples d: 6,000 samples | staleness c: 2",
        "at least 5 samples each, at most 600, at most 40 epochs, replies within 12.5 s",
        "solver: Exact(objective=progress) | mode: federated",
        "learning: Learning(on_time=0.9) | average: samples",
        "of one learner: share of the weight bounded (auto), size of an update as it comes",
        "stopping: target=0.9",
    ):
        assert words in caplog.text
    assert told == (["inner"] if api == "message" else [])


#: Strategies of Flower whose updates are no arrays.
NO_ARRAYS = [
    *((api, name) for api in BOTH for name in ("FedXgbBagging", "FedXgbCyclic")),
    *(("classic", name) for name in ("FedXgbNnAvg", "FedAvgAndroid")),
]


@pytest.mark.parametrize(("api", "name"), NO_ARRAYS)
def test_strategies_without_arrays_are_refused_with_the_reason(api, name):
    kind = getattr(classic if api == "classic" else message, name)
    own = type("Mine", (kind,), {})
    for inner in (kind(), own()):
        with pytest.raises(flwr_mel.InputError) as caught:
            BOTH[api][0](inner, cycle_time_s=10.0)
        assert caught.value.field == "inner_strategy"
        who = name if type(inner) is kind else f"Mine, a {name}"
        start = f"inner_strategy must be a strategy whose updates are arrays, got {who}, whose updates are "
        assert re.fullmatch(rf"{start}(trees|buffers .*)\. Use it without MelStrategy\.", str(caught.value))


def test_measured_learners_are_public():
    assert flwr_mel.Measured(1, 2, 3, 4, 5, 6).c2 == 1
    assert np.isfinite(flwr_mel.Measured(1, 2, 3, 4, 5, 6).g0)
