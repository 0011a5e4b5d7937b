"""From bouts to ratios, tables and the figure."""

from math import exp, log

import pytest
from mel_simulation.arena.page import blocks, draw, write
from mel_simulation.arena.verdict import Arena, Ratio, corrected
from scipy.stats import ttest_1samp
from typer.testing import CliRunner

from flwr_mel.tools.cli import app as cli

SETTING = {"name": "a", "title": "A setting", "targets": [0.8, 0.9], "power_w": 1.0, "throttled": False}


def row(rival, seed, time_s, energy_j=10.0, end=100.0):
    reached = None if time_s is None else {"time_s": time_s, "energy_j": energy_j}
    return {
        "setting": {"name": "a"},
        "rival": rival,
        "seed": seed,
        "reached": [reached, reached],
        "curve": [[0.0, 0.1, 0.0], [end, 0.85, 40.0]],
    }


def arena(rows, tuning=None, settings=(SETTING,)):
    about = {"profile": "made", "settings": list(settings), "seeds": [0, 1, 2], "tuning_seed": tuning}
    about |= {"notice": "", "bouts": len(rows), "versions": {"flwr-mel": "9"}}
    return Arena({**about, "rivals": list({r["rival"] for r in rows})}, tuple(rows))


OURS, THEIRS = [10.0, 20.0, 30.0], [15.0, 24.0, 50.0]


def pair(ours, theirs, rival="fedavg"):
    rows = [row("ha-asyn", s, t) for s, t in enumerate(ours)]
    return rows + [row(rival, s, t) for s, t in enumerate(theirs)]


def test_ratios_are_paired_geometric_means_with_the_t_interval():
    found = arena(pair(OURS, THEIRS)).ratio("a", "fedavg", "time_s")
    logs = [log(b / a) for a, b in zip(OURS, THEIRS, strict=True)]
    test = ttest_1samp(logs, 0)
    interval = test.confidence_interval(0.95)
    assert found.value == pytest.approx(exp(sum(logs) / 3))
    assert (found.low, found.high) == pytest.approx((exp(interval.low), exp(interval.high)))
    assert found.p == pytest.approx(test.pvalue)
    assert found.verdict == "open"
    assert str(found) == f"{found.value:.2f} ({found.low:.2f}-{found.high:.2f})"


def test_a_contestant_that_misses_the_target_counts_with_what_it_spent_and_cannot_win():
    rows = [row("ha-asyn", s, 50.0) for s in range(3)]
    rows += [row("fedavg", s, None, end=20.0) for s in range(3)]
    found = arena(rows).ratio("a", "fedavg", "time_s")
    assert (found.never, found.verdict) == (3, "open")
    assert str(found).startswith("≥0.40 (")
    neither = arena([row("ha-asyn", 0, None), row("fedavg", 0, None)])
    assert neither.ratio("a", "fedavg", "time_s").verdict == "-"


def test_ours_is_picked_on_the_tuning_seed_among_those_with_the_same_server():
    tuned = {"ha-sync": 10.0, "ha-asyn": 30.0, "ha-asyn-m": 5.0, "rate": 2.0, "rate-frugal": 3.0}
    rows = [row(name, 9, time_s) for name, time_s in tuned.items()]
    rows += [row(name, 0, 100.0 * k) for k, name in enumerate(tuned, start=1)]
    rows += [row(name, 0, 600.0) for name in ("fedavg", "fedavgm", "fednova-adam")]
    some = arena(rows, tuning=9)
    values = [some.ratio("a", name, "time_s").value for name in ("fedavg", "fedavgm", "fednova-adam")]
    assert values == pytest.approx([6.0, 2.0, 1.5])
    assert arena(rows).ratio("a", "fedavg", "time_s").value == pytest.approx(
        3.0
    )  # the first: nothing was tuned


def test_the_last_target_is_compared_unless_another_is_asked_for():
    rows = pair([50.0, 51.0, 52.0], [20.0, 21.0, 22.0])
    for each in rows[:3]:
        each["reached"][1] = None
    some = arena(rows)
    assert some.ratio("a", "fedavg", "time_s").missed == 3
    assert some.ratio("a", "fedavg", "time_s", target=0).missed == 0


def test_best_meets_best():
    tuned = {"ha-asyn": 30.0, "ha-asyn-m": 10.0, "fedbuff": 20.0, "fednova-m": 15.0}
    rows = [row(name, 9, time_s) for name, time_s in tuned.items()]
    for s in range(3):
        rows += [row("ha-asyn-m", s, 10.0 + s), row("fedbuff", s, 21.0 + 2 * s), row("fednova-m", s, 5.0 + s)]
    text = blocks(arena(rows, tuning=9))["best"]
    assert "| a | ha-asyn-m | fednova-m | 0.54" in text
    assert "| fedbuff | 2.09" in text
    assert "| a |  |  | - | - |  | - | - |" in blocks(arena(rows))["best"]  # nothing was tuned


def test_ours_with_adam_meets_the_best_other_with_adam():
    tuned = {"rate": 10.0, "rate-frugal": 12.0, "fednova-adam": 9.0, "fedavg-adam": 30.0, "fedbuff": 1.0}
    rows = [row(name, 9, time_s) for name, time_s in tuned.items()]
    for s in range(3):
        rows += [row("rate", s, 10.0, 5.0), row("rate-frugal", s, 20.0, 2.0), row("fednova-adam", s, 10.0)]
    text = blocks(arena(rows, tuning=9))["server"]
    cells = "1.00 (1.00-1.00) | 2.00 (2.00-2.00) | 0.50 (0.50-0.50) | 5.00 (5.00-5.00)"
    assert f"| a | fednova-adam | {cells} |" in text


def test_wins_ties_and_losses_are_counted():
    rows = pair([50.0, 51.0, 52.0], [20.0, 21.0, 22.0], "fedbuff")
    rows += [row("tifl", s, 90.0 + s, 2.0) for s in range(3)]
    found = blocks(arena(rows))
    assert "| tifl | 1/0/0 | 0/0/1 |" in found["wins"]
    assert "| fedbuff | 0/0/1 | 0/1/0 |" in found["wins"]
    assert "| **all** | 1/0/1 | 0/1/1 |" in found["wins"]
    assert "| all, first targets | 1/0/1 | 0/1/1 |" in found["wins"]
    assert "| a | A setting | 80, 90 | 1 W |" in found["settings"]
    assert "flwr-mel 9" in found["source"]


def test_many_comparisons_are_corrected_by_holm():
    def made(p, low=2.0, high=3.0, never=0):
        return Ratio(1.0, low, high, 3, never, 0, p)

    assert corrected([made(p) for p in (0.04, 0.001, 0.03, 0.012)]) == ["ours", "ours", "open", "open"]
    assert corrected([made(0.001, 0.1, 0.5), made(0.9)]) == ["rival", "open"]
    assert corrected([made(0.001, 0.1, 0.5, never=1)]) == ["open"]


def test_an_unfinished_arena_can_be_written_and_no_two_settings_look_alike(tmp_path):
    settings = [{**SETTING, "name": name} for name in "abcdefghij"]
    some = arena(pair(OURS, THEIRS), settings=settings)
    marks = [(line.get_color(), line.get_marker()) for line in draw(some).legends[0].get_lines()]
    assert len(set(marks)) == len(marks) == 10
    assert all(path.stat().st_size for path in write(some, tmp_path))


def test_an_unknown_profile_is_an_error_that_names_the_known_ones():
    done = CliRunner().invoke(cli, ["arena", "tomorrow"])
    assert done.exit_code == 4
    assert "quick" in done.output
