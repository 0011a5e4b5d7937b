"""Kills, full disks and lost directories cost at most the cycle in flight."""

import logging
import os
import resource
import shutil

import numpy as np
import pytest

from flwr_mel import server as classic
from flwr_mel import serverapp as message
from flwr_mel.checkpoint import Checkpoints
from flwr_mel.orchestrator import Stopping
from flwr_mel.records import JsonlWriter, read_jsonl
from tests.checkpoint.tools import APIS, COMMON, CYCLES, ByMessage, assert_equal, facts, names, same


class Killed(BaseException):
    """Ends the process, as far as a test in one process can."""


@APIS
def test_a_kill_between_any_two_writes_loses_and_doubles_nothing(tmp_path, api, monkeypatch):
    whole = api().run()
    api(callbacks=[JsonlWriter(tmp_path / "older.jsonl")], seed=9).run(2)
    older = facts(read_jsonl(tmp_path / "older.jsonl"))
    real = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}
    calls, fatal = 0, None

    def wrapped(name):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == fatal:
                raise Killed
            done = real[name](*args, **kwargs)
            calls += 1
            if calls == fatal:
                raise Killed
            return done

        return call

    for name in real:
        monkeypatch.setattr(os, name, wrapped(name))
    for n in range(1, 1000):
        place = tmp_path / str(n)
        calls, fatal = 0, n
        place.mkdir()
        shutil.copy(tmp_path / "older.jsonl", place / "r.jsonl")

        def training(place=place):
            return api(
                checkpoints=Checkpoints(place / "c", keep=2), callbacks=[JsonlWriter(place / "r.jsonl")]
            )

        try:
            ended = training().run()
            assert_equal(ended, whole)
            break
        except Killed:
            fatal = None
        done = max((int(p.name[4:12]) for p in (place / "c").glob("mel-*")), default=0)
        rest = training()
        told = []
        rest.strategy.orchestrator.callbacks.insert(0, lambda record, told=told: told.append(record.cycle))
        rest.run()
        assert_equal(rest, whole)
        assert facts(read_jsonl(place / "r.jsonl")) == older + facts(whole.strategy.records)
        assert told == list(range(done + 1, CYCLES + 1))
    assert 40 < n < 100


@APIS
def test_going_on_after_the_newest_is_damaged(tmp_path, api, caplog):
    whole = api().run()
    api(checkpoints=tmp_path / "c", callbacks=[JsonlWriter(tmp_path / "r.jsonl")]).run(3)
    newest = tmp_path / "c" / "mel-00000003.ckpt"
    newest.write_bytes(newest.read_bytes()[:-9])
    caplog.set_level(logging.INFO, "flwr.mel")
    assert_equal(api(checkpoints=tmp_path / "c", callbacks=[JsonlWriter(tmp_path / "r.jsonl")]).run(), whole)
    assert facts(read_jsonl(tmp_path / "r.jsonl")) == facts(whole.strategy.records)
    assert "mel-00000003.ckpt is refused: it is damaged or cut off" in caplog.text
    assert "r.jsonl: 1 cycles after the checkpoint are dropped" in caplog.text
    assert names(tmp_path / "c") == [
        *("mel-00000002.ckpt", "mel-00000003.ckpt", "mel-00000003.ckpt.refused", "mel-00000004.ckpt")
    ]


@APIS
def test_what_must_not_change(tmp_path, api):
    api("FedAvg", checkpoints=tmp_path).run(1)
    other = [np.zeros((5, 3), np.float32), np.zeros(4, np.float32)]
    for reason, options in {
        "seed was 5, is now 6": {"seed": 6},
        "strategy was": {"inner": "FedAdam"},
        "'<f8', [4]], is now": {"weights": other},
    }.items():
        with pytest.raises(ValueError, match="none is usable") as error:
            api(**({"inner": "FedAvg", "checkpoints": tmp_path} | options)).run()
        assert reason in str(error.value)
    assert len(names(tmp_path)) == 2
    with pytest.raises(ValueError, match="without a training when resume=False"):
        api("FedAvg", checkpoints=tmp_path, resume=False).run()
    fresh = api("FedAvg", checkpoints=tmp_path / "new", resume=False).run()
    assert_equal(fresh, api("FedAvg").run())


