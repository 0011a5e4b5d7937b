"""The run configuration: defaults, documentation, what is refused."""

import importlib.util
import tomllib
from pathlib import Path

import pytest
import typer
from mel_simulation.cli import simulate
from mel_simulation.scenario.config import RESUMABLE, RunConfig
from mel_simulation.scenario.config import options as declared

from tests.simulation.tools import cli

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning"),
    pytest.mark.usefixtures("no_engine"),
]


@pytest.fixture(scope="module")
def options():
    """The script that writes the options into page and project."""
    spec = importlib.util.spec_from_file_location("options", DOCS / "options.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_pyproject_has_the_defaults(options):
    text = options.PROJECT.read_text(encoding="utf-8")
    config = tomllib.loads(text)["tool"]["flwr"]["app"]["config"]
    assert config == RunConfig().as_dict()
    assert RunConfig.parse(config) == RunConfig()
    assert text.endswith(options.project_table())


def test_the_page_has_the_table(options):
    assert f"<!-- generated: options -->\n\n{options.table()}\n" in options.PAGE.read_text(encoding="utf-8")
    assert set(RESUMABLE) <= set(RunConfig().as_dict())


def test_the_command_has_an_option_for_each():
    command = typer.main.get_command(simulate.app)
    mine = {p.name: p for p in command.params}
    assert set(mine) - {each.name for each in declared()} == {"ray_address"}
    for each in declared():
        assert mine[each.name].opts == [f"--{each.key}"]
        assert mine[each.name].help.startswith(each.text), each.name
        choices = getattr(mine[each.name].type, "choices", ())
        assert tuple(choices) == each.choices
        assert mine[each.name].default == each.default


IDLE = [
    ({"alpha": 0.5}, "alpha must be left out in mode pl"),
    ({"scheme": "ha-sync", "staleness": 1}, "staleness must be left out or 0 for ha-sync"),
    ({"scheme": "hu-sync", "staleness": 1}, "staleness must be left out or 0 for hu-sync"),
    ({"scheme": "hu-asyn", "solver": "suggest-improve"}, "solver must be left out for hu-asyn"),
    ({"scheme": "hu-asyn", "handout": "even"}, "handout must be left out for hu-asyn"),
    ({"energy": 0.0, "energy-spread": 1.0}, "energy_spread must be left out where energy is 0"),
    ({"fleet": __file__, "energy": 5.0}, "energy must be left out with a fleet"),
    ({"scheme": "rate", "alpha": 0.5}, "alpha must be left out in mode pl"),
    ({"scheme": "rate", "staleness": 1}, "staleness must be left out for rate"),
]


@pytest.mark.parametrize(
    ("idle", "says"), IDLE, ids=[" ".join(f"{k}={v}" for k, v in b.items()) for b, _ in IDLE]
)
def test_options_that_would_do_nothing_are_refused(idle, says):
    with pytest.raises(ValueError, match=says):
        RunConfig.parse(idle)


BAD = [
    ({"scheme": "random"}, "scheme must be one of ha-asyn, ha-sync, hu-asyn, hu-sync"),
    ({"dataset": "cifar"}, "dataset must be one of mnist, fashion-mnist"),
    ({"cycles": 0}, "cycles must be"),
    ({"cycle-time": -5.0}, "cycle_time must be"),
    ({"energy": -1.0}, "energy must be"),
    ({"energy-spread": 10.0}, "energy_spread must be below energy = 10"),
    ({"staleness": -1}, "staleness must be"),
    ({"learning-rate": 0.0}, "learning_rate must be"),
    ({"target-accuracy": 95.0}, "target_accuracy must be between 0 and 1"),
    ({"data-dir": "/no/such/place"}, "data_dir must be an existing directory"),
    ({"fleet": "/no/such/fleet.toml"}, "fleet must be an existing TOML or CSV file"),
    ({"resume": True}, "run_dir must be the run to continue"),
]


@pytest.mark.parametrize(("bad", "says"), BAD, ids=[f"{k}={v}" for b, _ in BAD for k, v in b.items()])
def test_bad_values_are_refused_and_stop_the_command(bad, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"must be") as error:
        RunConfig.parse(bad)
    assert says in str(error.value)
    [(key, value)] = bad.items()
    assert str(value) in str(error.value) or key == "resume"
    said = cli(*(["--resume"] if key == "resume" else [f"--{key}={value}"]), code=4 if key == "fleet" else 2)
    assert key == "fleet" or "--" + says.split(" ")[0].replace("_", "-") in said
    assert list(tmp_path.iterdir()) == []  # nothing was started


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"cycle": 3}, "run config must be made of scheme, mode"),
        ({"cycles": "many"}, "cycles must be of type int, got 'many'"),
        ({"cycles": 3.5}, "cycles must be of type int"),
        ({"energy": True}, "energy must be of type float"),
        ({"seed": False}, "seed must be of type int"),
        ({"scheme": 1}, "scheme must be of type str"),
        ({"resume": 1}, "resume must be of type bool"),
    ],
)
def test_run_config_of_other_keys_and_types(bad, says):
    with pytest.raises(ValueError, match=r"must be") as error:
        RunConfig.parse(bad)
    assert says in str(error.value)


def test_whole_numbers_do_where_floats_are_meant():
    assert RunConfig.parse({"cycle-time": 20, "energy": 20}) == RunConfig(cycle_time=20.0, energy=20.0)
