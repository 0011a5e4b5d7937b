"""Bad input: always a ValueError that names the field, the rule and the value, before any work is done."""

import dataclasses
import math
import re
from fractions import Fraction

import numpy as np
import pytest

from flwr_mel import (
    AllocationProblem,
    Channel,
    Coefficients,
    Device,
    Handout,
    Infeasible,
    Reason,
    Status,
    Workload,
    allocate,
    fastest,
    greenest,
    paper_fleet,
    scheme,
)
from flwr_mel.allocation.handout import hand_out
from flwr_mel.allocation.screening import smallest
from flwr_mel.allocation.solution import Diagnosis, round_up
from flwr_mel.learners.channel import watts
from flwr_mel.learners.paper import draw_energy, place
from flwr_mel.solvers import EqualBatches, Exact, SuggestImprove

NAN, INF = math.nan, math.inf
HUGE = 10**5000  # Python refuses to print it
NOT_NUMBERS = ["5", b"5", None, True, np.True_, [5], (5,), {5}, {}, 5j, object(), float, np.array(5.0)]
NOT_FINITE = [NAN, INF, -INF, np.float64("nan"), 10**400, HUGE, Fraction(HUGE, 3)]
NOT_COUNTS = [1.5, NAN, INF, -1, 2**40 + 1, 2**63, HUGE, Fraction(1, 3), Fraction(HUGE, 3), np.float32(0.5)]


def device(**changes):
    return Device(**{"cpu_hz": 2.4e9, "rate_bps": 22e6, "tx_power_w": 0.2, **changes})


def workload(**changes):
    return Workload(**{"model_parameters": 100, "operations_per_sample": 400.0, "features": 10, **changes})


def coefficients(**changes):
    fields = {
        "c2": [1e-3, 2e-3],
        "c1": [0, 0],
        "c0": [0.1, 0.1],
        "g2": [1e-3, 1e-3],
        "g1": [0, 0],
        "g0": [0, 0],
    }
    return Coefficients(**{**fields, **changes})


def problem(**changes):
    fields = {"coefficients": coefficients(), "cycle_time_s": 10.0, "total_samples": 2000}
    return AllocationProblem(**{**fields, **changes})


def complaint(call, *args, **kwargs):
    """The message of the ValueError; anything else, warnings included, fails the test."""
    with pytest.raises(ValueError, match="must be") as caught:
        call(*args, **kwargs)
    text = str(caught.value)
    assert len(text) < 500
    assert "\n" not in text
    return text


def names(text, field, value):
    """Field first, then the rule, then the value."""
    assert re.match(rf"{re.escape(field)}(\[\d+\])? must be \S.*, got \S", text), text
    try:
        shown = repr(value)
    except ValueError:
        shown = "thousands of digits"
    assert shown[:20] in text or f"{len(shown):,} characters" in text or "values" in text, text


NUMBERS = [  # build, field, too small, None allowed
    (device, "cpu_hz", [0, -1.0], False),
    (device, "rate_bps", [0, 0.0, -1], False),
    (device, "tx_power_w", [-0.1], False),
    (device, "energy_limit_j", [0, -1], True),
    (device, "capacitance", [-1e-28], False),
    (device, "exponent", [-1], False),
    (workload, "operations_per_sample", [0, -4], False),
    (workload, "bits_per_feature", [0, -8], False),
    (workload, "bits_per_parameter", [0, -32], False),
    (workload, "parameters_per_sample", [-1], False),
    (workload, "label_bits", [-1], False),
    (workload, "model_compression", [0, -1], False),
    (workload, "data_compression", [0, -1], False),
    (Channel, "bandwidth_hz", [0, -5e6], False),
    (Channel, "noise_dbm_per_hz", [], False),
    (Channel, "loss_at_1km_db", [], False),
    (Channel, "loss_per_decade_db", [-1], False),
    (problem, "cycle_time_s", [0, -10], False),
]
COUNTS = [
    (device, "max_samples", [-1], True),
    (workload, "model_parameters", [0], False),
    (workload, "features", [0], False),
    (problem, "total_samples", [0], False),
    (problem, "staleness", [-1], False),
    (problem, "min_samples", [0], False),
    (problem, "max_epochs", [0], True),
    (Exact, "core", [0], False),
]


