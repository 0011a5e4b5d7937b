"""During a call the epochs of the task stand where the app reads its own, and nowhere afterwards."""

import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from flwr.app import ConfigRecord, Message

from flwr_mel import wire
from flwr_mel.clientapp import Assignment, mel_mod
from tests.clientapp.tools import FREE, TASK, call, classic_call, context, message_app, reply_to, task_message
from tests.waiting import PATIENCE_S

KEYS = [
    "local-epochs",
    "local_epochs",
    "epochs",
    "num-epochs",
    "num_epochs",
    "local-epoch",
    "train.num-train-epochs",
]


@pytest.mark.parametrize("key", KEYS)
def test_the_run_config_says_the_epochs_of_the_task_and_is_the_old_one_afterwards(key):
    config = {key: 1, "lr": 0.1}
    ctx, seen = context(config), []
    report = call(lambda message, c: seen.append(c.run_config[key]), TASK, ctx)
    assert seen == [7]
    assert ctx.run_config is config
    assert config == {key: 1, "lr": 0.1}
    assert list(config) == [key, "lr"]
    assert (report[wire.EPOCHS_KEY], report[wire.OWN_EPOCHS]) == (key, 1)
    assert (report[wire.EPOCHS_READ], report[wire.EPOCHS_DONE]) == (wire.YES, 7)


@pytest.mark.parametrize("key", KEYS)
def test_the_message_says_the_epochs_of_the_task_and_is_the_old_one_afterwards(key):
    message, seen = task_message(TASK, **{key: 2}), []
    record = message.content["config"]
    app = message_app(lambda m, c: seen.append(m.content["config"][key]))
    report = app(message, context()).content[wire.RECORD]
    assert seen == [7]
    assert type(record) is ConfigRecord
    assert dict(record) == {key: 2, **TASK}
    assert set(vars(record)) == set(vars(ConfigRecord()))
    assert (report[wire.EPOCHS_KEY], report[wire.OWN_EPOCHS], report[wire.EPOCHS_READ]) == (key, 2, wire.YES)


@pytest.mark.parametrize("key", KEYS)
def test_a_classic_client_reads_the_epochs_of_the_task(key):
    seen = []
    metrics = classic_call(lambda config: seen.append(config[key]), TASK, config={key: 4})
    assert seen == [7]
    assert (metrics[wire.OWN_EPOCHS], metrics[wire.EPOCHS_READ], metrics[wire.EPOCHS_DONE]) == (
        4,
        wire.YES,
        7,
    )
    assert metrics["loss"] == 0.5


def test_a_classic_client_may_read_its_run_config_too():
    ctx = context({"local-epochs": 1})
    seen = []
    metrics = classic_call(lambda config: seen.append(ctx.run_config["local-epochs"]), TASK, ctx)
    assert seen == [7]
    assert metrics[wire.EPOCHS_READ] == wire.YES


@pytest.mark.parametrize(("own", "laid"), [(1, 7), (1.0, 7.0), ("1", "7")])
def test_the_type_stays(own, laid):
    seen = []
    call(lambda m, c: seen.append(c.run_config["epochs"]), TASK, context({"epochs": own}))
    assert seen == [laid]
    assert type(seen[0]) is type(laid)


@pytest.mark.parametrize("value", [True, -1, 0.5, "many", float("nan"), float("inf")])
def test_what_is_no_number_of_epochs_is_left_alone(value):
    seen = []
    report = call(lambda m, c: seen.append(c.run_config["epochs"]), TASK, context({"epochs": value}))
    assert seen[0] is value
    assert wire.EPOCHS_KEY not in report
    assert report[wire.EPOCHS_READ] == wire.NO


def test_the_local_epochs_win_over_other_names():
    ctx, seen = context({"max-epochs": 50, "local-epochs": 2}), []
    call(lambda m, c: seen.append((c.run_config["max-epochs"], c.run_config["local-epochs"])), TASK, ctx)
    assert seen == [(50, 7)]


