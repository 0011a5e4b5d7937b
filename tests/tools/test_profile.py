"""`flwr-mel profile`, its file, and the client that reads it."""

import json
import shlex
import tomllib
import types
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from flwr_mel import Device, Workload, wire
from flwr_mel.clientapp.capability import capability_words
from flwr_mel.costs import Coefficients
from flwr_mel.tools.profile_command import _node_config, _transfers
from tests.tools.commands import process, refused

SIX = "".join(f"{key} = 1.0\n" for key in wire.COEFFICIENTS)
TRAIN = ("--train", "my_app.py:train", "--samples", 100)


def read_profile(path):
    """Return what a written profile declares."""
    return {key: x for key, x in tomllib.loads(Path(path).read_text()).items() if key != "measured"}


def test_from_the_function_to_flowers_option(app):
    options = ("--train", "my_app.py:train", "--samples", 200, "--budget", 600, "--repeats", 3)
    energy = ("--meter", "declared", "--watts", 5, "--energy-limit", 20, "--max-samples", 900)
    link = ("--rate-bps", 1e6, "--model-bytes", 1000, "--sample-bytes", 10, "--tx-watts", 2)
    done = process("profile", *options, *energy, *link, "--name", "pi", "--out", "p.toml", cwd=app)
    assert done.returncode == 0, done.stderr
    words, document = read_profile(app / "p.toml"), tomllib.loads((app / "p.toml").read_text())
    assert set(document) == {*words, "measured"}
    assert words["mel-c2"] > 0
    assert words["mel-g2"] == pytest.approx(5 * words["mel-c2"])
    assert words["mel-c0"] >= 0.016  # at least the model both ways
    assert (words[wire.LEARNER], words[wire.ENERGY_LIMIT_J], words[wire.MAX_SAMPLES]) == ("pi", 20, 900)
    assert (document["measured"]["runs"], document["measured"]["meter"]) == (15, "declared")
    assert "hello from the function" not in done.stdout
    for word in ("Profile of pi", "seconds per sample and epoch", "declared", "fit"):
        assert word in done.stdout
    option = shlex.split(done.stdout.splitlines()[-1])
    assert option[0] == "--node-config"
    assert parse_config_args(option[1:]) == {"mel-profile": str(app / "p.toml")}
    whole = parse_config_args([str(app / "p.toml")])  # Flower takes the file itself, too
    assert {key: x for key, x in whole.items() if key.startswith("mel-")} == words


def test_json_and_no_file(app):
    options = ("--train", "my_app:train", "--samples", 100, "--repeats", 2, "--json", "--meter", "none")
    done = process("profile", *options, "--budget", 600, "--energy-limit", 3, cwd=app)
    got = json.loads(done.stdout)
    assert got["file"] is None
    assert parse_config_args(shlex.split(got["option"])[1:]) == got["profile"]
    assert "hello from the function" in done.stderr
    assert "energy is not measured and counts as 0: energy limits have no effect" in done.stderr
    assert not list(app.glob("*.toml"))


def test_transfers_cost_what_the_cost_model_says():
    rate, model, sample, power = 2e6, 1_121_760, 784, 0.2
    want = Coefficients.from_devices([Device(1e9, rate, power)], Workload(model // 4, 1e6, sample))
    got = _transfers(rate, model, sample, power)
    assert got == pytest.approx([0, want.c1[0], want.c0[0], 0, 0, want.g0[0]])


def test_flowers_parser_reads_names_of_all_kinds():
    for name in ("pi", "pi 1", 'pi "1"', "o'neil", "back\\slash"):
        words = {wire.LEARNER: name, "mel-c2": 1.5e-4, wire.MAX_SAMPLES: 500}
        assert parse_config_args([_node_config(words)]) == words
    with pytest.raises(ValueError, match="without single quotes beside double ones"):
        _node_config({wire.LEARNER: "'\""})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--train", "my_app.py:fails", "--samples", 100),
            "got RuntimeError from train(samples=6, epochs=1): out of",
        ),
        (("--train", "my_app.py:nothing", "--samples", 100), "--train must be slow enough"),
        (("--train", "my_app.py", "--samples", 100), "--train must be module:function"),
        (("--train", "my_app.py:train", "--samples", 3), "--samples must be an integer from 8"),
        ((*TRAIN, "--budget", 0), "--budget must be a finite number > 0"),
        ((*TRAIN, "--watts", -5), "--watts must be a finite number > 0"),
        ((*TRAIN, "--meter", "declared"), "--meter must be one that works here"),
        ((*TRAIN, "--meter", "none", "--watts", 3), "--watts must be left out with --meter none"),
        ((*TRAIN, "--energy-limit", 0), "--energy-limit must be between 1e-12"),
        ((*TRAIN, "--name", "a\nb"), "--name must be a printable name"),
        ((*TRAIN, "--max-samples", -1), "--max-samples must be"),
        ((*TRAIN, "--model-bytes", 5), "--model-bytes must be left out without --rate-bps"),
        ((*TRAIN, "--out", "my_app.py"), "--out must be a file name that ends in .toml"),
        ((*TRAIN, "--out", "there.toml"), "--out must be a new file"),
        ((*TRAIN, "--out", "no/p.toml"), "--out must be in a directory that can be written to"),
        (("--samples", 100), "Missing option '--train'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(app, args, message):
    (app / "there.toml").write_text("mine")
    assert message in refused("profile", *args)
    assert (app / "there.toml").read_text() == "mine"


# The client


def declared(run_config=None, **node_config):
    context = types.SimpleNamespace(run_config=run_config or {}, node_config=node_config)
    return capability_words(None, context, 1)


def test_the_client_reads_the_profile_and_sees_changes(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(f"{SIX}mel-learner = 'pi'\n[measured]\nx = 1\n")
    node = {"mel-profile": str(path)}
    assert declared(**node) == {**dict.fromkeys(wire.COEFFICIENTS, 1.0), wire.LEARNER: "pi"}
    path.write_text(SIX.replace("mel-c2 = 1.0", "mel-c2 = 2.0"))
    assert declared(**node)["mel-c2"] == 2.0
    path.write_text("mel-c2 = ")
    with pytest.raises(ValueError, match="is not valid TOML"):
        declared(**node)


def test_the_node_config_comes_before_the_profile_and_the_run_config(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(f"{SIX}mel-energy-limit-j = 12.5\n")
    node, words = {"mel-profile": str(path)}, read_profile(path)
    assert declared(**node, **{"mel-c0": 9.0}) == {**words, "mel-c0": 9.0}
    assert declared({"mel-c0": 9.0}, **node) == words
    physical = {"mel-cpu-hz": 1e9, "mel-rate-bps": 1e6, "mel-tx-power-w": 0.1}
    assert declared(**node, **physical) == {**physical, wire.ENERGY_LIMIT_J: 12.5}
    assert declared({"mel-profile": str(path)}) == {}  # a path that is not the device's own is not opened
    with pytest.raises(ValueError, match="mel-profile must be the path"):
        declared(**{"mel-profile": 3})
