"""The projects of examples/: their diffs, and that clients follow their tasks on Flower's engine."""

import ast
import tomllib
from importlib.util import find_spec

import pytest
from flwr.common.config import flatten_dict, validate_config

from examples import run as gallery
from examples.run import GALLERY, ROOT
from flwr_mel.records import Outcome, read_jsonl

DEVICES = 4
#: Lines that are added beside the imports: three, and one more where the project's epochs are a constant.
LINES = {"sklearn_logreg": 5}
#: Warnings that depend on measured times: the engine of the tests has two CPUs, and its tasks are short.
TIMED = ("too few CPUs", "little weight")
#: Packages that `make install` does not bring.
EXTRA = {"huggingface_lora": "peft", "opacus_dp": "opacus"}

#: A transformer takes its time to load.
SLOW = {"huggingface_lora"}


def settings(name):
    return tomllib.loads((ROOT / name / "pyproject.toml").read_text())


def changed(name, sign="+"):
    lines = (ROOT / name / "mel.diff").read_text().splitlines()
    return [line[1:] for line in lines if line.startswith(sign) and not line.startswith(sign * 3)]


def test_every_project_is_listed_and_described():
    assert {file.parent.name for file in ROOT.glob("*/mel.diff")} == set(GALLERY)
    page = (ROOT / "README.md").read_text()
    assert all(f"[`{name}`]({name})" in page for name in GALLERY)


@pytest.mark.parametrize("name", GALLERY)
def test_the_project_does_not_know_flwr_mel(name):
    for file in (ROOT / name).rglob("*.py"):
        assert "mel" not in file.read_text().lower()
    config = settings(name)
    assert "flwr-mel" not in " ".join(config["project"]["dependencies"])
    assert validate_config(config, check_module=True, project_dir=ROOT / name) == (True, [], [])


@pytest.mark.parametrize("name", GALLERY)
def test_the_diff_is_small_and_applies(name, tmp_path):
    added = changed(name)
    imports = [line for line in added if line.startswith("from flwr_mel.")]
    assert len(imports) == 2
    assert len(added) - len(imports) == LINES.get(name, 3)
    assert len(changed(name, "-")) <= 2
    app = gallery.copy(name, tmp_path / "app", wrapped=True)
    texts = [file.read_text() for file in app.rglob("*.py")]
    for text in texts:
        ast.parse(text)
    for line in added:
        # The runner adds its mod to that of the diff.
        assert any(line.removesuffix("])") in text for text in texts)
    assert sum(", slow_mod])" in text for text in texts) == 1


def play(name, engine, space):
    """Run a wrapped copy on the engine that all tests share; return its records and its log."""
    app = gallery.copy(name, space / "app", wrapped=True, speeds=(0.1, 0.2, 0.5, 1.0))
    (server,) = app.glob("*/server_app.py")
    line = "from flwr_mel.records import JsonlWriter\n"
    text = server.read_text().replace("from flwr_mel.server", f"{line}from flwr_mel.server", 1)
    (wrapped,) = [line for line in text.splitlines() if "= MelStrategy(" in line]
    writer = f"JsonlWriter({str(space / 'records.jsonl')!r})"
    server.write_text(text.replace(wrapped, f"{wrapped[:-1]}, callbacks=[{writer}])"))
    package = server.parent.name
    (space / "apps.py").write_text(
        f"import sys\nsys.path.insert(0, {str(app)!r})\n"
        f"from {package}.client_app import app as client_app\n"
        f"from {package}.server_app import app as server_app\n"
    )
    config = flatten_dict(settings(name)["tool"]["flwr"]["app"]["config"])
    config |= {"save-path": str(space / "outputs")} if "save-path" in config else {}
    log = engine.play(space / "apps.py", space, config=config, nodes=DEVICES)
    return list(read_jsonl(space / "records.jsonl")), log


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in GALLERY]
)
def test_clients_follow_their_tasks_on_flowers_engine(name, engine, tmp_path):
    if name in EXTRA and find_spec(EXTRA[name]) is None:
        pytest.skip(f"{EXTRA[name]} is not installed: pip install --group examples")
    records, log = play(name, engine, tmp_path)
    assert [record.cycle for record in records] == [1, 2, 3]
    first, *planned = records
    assert all(row.baseline for row in first.learners)
    for record in records:
        assert [row.outcome for row in record.learners] == [Outcome.USED] * DEVICES
    for record in planned:
        for row in record.learners:
            if row.stopped:  # on a busy machine, its time was over before its work was done
                assert row.weight == row.samples_used <= row.samples
                continue
            assert (row.samples_used, row.weight) == (row.samples, row.samples)
            assert row.epochs_done is None or row.epochs_done == pytest.approx(row.epochs, rel=0.1)
        # What the clients ran, as they report it in their own metrics.
        epochs = [row.epochs * row.weight for row in record.learners]
        if "train-epochs-run" in record.metrics:
            ran = record.metrics["train-epochs-run"]
            assert ran == pytest.approx(sum(epochs) / sum(row.weight for row in record.learners))
    assert records[-1].metrics["accuracy"] > 0.3  # chance is 0.1
    warnings = [line for line in log.splitlines() if "WARNING" in line and "client" in line]
    assert [line for line in warnings if not any(text in line for text in TIMED)] == []
    if name == "opacus_dp":
        assert all(row.epochs <= 2 and row.samples >= 160 for record in planned for row in record.learners)
