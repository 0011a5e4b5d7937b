"""Errors about input: one structure, options named by the field, nothing else in the text touched."""

import pickle

import numpy as np
import pytest

import flwr_mel
from flwr_mel import AllocationProblem, Coefficients, Device, InputError
from flwr_mel._validate import Phrase, complain
from flwr_mel.devices import Measured
from flwr_mel.fleets import Fleet, FleetError, parse_fleet, write_fleet
from tests.cli.tools import LIMITS, refused, run


def error_of(call, *args, **kwargs) -> InputError:
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    return caught.value


def test_the_parts_of_an_error_can_be_used():
    error = error_of(Device, cpu_hz=-1, rate_bps=1, tx_power_w=1)
    assert isinstance(error, ValueError)
    assert (error.field, error.rule, error.value) == ("cpu_hz", "a finite number > 0", -1)
    assert error.remedy == "Give operations per second, e.g. 2.4e9."
    assert str(error) == (
        "cpu_hz must be a finite number > 0, got -1. Give operations per second, e.g. 2.4e9."
    )


def test_entries_of_lists_have_their_index():
    flat = [np.ones(3)] * 5
    error = error_of(Coefficients, [1, 2, -3], *flat)
    assert (error.field, error.index, error.value) == ("c2", 2, -3)
    assert str(error).startswith("c2[2] must be")
    assert error.told({"c2": "--c2"}).startswith("--c2[2] must be")
    costs = Coefficients(np.ones(3), *flat)
    error = error_of(AllocationProblem, costs, 1.0, energy_limit_j=[1, None, 0], total_samples=9)
    assert (error.field, error.index) == ("energy_limit_j", 2)


def test_fields_in_rules_and_remedies_are_named_too_and_values_are_not():
    rule = Phrase("below {} = 3", "energy")
    error = complain("spread", rule, "energy spread", Phrase("Raise {} or lower {}.", "energy", "spread"))
    assert str(error) == "spread must be below energy = 3, got 'energy spread'. Raise energy or lower spread."
    assert error.told({"energy": "--energy", "spread": "--spread"}) == (
        "--spread must be below --energy = 3, got 'energy spread'. Raise --energy or lower --spread."
    )


def test_braces_in_texts_are_texts():
    error = complain("x", "{a}", "{b}", "{c} {}")
    assert error.told({"x": "--x"}) == "--x must be {a}, got '{b}'. {c} {}"
    odd = complain("x", "y", 1, Phrase("{}, or raise {}.", "{strange}", "x"))
    assert odd.told({"x": "--x"}) == "--x must be y, got 1. {strange}, or raise --x."


def test_fields_of_a_file_keep_their_names():
    error = complain("energy_limit_j", "positive", -1, where="fleet.toml, line 3")
    assert error.told({"energy_limit_j": "--energy"}) == str(error)
    assert str(error) == "fleet.toml, line 3: energy_limit_j must be positive, got -1"


@pytest.mark.parametrize("value", [3, "text", None, object(), np.arange(3)])
def test_errors_travel_between_processes(value):
    error = complain("a", Phrase("less than {}", "b"), value, "Do.", index=2)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.field, copy.index) == (str(error), "a", 2)
    assert copy.told({"b": "--b"}) == error.told({"b": "--b"})
    broken = error_of(parse_fleet, b"[[device]]\ncpu_hz = -1\nrate_bps = 1\ntx_power_w = 1\n", "f.toml")
    copy = pickle.loads(pickle.dumps(broken))
    assert isinstance(copy, FleetError)
    assert (str(copy), copy.line, copy.field, copy.file) == (str(broken), 2, "cpu_hz", "f.toml")


def test_a_learner_is_named_by_its_name():
    error = error_of(Fleet([Device(1e9, 1e6, 0), Device(1e-310, 1e6, 0, name="tiny")]).coefficients)
    assert (error.where, error.field) == ('device "tiny"', "c2")


def test_the_error_is_public():
    assert flwr_mel.InputError is InputError
    assert issubclass(FleetError, InputError)


# Texts that once were rewritten


def test_paths_are_told_as_they_are(tmp_path):
    where = "/x/dataset/mode"
    told = refused("simulate", "--data-dir", where)
    assert told.startswith(f"error: --data-dir must be an existing directory of idx files, got '{where}'")
    path = tmp_path / "energy.toml"
    path.write_text("[[device]]\ncpu_hz = 1\n")
    told = refused("plan", path, *LIMITS)
    assert f"{path}, line 1" in told
    assert "--" not in told


def test_an_option_in_a_text_is_not_named_twice(tmp_path):
    told = refused("watch", tmp_path / "none", "--once")
    assert "or a longer --wait." in told
    assert "----" not in told


def test_names_of_learners_are_told_as_they_are(tmp_path):
    path = tmp_path / "layers.toml"
    path.write_text(write_fleet([Measured(1e-3, 0, 1, 0, 0, 0, name="total_samples layers")]))
    result = run("plan", path, "--cycle-time", 0.5, "--samples", 100, code=3)
    assert "total_samples layers" in result.stderr
    told = refused("plan", path, *LIMITS, "--layers", "784,0")
    assert told == "error: --layers[1] must be an integer from 1 to 2**40, got 0\n"


def test_other_options_in_a_rule_are_named(paper):
    told = refused("plan", paper, "--cycle-time", 10, "--samples", 90, "--min-samples", 100)
    assert "--samples must be at least --min-samples = 100, got 90" in told
    assert "Lower --min-samples" in told
    told = refused("fleet", "--paper", "--energy", 5, "--energy-spread", 6)
    assert told == "error: --energy-spread must be below --energy = 5, got 6.0\n"
    told = refused("plan", paper, *LIMITS, "--compare", "--solver", "equal")
    assert told.startswith("error: --solver must be a heterogeneity-aware one for ha-asyn")
