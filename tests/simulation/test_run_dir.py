"""What a run leaves behind, what a resumed run may change, and how a run is shown."""

import io
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mel_simulation.app.run_dir import RunDir
from mel_simulation.cli import running
from mel_simulation.scenario import job
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.data import embedded
from mel_simulation.scenario.network import initial_weights
from rich.console import Console

from flwr_mel.paper import PAPER_CLASSES, paper_fleet
from flwr_mel.records import JsonlWriter
from flwr_mel.tools.fleetfile import Fleet, write_fleet
from tests.simulation.tools import cli, finished, record


def test_what_a_run_leaves(tmp_path):
    run = finished(tmp_path / "run")
    assert [r.cycle for r in run.records()] == [1, 2, 3]
    assert run.cycles_done() == 3
    run.finish({"cycles": 3}, initial_weights(3))
    with np.load(run.path / "model.npz") as kept:
        assert all(np.array_equal(kept[f"w{i:03d}"], w) for i, w in enumerate(initial_weights(3)))
    facts = run.facts()
    assert RunConfig.parse(facts["config"]).cycles == 3
    assert {"python", "flwr-mel", "flwr", "torch"} <= set(facts["versions"])
    assert (facts["data"], facts["source"]) == ({"train": 4000, "test": 1000}, embedded().source)
    assert {d["name"].rpartition("-")[0] for d in facts["fleet"]} == set(PAPER_CLASSES)


def test_resume_cuts_the_records_to_the_checkpoint(tmp_path):
    run = finished(tmp_path / "run", cycles=3, models=2)  # killed between record and model
    with (run.path / "records.jsonl").open("a") as file:
        file.write('{"cycle": 4, "cyc')  # and once more while writing
    run.start(RunConfig(learners=20, cycles=9, run_dir=str(run.path), resume=True))
    assert [r.cycle for r in run.records()] == [1, 2]
    JsonlWriter(run.records_file)(record(3))
    assert [r.cycle for r in run.records()] == [1, 2, 3]


def test_resume_refuses_another_run(tmp_path, monkeypatch):
    run = finished(tmp_path / "run")

    def resume(**change):
        run.start(RunConfig(run_dir=str(run.path), resume=True, **change))

    resume(cycles=50, target_accuracy=0.9)
    before = {path: path.read_bytes() for path in run.path.rglob("*.*")}
    with pytest.raises(ValueError, match="staleness must be 2 as in the run so far, got 3"):
        resume(staleness=3)
    (tmp_path / "fleet.toml").write_text(write_fleet(Fleet(paper_fleet(np.random.default_rng(5), 20))))
    with pytest.raises(ValueError, match="fleet must be as in the run so far, got other learners"):
        resume(fleet=str(tmp_path / "fleet.toml"))
    small = replace(embedded(), train_x=embedded().train_x[:100], train_y=embedded().train_y[:100])
    with monkeypatch.context() as patch:
        patch.setitem(job.loaded, ("mnist", ""), small)
        with pytest.raises(ValueError, match="data must be as in the run so far, got other samples"):
            resume()
    assert before == {path: path.read_bytes() for path in before}
    run.records_file.write_text("")
    with pytest.raises(ValueError, match="got 0 cycles on record and a checkpoint after 3"):
        resume()


def test_names_of_new_run_directories():
    path = RunDir.of(RunConfig(scheme="ha-sync", mode="fl")).path
    assert path.parent == Path("runs")
    assert path.name.endswith(f"-ha-sync-fl-{os.getpid()}")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_is_shown_until_it_ends(tmp_path, monkeypatch, terminal):
    run, out, looks = RunDir(tmp_path), io.StringIO(), iter(range(1, 9))

    def poll():
        look = next(looks)
        if look > 1:
            JsonlWriter(run.records_file)(record(look - 1))
        return 0 if look == 4 else None

    monkeypatch.setattr(running.time, "sleep", lambda _: None)
    screen = Console(file=out, force_terminal=terminal, width=120, height=40, highlight=False)
    running.follow(screen, run, 3, SimpleNamespace(poll=poll), done=1)
    text = out.getvalue()
    assert "starting Flower's engine" in text
    assert "cycle 1 of 3" not in text  # done before
    assert "cycle 3 of 3: accuracy 53.00 %, 1 of 2 learners, 3 epochs," in text
    assert ("skipped: deadline" in text) is terminal
    running.conclude(screen, run, 12.0, 0.955)
    last = "best accuracy 53.00 %, 12 s of wall time; the target of 95.5 % was not reached"
    assert last in out.getvalue()


def test_a_run_that_fails_inside_says_why(tmp_path, monkeypatch):
    class Engine:
        def __init__(self, config, *_):
            (Path(config.run_dir) / "error.txt").write_text("the disk is full")

        def __enter__(self):
            return SimpleNamespace(poll=lambda: 1)

        def __exit__(self, *_):
            return None

    monkeypatch.setattr("mel_simulation.cli.running.engine", Engine)
    said = cli("--run-dir", tmp_path / "run", "--cycles", 1, code=5)
    assert "the run failed: the disk is full. Its log:" in said