def table(rows, wrong):
    for build, field, small, optional in rows:
        for value in [*wrong, *NOT_NUMBERS, *small]:
            if not (optional and value is None):
                yield pytest.param(build, field, value, id=f"{build.__name__}-{field}-{type(value).__name__}")


@pytest.mark.parametrize(
    ("build", "field", "value"), [*table(NUMBERS, NOT_FINITE), *table(COUNTS, NOT_COUNTS)]
)
def test_a_single_value(build, field, value):
    names(complaint(build, **{field: value}), field, value)


@pytest.mark.parametrize("field", ["c2", "c1", "c0", "g2", "g1", "g0"])
def test_coefficients(field):
    low = [-1e-9, -INF] + ([0, 0.0] if field == "c2" else [])
    for bad in [*NOT_FINITE, *NOT_NUMBERS, *low]:
        text = complaint(coefficients, **{field: [1.0, bad]})
        names(text, field, bad)
        assert text.startswith(f"{field}[1] must be")
    for bad in [-1.0, NAN, INF, -INF]:
        assert complaint(coefficients, **{field: np.array([1.0, bad])}).startswith(f"{field}[1] must be")
    if np.finfo(np.longdouble).max > np.finfo(float).max:
        assert "finite" in complaint(coefficients, **{field: np.array([1, "1e4000"], dtype=np.longdouble)})
    for bad in [None, 5, 5.0, "12", b"12", {1.0, 2.0}, {"a": 1}, iter([1.0, 2.0]), object()]:
        names(complaint(coefficients, **{field: bad}), field, bad)
    for bad in [np.array(1.0), np.ones((2, 1)), np.array(None)]:
        assert "one-dimensional" in complaint(coefficients, **{field: bad})
    for bad in [np.array([True, True]), np.array([2j, 2j]), np.array(["2", "2"]), np.array([1, None])]:
        names(complaint(coefficients, **{field: bad}), field, bad[1])
    if field != "c2":
        for bad in [[1.0], [1.0] * 3, np.ones(3), []]:
            text = complaint(coefficients, **{field: bad})
            assert text == f"{field} must be one value per learner (2), got '{len(bad)} values'"


def test_an_empty_fleet():
    for nobody in [[], (), np.array([])]:
        assert "empty fleet" in complaint(Coefficients, nobody, [], [], [], [], [])
    assert complaint(Coefficients.from_devices, [], workload()) == (
        "devices must be at least one device, got 'an empty fleet'"
    )
    text = complaint(AllocationProblem.from_devices, [], workload(), cycle_time_s=1, total_samples=1)
    assert "empty fleet" in text


@pytest.mark.parametrize("bad", [None, 5, "phone", {"cpu_hz": 1}, object(), iter([])])
def test_wrong_types_in_place_of_objects(bad):
    names(complaint(Coefficients.from_devices, bad, workload()), "devices", bad)
    names(complaint(Coefficients.from_devices, [device(), bad], workload()), "devices", bad)
    names(complaint(Coefficients.from_devices, [device()], bad), "workload", bad)
    names(complaint(problem, coefficients=bad), "coefficients", bad)
    names(complaint(allocate, bad, Exact()), "problem", bad)
    names(complaint(allocate, problem(), bad), "solver", bad)
    names(complaint(fastest, bad, 1), "problem", bad)
    names(complaint(greenest, bad, 1), "problem", bad)
    names(complaint(paper_fleet, bad), "rng", bad)
    if bad is not None:
        names(complaint(paper_fleet, np.random.default_rng(0), channel=bad), "channel", bad)
        names(complaint(scheme, "ha-asyn", solver=bad), "solver", bad)


def test_a_class_is_not_a_solver():
    assert "such as Exact()" in complaint(allocate, problem(), Exact)
    assert "such as Exact()" in complaint(scheme, "ha-sync", solver=Exact)


ENERGY = [*NOT_FINITE, *(x for x in NOT_NUMBERS if x is not None), 0, -1.0]
SAMPLES = [*NOT_COUNTS, *(x for x in NOT_NUMBERS if x is not None)]


