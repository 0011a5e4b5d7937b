"""The gallery: what its diffs are, and that clients follow their tasks. `make examples` runs all of it."""

import ast
import json
import random
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.common.config import validate_config
from flwr.supercore.task_identity import TaskIdentity

from examples import run as gallery
from examples.common.gallery import GALLERY, ROOT
from examples.common.witness import Witness
from flwr_mel import wire

ROUNDS, DEVICES = 3, 4


def changed(diff, sign="+"):
    return [line[1:] for line in diff.splitlines() if line.startswith(sign) and not line.startswith(sign * 3)]


@pytest.mark.parametrize("name", GALLERY)
def test_the_project_knows_nothing_of_us(name):
    for file in GALLERY[name].path.rglob("*.py"):
        assert "mel" not in file.read_text().lower().replace("camel", "")
    assert "flwr-mel" not in " ".join(
        tomllib.loads((GALLERY[name].path / "pyproject.toml").read_text())["project"]["dependencies"]
    )


@pytest.mark.parametrize("name", GALLERY)
def test_flower_takes_it(name):
    config = tomllib.loads((GALLERY[name].path / "pyproject.toml").read_text())
    valid, errors, warnings = validate_config(config, check_module=True, project_dir=GALLERY[name].path)
    assert (valid, errors, warnings) == (True, [], [])


@pytest.mark.parametrize("name", GALLERY)
def test_three_lines_and_their_imports_make_the_difference(name):
    lines = changed(GALLERY[name].diff)
    imports = [line for line in lines if line.startswith("from flwr_mel.")]
    assert len(imports) == 2
    assert len(lines) - len(imports) <= 3
    assert len(changed(GALLERY[name].diff, "-")) <= 2


@pytest.mark.parametrize("name", GALLERY)
def test_the_diff_applies_and_the_result_is_python(name, tmp_path):
    app = GALLERY[name].copy(tmp_path / "app", wrapped=True)
    for file in app.rglob("*.py"):
        ast.parse(file.read_text())
    for line in changed(GALLERY[name].diff):
        assert any(line in file.read_text() for file in app.rglob("*.py"))


def test_every_directory_is_in_the_gallery_and_everything_in_it_is_in_the_extra():
    assert {file.parent.name for file in ROOT.glob("*/mel.diff")} == set(GALLERY)
    own = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = {"numpy", "scikit-learn"}  # by flwr_mel itself, and by mlxtend
    have = {name_of(line) for extra in ("simulation", "examples") for line in own[extra]} | brought
    for example in GALLERY.values():
        wanted = tomllib.loads((example.path / "pyproject.toml").read_text())["project"]["dependencies"]
        assert {name_of(line) for line in wanted} - {"datasets"} <= have  # datasets come with flwr-datasets


def name_of(requirement):
    return requirement.partition(">")[0].partition("[")[0]


@pytest.mark.parametrize("name", [name for name, example in GALLERY.items() if example.light])
def test_light_projects_as_they_are_and_with_tasks_for_their_clients(name, tmp_path):
    example = GALLERY[name]
    plain = gallery.run_local(example, wrapped=False, out=tmp_path / "plain")
    assert gallery.check_vanilla(example, plain) == []
    assert plain.reports == []

    told = gallery.run_local(example, wrapped=True, out=tmp_path / "told")
    assert gallery.check_wrapped(told) == []
    assert gallery.check_reports(told) == []
    assert len(told.reports) == ROUNDS * DEVICES
    # The first, baseline round is the project's own, to the bit.
    assert told.accuracies[0][1] == plain.accuracies[0][1]
    own = {training["ran"] for training in plain.trainings}
    assert {said[wire.OWN_EPOCHS] for said in told.reports} == own
    assert {said[wire.SAMPLES_HELD] for said in told.reports} == {
        training["rows"] for training in plain.trainings
    }


def variant(example, directory, file, old, new):
    """Return the example with one word changed."""
    app = directory / "variant"
    shutil.copytree(example.path, app)
    text = (app / file).read_text()
    assert old in text
    (app / file).write_text(text.replace(old, new))

    class Variant(type(example)):
        path = app

    return Variant(**vars(example))


def test_what_a_client_does_otherwise_is_found(tmp_path):
    """The checks themselves can fail."""
    file = "numpyexample/client_app.py"
    example = variant(GALLERY["numpy_mlp"], tmp_path, file, 'config["epochs"]', "2")
    told = gallery.run_local(example, wrapped=True, out=tmp_path / "told")
    faults = [*gallery.check_wrapped(told), *gallery.check_reports(told)]
    assert any("2 epochs instead of 4" in fault for fault in faults)


