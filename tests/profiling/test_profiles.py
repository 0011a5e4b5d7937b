"""Profiles: what they say, their files, and the mod that reads them."""

import logging
import re
import tomllib

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from flwr_mel import Device, wire
from flwr_mel.clientapp import mel_mod
from flwr_mel.costs import Coefficients, Workload
from flwr_mel.devices import Measured
from flwr_mel.profiling import LinkRate, Profile, make_profile, read_profile, write_profile
from tests.profiling.tools import FULL, NO_ENERGY, costs


def test_files_give_back_the_same_profile(tmp_path):
    path = write_profile(FULL, tmp_path / "p.toml")
    assert read_profile(path) == FULL
    assert path.is_absolute()
    assert [p.name for p in tmp_path.iterdir()] == ["p.toml"]
    document = tomllib.loads(path.read_text())
    assert set(document) == {
        wire.LEARNER, *wire.COEFFICIENTS, wire.ENERGY_LIMIT_J, wire.MAX_SAMPLES, "measured"
    }  # fmt: skip
    bare = Profile(Measured(1, 0, 0, 0, 0, 0))
    write_profile(bare, path, force=True)
    assert read_profile(path) == bare


def test_flowers_parser_reads_the_node_config(tmp_path):
    from flwr.common.config import parse_config_args

    for name in ("", "pi", "pi 1", 'pi "1"', "o'neil", "back\\slash"):
        profile = Profile(Measured(1.5e-4, 0, 1e-7, 2e-5, 0, 3, 10, 500, name))
        assert parse_config_args([profile.node_config()]) == profile.words()
    path = write_profile(FULL, tmp_path / "p.toml")
    whole = parse_config_args([str(path)])  # Flower takes the file itself, too
    assert {key: x for key, x in whole.items() if key.startswith("mel-")} == FULL.words()
    with pytest.raises(ValueError, match="without single quotes beside double ones"):
        Profile(Measured(1, 0, 0, 0, 0, 0, name="'\"")).node_config()


def test_transfers_cost_what_the_cost_model_says():
    rate, model, sample, power = 2e6, 1_121_760, 784, 0.2
    link = LinkRate(rate, rate, 0.0, 0.0, 0.01, 1)
    got = make_profile(
        costs(1e-3, 2e-3, 0.5), NO_ENERGY, link, model_bytes=model, sample_bytes=sample, tx_watts=power
    ).device
    job = Workload(model // 4, 1e6, sample)
    want = Coefficients.from_devices([Device(1e9, rate, power)], job)
    assert got.c2 == 1e-3
    assert got.c1 - 2e-3 == pytest.approx(want.c1[0])
    assert got.c0 - 0.5 == pytest.approx(want.c0[0])
    assert got.g0 == pytest.approx(want.g0[0])
    lopsided = LinkRate(1e6, 4e6, 0.0, 0.0, 0.01, 1)
    got = make_profile(costs(), NO_ENERGY, lopsided, model_bytes=1000, sample_bytes=100, tx_watts=2).device
    assert (got.c1, got.c0, got.g0) == pytest.approx((800 / 4e6, 8000 / 1e6 + 8000 / 4e6, 2 * 8000 / 1e6))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_profile(costs(), NO_ENERGY, model_bytes=3), "given with a measured link only"),
        (lambda: make_profile(costs(), NO_ENERGY, tx_watts=-1), "tx_watts must be"),
        (lambda: make_profile(costs(), NO_ENERGY, name="a\nb"), "mel-learner must be a printable name"),
        (lambda: make_profile(costs(c2=0.0), NO_ENERGY), "c2 must be a finite number > 0"),
        (lambda: Profile(Measured(1e10, 0, 0, 0, 0, 0)), "mel-c2 must be between 1e-15 and 1e\\+09"),
        (lambda: Profile(Measured(1, 0, 0, 0, 0, 0), {"a": True}), "measured.a must be a number or a text"),
        (lambda: Profile(Measured(1, 0, 0, 0, 0, 0), {"a b": 1}), "measured.a b must be"),
    ],
)
def test_profiles_that_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