@APIS
def test_nothing_is_left_to_do(tmp_path, api, caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    done = api(checkpoints=tmp_path).run()
    again = api(checkpoints=tmp_path).run()
    assert_equal(again, done)
    assert "all 4 cycles are done: nothing is left to do" in caplog.text
    assert again.rounds_evaluated == []
    assert_equal(api(checkpoints=tmp_path).run(6), api().run(6))


@APIS
def test_a_stopped_training_says_so_and_stays_stopped(tmp_path, api, caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    options = {"checkpoints": tmp_path, "stopping": Stopping(cycles=2)}
    stopped = api(**options).run()
    assert stopped.strategy.stopped.cycle == 2
    caplog.clear()
    again = api(**options).run()
    assert_equal(again, stopped)
    assert "training stopped after cycle 2 (2 cycles done): nothing is left" in caplog.text
    more = api(**(options | {"stopping": Stopping(cycles=3)})).run()
    assert "goes on with other criteria" in caplog.text
    assert same(more.final, api(stopping=Stopping(cycles=3)).run().final)
    assert [r.stopped for r in more.strategy.records] == ["", "2 cycles done", "3 cycles done"]


@APIS
def test_a_full_disk_does_not_cost_the_training(tmp_path, api, caplog):
    whole = api().run()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(record):
        if record.cycle == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))

    try:
        filled = api(checkpoints=tmp_path, callbacks=[fill]).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [len(r.notes) for r in filled.strategy.records] == [0, 1, 2, 2]
    for r in filled.strategy.records:
        assert all("no checkpoint of cycle" in note for note in r.notes)
        r.notes.clear()
    assert_equal(filled, whole)
    assert [r.levelname for r in caplog.records if "no checkpoint of cycle" in r.message] == ["ERROR"] * 3
    assert names(tmp_path) == ["mel-00000000.ckpt", "mel-00000001.ckpt"]
    assert_equal(api(checkpoints=tmp_path).run(), whole)


@APIS
def test_a_directory_that_goes_away_or_cannot_be_written(tmp_path, api, caplog):
    whole = api().run()
    place = tmp_path / "c"

    def spoil(record):
        if record.cycle == 2:
            shutil.rmtree(place)
            place.write_text("a file")
        if record.cycle == 4:
            place.unlink()

    spoilt = api(checkpoints=place, callbacks=[spoil]).run()
    for r in spoilt.strategy.records:
        r.notes.clear()
    assert_equal(spoilt, whole)
    assert caplog.text.count("no checkpoint of cycle") == 2
    assert names(place) == ["mel-00000004.ckpt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="checkpoints must be a directory that takes the model"):
        api(checkpoints=tmp_path / "file" / "c").run()


@APIS
def test_state_that_is_not_an_array(tmp_path, api):
    """A number that training changes is state; one that it leaves alone stays the user's."""

    def counting(training):
        inner = training.inner
        name = "aggregate_train" if api is ByMessage else "aggregate_fit"
        method = getattr(inner, name)
        inner.norm, inner.rng = 1.0, np.random.default_rng(8)
        inner.history = []

        def counted(*args):
            inner.norm *= 0.7
            inner.history.append(inner.rng.normal())
            return method(*args)

        setattr(inner, name, counted)
        strategy = message.MelStrategy if api is ByMessage else classic.MelStrategy
        training.strategy = strategy(inner, **COMMON, checkpoints=training.directory)
        return training

    def training(directory):
        made = api()
        made.directory = directory
        return counting(made)

    whole = training(tmp_path / "whole").run()
    training(tmp_path / "c").run(2)
    rest = training(tmp_path / "c")
    rest.inner.eta = 0.05 / 2
    rest.run()
    assert (rest.inner.norm, rest.inner.history) == (whole.inner.norm, whole.inner.history)
    assert rest.inner.rng.bit_generator.state == whole.inner.rng.bit_generator.state
    assert rest.inner.eta == 0.05 / 2