@pytest.mark.parametrize(("field", "wrong"), [("energy_limit_j", ENERGY), ("max_samples", SAMPLES)])
def test_limits_per_learner(field, wrong):
    for bad in wrong:
        names(complaint(problem, **{field: [None, bad]}), field, bad)
        if np.isscalar(bad):
            names(complaint(problem, **{field: bad}), field, bad)
    for bad in [[5], [5] * 3, np.full(3, 5), [], (None,), np.array([None, 5, 5])]:
        assert "one value per learner (2)" in complaint(problem, **{field: bad})
    for bad in [np.array(5), np.array(None), np.full((2, 2), 5), np.array([[None], [5]])]:
        assert "one-dimensional" in complaint(problem, **{field: bad})
    for bad in [{5, 6}, {0: 5, 1: 5}, object(), iter([5, 5])]:
        names(complaint(problem, **{field: bad}), field, bad)
    for good in [None, 5, [5, None], (5, 5.0), np.array([5, 6]), np.array([5, None], dtype=object)]:
        assert len(getattr(problem(**{field: good}), field)) == 2


def test_values_that_contradict_each_other():
    text = complaint(problem, total_samples=199, min_samples=100)
    assert text.startswith("total_samples must be at least learners * min_samples = 2 * 100 = 200, got 199.")
    assert "finite" in complaint(device, exponent=1000)
    assert "finite" in complaint(device, capacitance=1e300, exponent=3)
    text = complaint(problem, cycle_time_s=1e300)
    assert "2**53" in text
    assert "1e+300" in text
    tiny = coefficients(c2=[5e-324, 1.0])
    assert "2**53" in complaint(problem, coefficients=tiny)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bits_per_parameter": 1e308}, "model_parameters * bits_per_parameter * model_compression"),
        ({"bits_per_parameter": 10**307}, "model_parameters * bits_per_parameter * model_compression"),
        ({"parameters_per_sample": 1e308}, "parameters_per_sample * bits_per_parameter * model_compression"),
        ({"bits_per_feature": 1e308}, "(features * bits_per_feature + label_bits) * data_compression"),
        ({"label_bits": 1e308, "data_compression": 10}, "(features * bits_per_feature + label_bits)"),
    ],
)
def test_a_workload_that_overflows(changes, field):
    text = complaint(workload, **changes)
    assert text.startswith(field)
    assert text.endswith("got inf")


@pytest.mark.parametrize(
    ("changes", "job", "field"),
    [
        ({"cpu_hz": 5e-324}, {}, "c2"),
        ({"cpu_hz": 1e300, "exponent": 0}, {"operations_per_sample": 1e-300}, "c2"),  # underflows to 0
        ({"rate_bps": 5e-324}, {}, "c1"),
        ({"rate_bps": 1e-300}, {"ship_data": False, "bits_per_parameter": 1e10}, "c0"),
        ({"capacitance": 1e280}, {"operations_per_sample": 1e300}, "g2"),
        ({"tx_power_w": 1e308}, {"bits_per_parameter": 1e100}, "g0"),
    ],
)
def test_devices_whose_costs_overflow(changes, job, field):
    assert complaint(Coefficients.from_devices, [device(**changes)], workload(**job)).startswith(
        f"{field}[0]"
    )


@pytest.mark.parametrize(
    "layers", [None, 5, "784", {784, 10}, (), (784,), (784, 0), (784, -1), (7.5, 1), (True, 1)]
)
def test_layers(layers):
    assert complaint(Workload.mlp, layers).startswith("layers")


def test_layers_that_overflow():
    assert complaint(Workload.mlp, (2**40, 2**40)).startswith("model_parameters must be an integer")
    assert complaint(Workload.mlp, (2**41, 1)).startswith("layers[0] must be an integer from 1 to 2**40")


@pytest.mark.parametrize("bad", [1, 0, None, "yes", np.True_])
def test_ship_data_is_a_choice(bad):
    names(complaint(workload, ship_data=bad), "ship_data", bad)


@pytest.mark.parametrize("bad", [5, None, b"x", ["x"]])
def test_device_name(bad):
    names(complaint(device, name=bad), "name", bad)