SIX = "".join(f"{key} = 1.0\n" for key in wire.COEFFICIENTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mel-c2 = ", "the text must be valid TOML"),
        (b"\xff\xfe", "can't decode"),
        ("", "mel-c2 must be given, with the other five"),
        ("mel-c2 = 1.0", "mel-c1 must be given: .* go together, got only mel-c2"),
        (SIX.replace("mel-c2 = 1.0", "mel-c2 = -1.0"), "mel-c2 must be between 1e-15"),
        (SIX.replace("mel-g0 = 1.0", "mel-g0 = nan"), "mel-g0 must be a finite number"),
        (SIX.replace("mel-g0 = 1.0", 'mel-g0 = "1"'), "mel-g0 must be a finite number"),
        (SIX + "mel-max-samples = 1.5", "mel-max-samples must be an integer"),
        (SIX + "mel-energy-limit-j = 0", "mel-energy-limit-j must be between"),
        (SIX + "mel-learner = true", "mel-learner must be a printable name"),
        (SIX + "mel-battery-j = 3", "every key must be one of .*got 'mel-battery-j'"),
        (SIX + "measured = 3", "measured must be a table"),
        (SIX + "[measured]\nx = [1]", "measured.x must be a number or a text"),
        (SIX + "#" * 70000, "its size must be at most 65536 bytes"),
    ],
)
def test_bad_files_name_the_file_and_the_fault(tmp_path, text, message):
    path = tmp_path / "p.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=f"^profile {re.escape(str(path))}: .*{message}"):
        read_profile(path)


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(ValueError, match="can be read, got none: No such file"):
        read_profile(tmp_path / "none.toml")
    with pytest.raises(ValueError, match=r"out must be a file name that ends in .toml"):
        write_profile(FULL, tmp_path / "p.txt")
    path = write_profile(FULL, tmp_path / "p.toml")
    with pytest.raises(ValueError, match=r"out must be a new file.*Replace it with force"):
        write_profile(Profile(Measured(1, 0, 0, 0, 0, 0)), path)
    assert read_profile(path) == FULL
    with pytest.raises(ValueError, match="in a directory that can be written to"):
        write_profile(FULL, tmp_path / "no" / "p.toml")


# The mod


@pytest.fixture
def identity(monkeypatch):
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def said(run_config=None, **node_config):
    context = Context(
        run_id=1, node_id=2, node_config=node_config, state=RecordDict(), run_config=run_config or {}
    )
    content = RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: 1})})
    reply = mel_mod(Message(content, 1, "train"), context, None)
    answer = dict(reply.content[wire.RECORD])
    assert answer.pop(wire.PROBE) == 1, "the mod repeats the question"
    assert answer.pop(wire.ANSWER_SECONDS) >= 0
    return answer


def test_the_mod_reads_the_profile_and_sees_changes(identity, tmp_path, caplog):
    path = write_profile(FULL, tmp_path / "p.toml")
    node = {"mel-profile": str(path), "partition-id": 3}
    assert said(**node) == FULL.words()
    other = Profile(Measured(2, 0, 0, 0, 0, 0))
    write_profile(other, path, force=True)
    assert said(**node) == {**other.words(), wire.LEARNER: "3"}
    assert not caplog.records
    path.write_text("mel-c2 = -1\n")
    for _ in range(3):
        assert said(**node) == {wire.LEARNER: "3"}
    assert len(caplog.records) == 1  # once, not every cycle
    assert str(path) in caplog.text
    assert "goes on without a profile" in caplog.text
    path.unlink()
    assert said(**node) == {wire.LEARNER: "3"}
    assert "No such file" in caplog.text
    write_profile(FULL, path)
    assert said(**node) == FULL.words()


def test_what_wins(identity, tmp_path, caplog):
    path = write_profile(FULL, tmp_path / "p.toml")
    node = {"mel-profile": str(path)}
    assert said(**node, **{"mel-c0": 9.0, "mel-learner": "x"}) == {
        **FULL.words(), "mel-c0": 9.0, "mel-learner": "x"
    }  # fmt: skip
    assert said({"mel-c0": 9.0, "mel-battery-j": 4.0}, **node) == {**FULL.words(), "mel-battery-j": 4.0}
    physical = {"mel-cpu-hz": 1e9, "mel-rate-bps": 1e6, "mel-tx-power-w": 0.1}
    limits = {wire.LEARNER: FULL.device.name, wire.ENERGY_LIMIT_J: 12.5, wire.MAX_SAMPLES: 4000}
    assert said(**node, **physical) == {**physical, **limits}
    # A path from anybody but the device is not opened.
    assert said({"mel-profile": str(path)}, name="x") == {wire.LEARNER: "x"}
    assert not caplog.records
    with caplog.at_level(logging.ERROR):
        assert said(**{"mel-profile": 3, "name": "x"}) == {wire.LEARNER: "x"}
    assert "mel-profile must be the path" in caplog.text
