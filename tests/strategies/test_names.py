"""Names that are bound to keys: who a node is is what the operator wrote down, not what the node claims."""

import json

import pytest

from flwr_mel import InputError
from flwr_mel.orchestrator import Orchestrator, Settings
from tests.attacks import honest_words
from tests.fuzz.tools import OPTIONS
from tests.strategies import fleet as fleets
from tests.strategies.fleet import Fleet, words


def brain(names, nodes=("11", "12", "13")):
    made = Orchestrator(Settings(**OPTIONS))
    made.bind(names)
    made.strangers(nodes)
    return made


def named(made):
    return {node: x.name for node, x in made.state.learners.items()}


def test_a_name_is_the_keys_whoever_answers_first():
    made = brain({"11": "pi-1", "12": "pi-2"})
    # The newcomer answers first and claims a device's name; so does a registered one, another's.
    made.hear_all({"13": honest_words("pi-1"), "12": honest_words("pi-1"), "11": honest_words("pi-1")})
    assert named(made) == {"11": "pi-1", "12": "pi-2", "13": "13"}
    told = [note for note in made.state.notes if "claims" in note]
    assert len(told) == 2
    assert told[0].startswith("13: claims the name 'pi-1'")
    assert told[1].startswith("pi-2: claims the name 'pi-1'")
    made.hear_all({"13": honest_words("pi-1"), "12": honest_words("pi-1")})
    assert [note for note in made.state.notes if "claims" in note] == told


def test_who_is_not_written_down_goes_by_its_id():
    made = brain({"11": "pi-1"})
    made.hear_all({"12": honest_words("free"), "13": honest_words("pi-1"), "11": None})
    assert named(made) == {"11": "pi-1", "12": "12", "13": "13"}


def test_a_device_without_a_word_of_its_name_has_it_too():
    made = brain({"11": "pi-1"})
    said = honest_words("x")
    del said["mel-learner"]
    made.hear_all({"11": said})
    assert named(made)["11"] == "pi-1"
    assert not made.state.notes


def test_the_list_grows_and_what_is_known_goes_with_the_name():
    made = brain({"11": "pi-1"})
    made.hear_all({"11": honest_words("pi-1"), "12": honest_words("pi-2"), "13": honest_words("pi-3")})
    made.bind({"11": "pi-1", "12": "pi-2"})
    made.hear_all({"12": honest_words("pi-2")})
    assert named(made) == {"11": "pi-1", "12": "pi-2", "13": "13"}
    # A device comes back under a new key and node id, which the operator wrote down.
    made.plan(1, ["11", "12", "13"])
    before = made.state.learners["12"]
    made.bind({"11": "pi-1", "12": "pi-2", "14": "pi-2"})
    made.strangers(["11", "13", "14"])
    made.hear_all({"14": honest_words("pi-2")})
    assert named(made) == {"11": "pi-1", "13": "13", "14": "pi-2"}
    assert made.state.learners["14"].costs == before.costs


def test_two_nodes_written_down_under_one_name():
    made = brain({"11": "pi-1", "12": "pi-1"})
    made.hear_all({"11": honest_words("pi-1"), "12": honest_words("pi-1")})
    assert named(made) == {"11": "pi-1", "12": "12", "13": "13"}
    assert any("12: claims the name 'pi-1' of node 11" in note for note in made.state.notes)


@pytest.mark.parametrize("api", fleets.APIS)
def test_a_file_that_grows_is_read_when_a_new_node_comes(api, monkeypatch, tmp_path):
    path = tmp_path / "devices.json"
    path.write_text(json.dumps({"1": "pi-1"}), encoding="utf-8")
    fleet = Fleet({1: words("liar"), 9: words("pi-2")})
    driven = fleets.APIS[api](fleet, monkeypatch, names=path)
    driven.cycle(1)
    assert [row.learner for row in driven.strategy.records[-1].learners] == ["9", "pi-1"]
    path.write_text(json.dumps({"1": "pi-1", "2": "pi-2"}), encoding="utf-8")
    fleet.nodes[2] = words("pi-2")
    driven.cycle(2)
    driven.cycle(3)
    assert [row.learner for row in driven.strategy.records[-1].learners] == ["9", "pi-1", "pi-2"]
    # Half a file, or none: what was read stays.
    path.write_text("{", encoding="utf-8")
    fleet.nodes[3] = words("pi-1")
    driven.cycle(4)
    driven.cycle(5)
    assert {row.learner for row in driven.strategy.records[-1].learners} == {"3", "9", "pi-1", "pi-2"}


@pytest.mark.parametrize("api", fleets.APIS)
def test_a_mapping_will_do(api, monkeypatch):
    driven = fleets.APIS[api](Fleet({1: words("b"), 2: words("a")}), monkeypatch, names={1: "a", "2": "b"})
    driven.cycle(1)
    assert {row.node: row.learner for row in driven.strategy.records[-1].learners} == {"1": "a", "2": "b"}


@pytest.mark.parametrize("names", [3, {"1": ""}, {"1": 2.5}, {"x": "a"}, {"1": "a\nb"}, "no/such/file.json"])
def test_bad_names(names, monkeypatch):
    with pytest.raises(InputError, match="names"):
        fleets.APIS["message"](Fleet({}), monkeypatch, names=names)