@pytest.mark.slow
@pytest.mark.engine
def test_a_wrapped_project_with_numbers_on_flowers_engine(tmp_path):
    numbers = "cycle_time_s=4, total_samples=600, max_epochs=5, default_profile=Device(1e8, 1e7, 0.1), "
    line = (
        f"    strategy = MelStrategy(strategy, {numbers}workload=Workload.mlp((64, 32, 10), ship_data=False))"
    )
    plain = "    strategy = MelStrategy(strategy)"
    example = variant(GALLERY["numpy_mlp"], tmp_path, "mel.diff", plain, line)
    diff = example.path / "mel.diff"
    load = "import MelStrategy\n"
    diff.write_text(
        diff.read_text().replace(load, "import MelStrategy; from flwr_mel import Device, Workload\n")
    )
    done = gallery.run(example, wrapped=True, out=tmp_path / "run", speeds=(1.0, 2.0))
    assert gallery.check_wrapped(done) == []
    assert gallery.check_reports(done) == []
    assert {
        (said[wire.EPOCHS_DONE], said[wire.OWN_EPOCHS], said[wire.SIMULATED]) for said in done.reports
    } == {(5, 2, 1)}
    assert [sum(row["weight"] for row in record["learners"]) for record in done.cycles] == [600] * ROUNDS


def test_leaving_what_privacy_declares_is_found(tmp_path):
    kept = {"partition": 0, "cycle": 2, "epochs": 2, "rows": 350, "steps": 22, "epsilon": 3.0}
    for change, wrong in (
        ({}, 0),
        ({"steps": 33, "epochs": 3}, 1),
        ({"rows": 100}, 1),
        ({"epochs": None}, 0),
    ):
        (tmp_path / "clients.jsonl").write_text(json.dumps(kept | change) + "\n")
        assert len(gallery.check_private(GALLERY["opacus_dp"], gallery.Run(tmp_path))) == wrong
    declared = "PrivateSteps(batch_size=32, sampling_rate=0.1, steps=22)"
    assert GALLERY["opacus_dp"].private == (32, 0.1, 22)
    assert declared in GALLERY["opacus_dp"].diff


@pytest.mark.parametrize("name", ["numpy_mlp", "classic_server"])  # one of each API
def test_a_wrapped_project_without_a_number_on_flowers_engine(name, engine, tmp_path):
    GALLERY[name].copy(tmp_path / "app", wrapped=True)
    paces = ",".join(str(GALLERY[name].pace * speed) for speed in (0.1, 0.2, 0.5, 1.0))
    app = Path(__file__).with_name("gallery_app.py")
    engine.play(app, tmp_path, nodes=DEVICES, GALLERY_OUT=tmp_path, GALLERY_PACES=paces)
    done = gallery.Run(tmp_path)
    assert gallery.check_wrapped(done) == []
    assert gallery.check_reports(done) == []
    free = [training for training in done.trainings if training["epochs"] is None]
    assert sorted(training["partition"] for training in free) == list(range(DEVICES))
    assert {training["cycle"] for training in free} == {1}
    told = {(training["epochs"], training["samples"]) for training in done.trainings} - {(None, None)}
    assert len(told) > 1  # not everybody the same


def test_clients_draw_by_seed_partition_and_round(tmp_path, monkeypatch):
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)

    def drawn(seed, partition, number, *, classic=False):
        words = {} if classic else {"server-round": number}
        group = {"group_id": str(number)} if classic else {}
        message = Message(RecordDict({"config": ConfigRecord(words)}), 1, "train", **group)
        context = Context(1, 1, {"partition-id": partition}, RecordDict(), {})
        found = []

        def app(message, context):
            found.extend([random.random(), np.random.rand(), float(torch.rand(1))])  # noqa: NPY002
            metrics = MetricRecord({"epochs-run": 1, "num-examples": 1})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        Witness(tmp_path / "lines", (0.0,), seed)(message, context, app)
        return tuple(found)

    one = drawn(0, 1, 2)
    assert one == drawn(0, 1, 2) == drawn(0, 1, 2, classic=True)
    assert len({one, drawn(1, 1, 2), drawn(0, 2, 2), drawn(0, 1, 3)}) == 4


def test_the_page_starts_with_the_diff_of_the_quickstart():
    page = (ROOT.parent / "docs" / "ADD_TO_YOUR_PROJECT.md").read_text()
    assert page.partition("```diff\n")[2].partition("```")[0] == GALLERY["quickstart_pytorch"].diff


def test_every_project_is_in_the_readme():
    page = (ROOT / "README.md").read_text()
    assert all(f"[`{name}`]({name})" in page for name in GALLERY)
