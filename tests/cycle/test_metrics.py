"""Metrics that strategies can combine, whatever one client reports."""

import math

import pytest

from flwr_mel.cycle.metrics import consistent, countable

GOOD = {"metrics": {"loss": 1.0, "hits": [1, 2]}, "arrays": None}


def settled(*replies, before=None, weights=None):
    weights = weights or [1] * len(replies)
    new, form, changed = consistent(dict(enumerate(replies)), dict(enumerate(weights)), before)
    return [new[k] for k in sorted(new)], form, changed


_, FORM, _ = settled(GOOD, GOOD)


def test_what_agrees_stays_as_it_is():
    found, _, changed = settled(GOOD, GOOD, GOOD)
    assert all(x is GOOD for x in found)
    assert not changed


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        ({"arrays": None}, "hits, loss, metrics"),
        ({"metrics": {"hits": [1, 2]}, "arrays": None}, "loss"),
        ({"metrics": {"loss": 1.0, "hits": [1, 2], "more": 3}, "arrays": None}, "more"),
        ({"metrics": {"loss": [1.0], "hits": [1, 2]}, "arrays": None}, "loss"),
        ({"metrics": {"loss": 10**400, "hits": [1, 2]}, "arrays": None}, "loss"),
        ({"metrics": {"loss": "low", "hits": [1, 2]}, "arrays": None}, "loss"),
        ({"metrics": {"loss": 1.0, "hits": [1, 2, 3]}, "arrays": None}, "hits"),
        ({"metrics": {"loss": 1.0, "hits": 3}, "arrays": None}, "hits"),
        ({"other": {"loss": 1.0, "hits": [1, 2]}, "arrays": None}, "hits, loss, metrics, other"),
        (GOOD | {"extra": {}}, "extra"),
        ({"metrics": GOOD["metrics"], "model": None}, "arrays, model"),
        ({"metrics": {"loss": 1.0, "hits": [1, 2], "a\nb": 3}, "arrays": None}, "a b"),
    ],
)
def test_one_client_with_other_metrics(odd, named):
    """Wherever it comes, also alone with one other, and alone after rounds in which all agreed."""
    for replies in ([odd, GOOD, GOOD], [GOOD, GOOD, odd]):
        found, form, changed = settled(*replies)
        assert {*map(frozenset, found)} == {frozenset(GOOD)}
        assert all(x == GOOD for x in found)  # completed by the mean of the others
        assert form == FORM
        assert list(changed.values()) == [named]
    (alone,), form, _ = settled(odd, before=FORM)
    assert {*GOOD} <= {*alone}
    assert {*GOOD["metrics"]} <= {*alone["metrics"]}
    assert type(alone["metrics"]["loss"]) is float
    assert len(alone["metrics"]["hits"]) == 2
    assert form == FORM
    both, _, _ = settled(odd, GOOD)
    assert {name: x and {*x} for name, x in both[0].items()} == {
        name: x and {*x} for name, x in both[1].items()
    }


def test_the_mean_of_the_others():
    """The weighted mean over all clients is then that over the clients that reported."""
    few, many = {"": {"loss": 1.0}}, {"": {"loss": 4.0}}
    found, _, _ = settled(few, many, {"": {}}, weights=[1, 2, 7])
    assert found[2] == {"": {"loss": 3.0}}
    (alone,), _, _ = settled({"": {}}, before={("", ""): "metrics", ("", "loss"): "a number"})
    assert math.isnan(alone[""]["loss"])
    found, _, _ = settled({"": {"tag": "a"}}, {"": {"tag": "a"}}, {"": {}})
    assert found[2] == {"": {"tag": "a"}}


def test_projects_whose_clients_all_report_other_metrics_keep_them():
    own = [{"": {f"loss-{k}": 1.0}} for k in range(4)]
    found, form, changed = settled(*own)
    assert found == own
    assert not changed
    assert form is None


def test_what_all_report_may_change():
    """A metric of every fifth round; but one client alone does not change what is expected."""
    more = {"metrics": GOOD["metrics"] | {"late": 1.0}, "arrays": None}
    found, form, changed = settled(more, more, GOOD, before=FORM)
    assert all(x == more for x in found)
    assert list(changed) == [2]
    assert settled(GOOD, GOOD, GOOD, before=form)[2] == {}
    (alone,), form, _ = settled(more, before=FORM)
    assert alone == more
    assert form == FORM


def test_nothing_came():
    assert settled(before=FORM) == ([], FORM, {})


def test_numbers_of_examples():
    assert all(map(countable, (0, 1, 2.5, 10**9)))
    assert not any(map(countable, (-1, math.nan, math.inf, 10**400, "9", [3], None)))