def test_channel():
    channel = Channel()
    for bad in [*NOT_FINITE, *NOT_NUMBERS, 0, -5]:
        names(complaint(channel.rate_bps, bad, 0.2), "distance_m", bad)
        names(complaint(channel.rate_bps, 100, bad), "tx_power_w", bad)
        names(complaint(channel.attenuation_db, bad), "distance_m", bad)
    for distance in (1e99, 5e-324):  # nothing arrives; beyond every float
        assert complaint(channel.rate_bps, distance, 0.2).startswith("distance_m must be such that the rate")
    for noise in (1e6, -1e6, 3080):
        names(complaint(Channel, noise_dbm_per_hz=noise), "noise_dbm_per_hz", noise)
    for bad in [*NOT_FINITE, *NOT_NUMBERS, 1e9]:
        names(complaint(watts, bad), "dbm", bad)
    assert watts(-1e9) == 0.0


def test_the_paper_fleet():
    rng = np.random.default_rng(0)
    for bad in [0, *NOT_COUNTS, *NOT_NUMBERS]:
        names(complaint(paper_fleet, rng, bad), "learners", bad)
        names(complaint(place, rng, bad), "learners", bad)
        names(complaint(draw_energy, rng, bad, 10, 2), "learners", bad)
    for bad in [0, 1, *NOT_FINITE, *NOT_NUMBERS]:
        names(complaint(paper_fleet, rng, radius_m=bad), "radius_m", bad)
    for bad in [0, -1, *NOT_FINITE, *(x for x in NOT_NUMBERS if x is not None)]:
        names(complaint(paper_fleet, rng, energy_j=bad), "mean_j", bad)
    for bad in [-1, 10.0, *NOT_FINITE, *NOT_NUMBERS]:
        names(complaint(paper_fleet, rng, energy_spread_j=bad), "spread_j", bad)


@pytest.mark.parametrize("bad", ["", "HA", "ha_asyn", "sync", None, 5, [], True, b"ha-sync", NAN])
def test_scheme_names(bad):
    text = complaint(scheme, bad)
    names(text, "scheme", bad)
    assert "ha-asyn, ha-sync, hu-asyn, hu-sync" in text


@pytest.mark.parametrize("name", ["ha-asyn", "hu-asyn", "ha-sync", "hu-sync"])
def test_scheme_staleness(name):
    for bad in [*NOT_COUNTS, *(x for x in NOT_NUMBERS if x is not None), "", [], False]:
        names(complaint(scheme, name, bad), "staleness", bad)
    if name.endswith("sync"):
        assert complaint(scheme, name, 1) == f"staleness must be 0 for the synchronous scheme {name}, got 1"
        assert scheme(name, 0).staleness == scheme(name).staleness == 0
    else:
        assert scheme(name, 3).staleness == 3
        assert scheme(name).staleness == 1


def test_scheme_solvers():
    assert "which has equal batches" in complaint(scheme, "hu-sync", solver=Exact())
    assert "heterogeneity-aware" in complaint(scheme, "ha-asyn", solver=EqualBatches())
    assert scheme("ha-asyn", solver=Exact(handout="even")).solver == Exact(handout="even")


@pytest.mark.parametrize("bad", ["", "Even", "most", None, 5, True, ["even"], NAN])
@pytest.mark.parametrize(
    ("build", "field"),
    [
        (Exact, "handout"),
        (Exact, "exclude"),
        (Exact, "tie_break"),
        (SuggestImprove, "suggest"),
        (SuggestImprove, "handout"),
    ],
)
def test_solver_options(build, field, bad):
    text = complaint(build, **{field: bad})
    names(text, field, bad)
    assert "one of '" in text


@pytest.mark.parametrize("bad", ["", "Even", None, 5, True, NAN])
def test_handout(bad):
    text = complaint(Handout, bad)
    assert text == f"handout must be one of 'proportional', 'even', 'strongest-first', got {bad!r}"
    caps = np.array([5, 5])
    names(complaint(hand_out, bad, 4, caps, 1, caps), "handout", bad)


