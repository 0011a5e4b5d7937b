"""The app reads the epochs of the task where it reads its own, and its context stays as it was."""

import copy
import json
import pickle

import pytest
from flwr.app import ConfigRecord, RecordDict

from flwr_mel import wire
from flwr_mel.clientapp import Assignment, mel_mod
from tests.clientapp.tools import BASELINE, TASK, call, classic_call, context, reply_to, task_message

KEYS = ["local-epochs", "local_epochs", "epochs", "num_epochs", "local-epoch", "train.num-train-epochs"]


@pytest.mark.parametrize("key", KEYS)
def test_the_run_config_has_the_epochs_of_the_task(key):
    config = {key: 1, "lr": 0.1}
    ctx, seen = context(config), []

    def work(message, c):
        seen.append((c.run_config[key], c is ctx, c.node_config is ctx.node_config, c.state is ctx.state))

    report = call(work, TASK, ctx)
    assert seen == [(7, False, True, True)]
    assert ctx.run_config is config
    assert config == {key: 1, "lr": 0.1}
    assert (report[wire.OWN_EPOCHS], report[wire.EPOCHS_READ]) == (1, 1)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("train", [call, classic_call])
def test_the_message_has_the_epochs_of_the_task(key, train):
    """Reading a message is not observed, so whether the app read its epochs is unknown."""
    seen = []

    def work(first, *_):
        seen.append((first if train is classic_call else first.content["config"])[key])

    report = train(work, TASK, config={key: 2})
    assert seen == [7]
    assert report[wire.OWN_EPOCHS] == 2
    assert wire.EPOCHS_READ not in report


def test_records_that_messages_share_are_not_written_to():
    shared = ConfigRecord({"epochs": 2, **TASK})
    message = task_message({})
    message.content["config"] = shared
    mel_mod(message, context(), lambda m, c: reply_to(m))
    assert dict(shared) == {"epochs": 2, **TASK}
    assert type(message.content["config"]) is ConfigRecord


@pytest.mark.parametrize(("own", "given"), [(1, 7), (1.0, 7.0), ("1", "7")])
def test_the_type_stays(own, given):
    seen = []
    call(lambda m, c: seen.append(c.run_config["epochs"]), TASK, context({"epochs": own}))
    call(lambda m, c: seen.append(m.content["config"]["epochs"]), TASK, config={"epochs": own})
    assert [(x, type(x)) for x in seen] == [(given, type(given))] * 2


@pytest.mark.parametrize("value", [True, -1, 0.5, "many", float("nan"), float("inf")])
def test_what_is_no_number_of_epochs_is_left_alone(value):
    seen = []
    report = call(lambda m, c: seen.append(c.run_config["epochs"]), TASK, context({"epochs": value}))
    assert seen[0] is value
    assert wire.OWN_EPOCHS not in report
    assert report[wire.EPOCHS_READ] == 0


def test_a_key_that_the_server_names_is_set_in_both_places():
    ctx, seen = context({"local-epochs": 1}), []

    def work(message, c):
        seen.append(
            (message.content["config"]["passes"], c.run_config["passes"], c.run_config["local-epochs"])
        )

    report = call(work, {**TASK, wire.EPOCHS_KEY: "passes"}, ctx)
    assert seen == [(7, 7, 1)]
    assert report[wire.EPOCHS_READ] == 1
    assert wire.OWN_EPOCHS not in report
    report = call(lambda m, c: None, {**BASELINE, wire.EPOCHS_KEY: "passes"}, context({"passes": "4"}))
    assert (report[wire.OWN_EPOCHS], report[wire.EPOCHS_READ]) == (4, 0)


@pytest.mark.parametrize(
    ("work", "read"),
    [
        (lambda c: None, 0),
        (lambda c: "local-epochs" in c, 0),
        (lambda c: c["local-epochs"], 1),
        (lambda c: c.get("local-epochs", 1), 1),
        (lambda c: (c["local-epochs"], dict(c)), 1),
        (dict, None),
        (lambda c: c | {}, None),
        (lambda c: c.copy(), None),
        (copy.deepcopy, None),
        (json.dumps, None),
        (lambda c: [c[key] for key in c], None),
        (lambda c: c.pop("local-epochs"), 1),
        (lambda c: c.setdefault("local-epochs", 2), 1),
        (lambda c: dict(c)["local-epochs"], None),
        (lambda c: c.items(), 0),
        (lambda c: list(c.values()), None),
    ],
)
def test_whether_the_epochs_were_read(work, read):
    """None: the whole config was copied, so that it is unknown."""
    config = {"local-epochs": 1, "lr": 0.1}
    assert call(lambda m, c: work(c.run_config), TASK, context(config)).get(wire.EPOCHS_READ) == read


def test_copies_of_the_run_config_are_whole():
    seen = []

    def work(message, c):
        one = c.run_config
        seen.extend([one.copy(), dict(one), {} | one, one | {}, {**one}, json.loads(json.dumps(one))])
        assert all(type(other) is dict for other in seen)
        seen.extend([copy.deepcopy(one), pickle.loads(pickle.dumps(one))])

    call(work, TASK, context({"epochs": 1, "lr": 2}))
    assert seen == [{"epochs": 7, "lr": 2}] * 8


@pytest.mark.parametrize(
    ("work", "read"),
    [
        (lambda task: None, 0),
        (lambda task: task.choose(50), 0),
        (repr, 0),
        (lambda task: (task.seconds_left, task.samples, task.seed, task.shard), 0),
        (lambda task: task.epochs, 1),
    ],
)
@pytest.mark.parametrize("own", [None, 1])
def test_reading_the_epochs_of_an_assignment_is_recorded_when_it_happens(work, read, own):
    report = call(lambda m, c: work(Assignment.from_message(m, own)), TASK)
    classic = classic_call(lambda c: work(Assignment.from_config(c, own)), TASK)
    assert report[wire.EPOCHS_READ] == classic[wire.EPOCHS_READ] == read
    assert report.get(wire.OWN_EPOCHS) == classic.get(wire.OWN_EPOCHS) == own


def test_an_assignment_and_the_run_config_are_both_observed():
    ctx = context({"local-epochs": 1})

    def work(message, c):
        task = Assignment.from_message(message)
        return dict(c.run_config) and task.epochs

    one = call(lambda m, c: (Assignment.from_message(m), c.run_config["local-epochs"]), TASK, ctx)
    assert one[wire.EPOCHS_READ] == call(work, TASK, ctx)[wire.EPOCHS_READ] == 1
    # The message has the epochs as well, and reading it is not observed.
    quiet = call(lambda m, c: Assignment.from_message(m), TASK, ctx, config={"epochs": 2})
    assert wire.EPOCHS_READ not in quiet


def test_what_the_app_keeps_in_its_state_persists():
    ctx = context({"local-epochs": 1})

    def add(message, c):
        c.state["mine"] = ConfigRecord({"n": 1})

    def replace(message, c):
        c.state = RecordDict({"other": ConfigRecord({"n": c.state["mine"]["n"] + 1})})

    call(add, TASK, ctx)
    assert ctx.state["mine"]["n"] == 1
    call(replace, TASK, ctx)
    assert list(ctx.state) == ["other"]
    assert ctx.state["other"]["n"] == 2


def test_an_exception_of_the_app_stays_its_own():
    ctx = context({"local-epochs": 1})
    for train in (call, classic_call):
        with pytest.raises(ZeroDivisionError):
            train(lambda *_: 1 / 0, TASK, ctx)
    assert ctx.run_config == {"local-epochs": 1}