def test_a_key_that_the_server_names_is_laid_wherever_it_may_be_looked_for():
    ctx, seen = context({"local-epochs": 1}), []

    def work(message, c):
        record = message.content["config"]
        seen.append((record["rounds-here"], c.run_config.get("rounds-here", 1), c.run_config["local-epochs"]))

    report = call(work, {**TASK, wire.EPOCHS_KEY: "rounds-here"}, ctx)
    assert seen == [(7, 7, 1)]
    assert report[wire.EPOCHS_READ] == wire.YES
    assert wire.EPOCHS_KEY not in report  # it stood nowhere before
    assert ctx.run_config == {"local-epochs": 1}


def test_both_places_are_laid_and_the_one_that_is_read_is_reported():
    ctx = context({"local-epochs": 1})
    report = call(lambda m, c: m.content["config"]["epochs"], TASK, ctx, {"epochs": 3})
    assert (report[wire.EPOCHS_KEY], report[wire.OWN_EPOCHS]) == ("epochs", 3)
    report = call(lambda m, c: c.run_config["local-epochs"], TASK, ctx, {"epochs": 3})
    assert (report[wire.EPOCHS_KEY], report[wire.OWN_EPOCHS]) == ("local-epochs", 1)


@pytest.mark.parametrize("words", [TASK, FREE])
def test_an_app_that_raises_leaves_everything_as_it_was(words):
    config = {"local-epochs": 1}
    ctx, message = context(config), task_message(words, epochs=2)

    def work(m, c):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        message_app(work)(message, ctx)
    assert ctx.run_config is config
    assert config == {"local-epochs": 1}
    assert type(message.content["config"]) is ConfigRecord
    assert dict(message.content["config"]) == {"epochs": 2, **words}


def test_what_the_app_writes_stays_and_what_we_laid_goes():
    config = {"local-epochs": 1, "old": 1}
    ctx = context(config)

    def work(message, c):
        c.run_config["seen"] = c.run_config["local-epochs"]
        del c.run_config["old"]

    call(work, TASK, ctx)
    assert ctx.run_config is config
    assert config == {"local-epochs": 1, "seen": 7}

    def replace(message, c):
        c.run_config = {**c.run_config, "mine": True}

    call(replace, TASK, ctx)
    assert ctx.run_config == {"local-epochs": 1, "seen": 7, "mine": True}
    assert type(ctx.run_config) is dict

    call(lambda m, c: c.run_config.update({"local-epochs": 99}), TASK, ctx)
    assert ctx.run_config["local-epochs"] == 99


def test_contexts_that_share_a_run_config_do_not_see_each_others_epochs():
    config = {"local-epochs": 1}
    other = context(config)
    seen = []
    call(lambda m, c: seen.append(other.run_config["local-epochs"]), TASK, context(config))
    assert seen == [1]


def test_calls_of_one_context_at_the_same_time_leave_it_as_it_was():
    config = {"local-epochs": 1}
    ctx, barrier = context(config), Barrier(2)

    def work(message, c):
        barrier.wait(PATIENCE_S)
        c.run_config["local-epochs"]
        barrier.wait(PATIENCE_S)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: call(work, TASK, ctx), range(2)))
    assert ctx.run_config is config
    assert config == {"local-epochs": 1}


@pytest.mark.parametrize(
    ("work", "answer"),
    [
        (lambda c: None, wire.NO),
        (lambda c: c["lr"], wire.NO),
        (lambda c: "local-epochs" in c, wire.NO),
        (lambda c: list(c.values()), wire.NO),  # as Flower itself does, to check types
        (lambda c: c["local-epochs"], wire.YES),
        (lambda c: c.get("local-epochs", 1), wire.YES),
        (lambda c: c.pop("local-epochs"), wire.YES),
        (lambda c: c.setdefault("local-epochs", 1), wire.YES),
        (lambda c: "local-epochs" in c.keys() and c["local-epochs"], wire.YES),  # noqa: SIM118
        (dict, wire.UNKNOWN),
        (lambda c: {**c}, wire.UNKNOWN),
        (lambda c: c.copy(), wire.UNKNOWN),
        (copy.deepcopy, wire.UNKNOWN),
        (pickle.dumps, wire.UNKNOWN),
        (lambda c: {k: v for k, v in c.items()}, wire.UNKNOWN),  # noqa: C416
        (lambda c: [c[k] for k in c], wire.UNKNOWN),
        (lambda c: (dict(c), c["local-epochs"]), wire.YES),
    ],
)
def test_whether_the_epochs_were_read_is_seen_in_every_place(work, answer):
    config = {"local-epochs": 1, "lr": 0.1}
    assert call(lambda m, c: work(c.run_config), TASK, context(dict(config)))[wire.EPOCHS_READ] == answer
    assert call(lambda m, c: work(m.content["config"]), TASK, config=config)[wire.EPOCHS_READ] == answer
    assert classic_call(work, TASK, config=config)[wire.EPOCHS_READ] == answer