@pytest.mark.parametrize("rule", [*Handout, "even"])
def test_hand_out_refuses_what_does_not_fit(rule):
    ones = np.ones(2, dtype=np.int64)
    for total, caps, least in [
        (11, [5, 5], 1),
        (1, [5, 5], 1),
        (6, [5, 5], 6),
        (4, [5, 1], 2),
        (-1, [5, 5], 0),
    ]:
        names(complaint(hand_out, rule, total, np.array(caps), least, ones), "total", total)


@pytest.mark.parametrize("question", [fastest, greenest])
def test_fixed_epochs(question):
    for bad in [0, *NOT_COUNTS, *NOT_NUMBERS]:
        entry = [1, bad]
        names(complaint(question, problem(), entry), "epochs", bad)
        if bad is None or np.isscalar(bad):
            names(complaint(question, problem(), bad), "epochs", bad)
    for bad in [[1], [1, 1, 1], np.ones(3, dtype=int), []]:
        assert "one value per learner (2)" in complaint(question, problem(), bad)
    for bad in [np.ones((2, 1), dtype=int), np.array(5)]:
        assert "one-dimensional" in complaint(question, problem(), bad)
    assert "2**53" in complaint(question, problem(total_samples=2**40), 2**40)


def test_the_solvers_refuse_a_table_that_does_not_fit():
    costs = Coefficients([1e-9, 1e-9], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0])
    wide = AllocationProblem(costs, 1000.0, total_samples=2, staleness=2**40)
    assert "staleness must be small enough" in complaint(allocate, wide, Exact())
    assert "Lower it, or set max_epochs" in complaint(allocate, wide, Exact())
    # Few rows, but epochs times samples beyond what int64 arithmetic on scores can take.
    deep = AllocationProblem(costs, 9000.0, total_samples=10**12, staleness=10**6)
    assert "staleness must be small enough" in complaint(allocate, deep, Exact())
    assert allocate(deep.replace(staleness=1000), Exact()).status is Status.OPTIMAL


def test_overflow_sized_numbers_that_are_legal():
    """Costs near the end of float64 exclude a learner or everybody; no warning, no wrong answer."""
    costs = coefficients(c2=[1e-3, 1e308], c1=[0, 1e308], g2=[1e-3, 1e308])
    solution = allocate(problem(coefficients=costs), Exact())
    assert solution.excluded == {1: Reason.MIN_BATCH_TIME}
    slow = AllocationProblem(coefficients(c2=[1e300, 1e300]), 1.7e308, total_samples=2**40, staleness=2)
    for solver in (Exact(), EqualBatches()):
        assert allocate(slow, solver, throw=False).diagnosis.cycle_time_s is None
    with pytest.raises(Infeasible, match="no cycle time is long enough"):
        fastest(problem(coefficients=coefficients(c2=[1e308, 1e308])), 5)
    many = AllocationProblem(coefficients(), 1e12, total_samples=2**40, min_samples=2**39, max_samples=2**40)
    assert allocate(many, Exact()).samples.tolist() == [2**39, 2**39]
    no_energy = coefficients(g2=[0, 0])
    assert fastest(AllocationProblem(no_energy, 10.0, total_samples=2), 2**40).samples.tolist() == [1, 1]


def test_replace():
    p = problem(energy_limit_j=[5, None], max_samples=[7000, None])
    with pytest.raises(TypeError, match="no field 'cycle_time'; it has coefficients, cycle_time_s"):
        p.replace(cycle_time=5)
    same = p.replace(staleness=3)
    assert same.staleness == 3
    assert same.energy_limit_j.tolist() == [5, INF]
    assert same.max_samples.tolist() == p.max_samples.tolist()
    names(complaint(p.replace, staleness=-1), "staleness", -1)
    three = Coefficients(*[[1.0] * 3] * 6)
    for limits in ([5, None], [5, 5], None):
        text = complaint(problem(energy_limit_j=limits or [None, 5]).replace, coefficients=three)
        assert "one value per learner (3), got '2 values'" in text


ARRAYS = {
    "coefficients": lambda: [getattr(coefficients(), n) for n in ("c2", "c1", "c0", "g2", "g1", "g0")],
    "some coefficients": lambda: [coefficients().take([0]).c2],
    "problem": lambda: [problem().energy_limit_j, problem().max_samples],
    "listed limits": lambda: [
        problem(energy_limit_j=[1, None]).energy_limit_j,
        problem(max_samples=[1, 2]).max_samples,
    ],
    "solution": lambda: _arrays(allocate(problem(), Exact())),
    "equal": lambda: _arrays(allocate(problem(), EqualBatches())),
    "infeasible": lambda: _arrays(allocate(problem(total_samples=10**9), Exact(), throw=False)),
    "fastest": lambda: _arrays(fastest(problem(), 2)),
    "greenest": lambda: _arrays(greenest(problem(), np.array([1, 2]))),
}


def _arrays(answer):
    return [answer.epochs, answer.samples, answer.time_s, answer.energy_j]


@pytest.mark.parametrize("what", ARRAYS)
def test_arrays_are_read_only(what):
    for array in ARRAYS[what]():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    "thing",
    [
        device(),
        workload(),
        Channel(),
        coefficients(),
        problem(),
        Exact(),
        EqualBatches(),
        SuggestImprove(),
        scheme("ha-asyn"),
        allocate(problem(), Exact()),
        fastest(problem(), 1),
        Diagnosis(10, 5, 1.0),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_objects_are_frozen(thing):
    for field in dataclasses.fields(thing):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, field.name, 1)
    assert not hasattr(thing, "__dict__")


def test_inputs_are_copied_and_left_alone():
    arrays = {n: np.array([1e-3, 2e-3]) for n in ("c2", "c1", "c0", "g2", "g1", "g0")}
    energy, most, epochs = np.array([50.0, 60.0]), np.array([3000, 4000]), np.array([1, 2])
    before = {n: a.copy() for n, a in arrays.items()}
    p = AllocationProblem(
        Coefficients(**arrays), 10.0, energy, total_samples=2000, max_samples=most, staleness=1
    )
    allocate(p, Exact())
    plan = fastest(p, epochs)
    greenest(p, epochs)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])
        array[:] = -1  # still ours to change, and nobody else sees it
        np.testing.assert_array_equal(getattr(p.coefficients, name), before[name])
    for array in (energy, most, epochs):
        array[:] = -1
    assert p.energy_limit_j.tolist() == [50.0, 60.0]
    assert p.max_samples.tolist() == [3000, 4000]
    assert plan.epochs.tolist() == [1, 2]


def test_equal_numbers_of_other_types_are_the_same():
    assert device(cpu_hz=np.float32(1e9), max_samples=np.int64(5)) == device(cpu_hz=10**9, max_samples=5.0)
    assert type(device(max_samples=5.0).max_samples) is int
    assert workload(features=np.int32(10), bits_per_feature=Fraction(8)) == workload()
    assert Exact(core=5.0) == Exact(core=5)
    assert type(problem(total_samples=2000.0).total_samples) is int


@pytest.mark.parametrize(
    "x", [1.0, 1 + 2**-52, 9.9999951, 99999.95, 123456.4, 1 / 3, 2e-310, 1e22, 1.7e308, 5e-324]
)
def test_a_smallest_cycle_time_is_never_rounded_down(x):
    shown = float(round_up(x))
    assert shown >= x
    assert shown <= x * (1 + 1e-5) or x < 1e-300
    assert f"works is {round_up(x)} s" in str(Diagnosis(10, 5, x))


def test_the_shown_cycle_time_works_when_typed_back_in():
    rng = np.random.default_rng(0)
    for _ in range(20):
        costs = Coefficients(rng.uniform(1e-3, 1e-2, 3), *[rng.uniform(0, 1e-2, 3) for _ in range(5)])
        tight = AllocationProblem(costs, 0.5, total_samples=5000)
        diagnosis = allocate(tight, Exact(), throw=False).diagnosis
        shown = re.search(r"works is (\S+) s", str(diagnosis))
        assert shown
        assert allocate(tight.replace(cycle_time_s=float(shown[1])), Exact()).status.ok


def test_smallest_is_exact_and_knows_never():
    assert smallest(1.0, lambda x: x >= 1e-300) == 1e-300
    assert smallest(1.0, lambda x: x >= 12345.678) == 12345.678
    assert smallest(1.0, lambda _: False) is None
    assert smallest(1.0, math.isinf) is None