def test_copies_of_a_watched_config_are_plain_and_whole():
    seen = []

    def work(message, c):
        watched, record = c.run_config, message.content["config"]
        seen.extend([watched.copy(), dict(watched), {} | watched, watched | {}, copy.deepcopy(watched)])
        seen.extend([pickle.loads(pickle.dumps(watched)), json.loads(json.dumps(watched))])
        assert isinstance(watched, dict)
        for other in (record.copy(), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
            assert type(other) is ConfigRecord
            assert other == {"lr": 2, **TASK}

    call(work, TASK, context({"epochs": 1, "lr": 2}), {"lr": 2})
    assert all(type(one) is dict and one == {"epochs": 7, "lr": 2} for one in seen)
    assert len(seen) == 7


def test_a_record_that_the_app_sends_back_or_keeps_is_a_plain_one():
    def work(message, ctx):
        ctx.state["config"] = message.content["config"]
        reply = reply_to(message)
        reply.content["config"] = message.content["config"]
        return reply

    ctx = context()
    reply = mel_mod(task_message(TASK, epochs=2), ctx, work)
    for record in (reply.content["config"], ctx.state["config"]):
        assert type(record) is ConfigRecord
        assert record["epochs"] == 2
        ConfigRecord.inflate(record.deflate())


def test_the_assignment_counts_as_read_only_when_its_epochs_are():
    assert call(lambda m, c: Assignment.from_message(m), TASK)[wire.EPOCHS_READ] == wire.NO
    assert call(lambda m, c: Assignment.from_message(m).choose(50), TASK)[wire.EPOCHS_READ] == wire.NO
    assert call(lambda m, c: Assignment.from_message(m).epochs, TASK)[wire.EPOCHS_READ] == wire.YES
    assert call(lambda m, c: m.content["config"][wire.EPOCHS], TASK)[wire.EPOCHS_READ] == wire.YES
    assert classic_call(lambda c: Assignment.from_config(c).choose(50), TASK)[wire.EPOCHS_READ] == wire.NO
    assert classic_call(lambda c: Assignment.from_config(c).epochs, TASK)[wire.EPOCHS_READ] == wire.YES
    # A copy does not carry the watch; the call does.
    assert classic_call(lambda c: Assignment.from_config(dict(c)).epochs, TASK)[wire.EPOCHS_READ] == wire.YES


def test_a_free_task_changes_nothing_and_tells_what_the_project_does():
    ctx, seen = context({"local-epochs": 3}), []
    report = call(lambda m, c: seen.append(c.run_config["local-epochs"]), FREE, ctx)
    assert seen == [3]
    assert (report[wire.OWN_EPOCHS], report[wire.EPOCHS_DONE], report[wire.EPOCHS_READ]) == (3, 3, wire.YES)
    named = call(lambda m, c: c.run_config.get("e", 2), {**FREE, wire.EPOCHS_KEY: "e"}, ctx)
    assert named[wire.EPOCHS_READ] == wire.NO
    assert wire.EPOCHS_DONE not in named
    seen.clear()
    metrics = classic_call(lambda c: seen.append(c["local_epochs"]), FREE, config={"local_epochs": 2})
    assert seen == [2]
    assert metrics[wire.OWN_EPOCHS] == metrics[wire.EPOCHS_DONE] == 2


def test_messages_without_a_task_pass_untouched():
    ctx = context({"local-epochs": 1})

    def work(message, c):
        assert type(c.run_config) is dict
        assert type(message.content["config"]) is ConfigRecord
        return reply_to(message)

    reply = mel_mod(task_message({}, **{"local-epochs": 1}), ctx, work)
    assert isinstance(reply, Message)
    assert wire.RECORD not in reply.content
