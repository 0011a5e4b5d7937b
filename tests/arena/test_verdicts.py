"""From bouts to ratios, and the command from start to page."""

from math import exp, log

import pytest
from mel_simulation.arena.page import TRAITS, draw, page, write
from mel_simulation.arena.rivals import OURS, RIVALS
from mel_simulation.arena.verdict import Arena, Ratio, corrected, written
from scipy.stats import ttest_1samp
from typer.testing import CliRunner

from flwr_mel.tools.cli import app as cli

SETTING = {"name": "a", "title": "A setting", "targets": [0.8, 0.9]}


def row(rival, seed, time_s, energy_j=10.0, end=100.0):
    reached = None if time_s is None else {"time_s": time_s, "energy_j": energy_j}
    return {
        "setting": {"name": "a"},
        "rival": rival,
        "with": {"class": "X", "epochs": 1},
        "seed": seed,
        "reached": [reached, reached],
        "curve": [[0.0, 0.1, 0.0], [end, 0.85, 40.0]],
    }


def arena(rows, tuning=None, seeds=(0, 1, 2), power_w=0.0):
    about = {
        "profile": "made",
        "settings": [{**SETTING, "power_w": power_w}],
        "seeds": list(seeds),
        "tuning_seed": tuning,
        "notice": "",
        "bouts": len(rows),
    }
    return Arena(about, tuple(rows))


def test_ratios_are_paired_geometric_means_with_the_t_interval():
    ours, theirs = [10.0, 20.0, 30.0], [15.0, 24.0, 50.0]
    rows = [row("ha-progress", s, t) for s, t in enumerate(ours)]
    rows += [row("fedavg", s, t) for s, t in enumerate(theirs)]
    found = arena(rows).ratio("a", "fedavg", 1, "time_s")
    logs = [log(b / a) for a, b in zip(ours, theirs, strict=True)]
    interval = ttest_1samp(logs, 0).confidence_interval(0.95)
    assert found.value == pytest.approx(exp(sum(logs) / 3))
    assert (found.low, found.high) == pytest.approx((exp(interval.low), exp(interval.high)))
    assert found.verdict == ("ours" if found.low > 1 else "open")


def test_who_never_gets_there_counts_with_what_it_spent_and_cannot_win():
    rows = [row("ha-progress", s, 50.0) for s in range(3)] + [
        row("fedavg", s, None, end=20.0) for s in range(3)
    ]
    found = arena(rows).ratio("a", "fedavg", 0, "time_s")
    assert found.never == 3
    assert found.value == pytest.approx(0.4)
    assert found.verdict == "open"
    assert written(found).startswith("≥ 0.40")
    neither = [row("ha-progress", 0, None), row("fedavg", 0, None)]
    assert arena(neither).ratio("a", "fedavg", 0, "time_s").verdict == "neither"


def test_ours_is_picked_on_the_tuning_seed_beside_its_like():
    rows = [row("ha-asyn", 9, 10.0), row("ha-progress", 9, 30.0), row("ha-progress", 0, 1.0)]
    assert arena(rows, tuning=9).pick("a", "fedavg") == "ha-asyn"
    assert arena(rows).pick("a", "fedavg") == "ha-progress"
    rows += [row("ha-asyn-m", 9, 5.0)]
    some = arena(rows, tuning=9)
    assert some.pick("a", "fedavg") == "ha-asyn"
    assert some.pick("a", "fedavgm") == some.pick("a", "ha-asyn-m") == "ha-asyn-m"
    assert arena(rows).pick("a", "fedbuff-m") == "ha-asyn-m"


def test_best_meets_best_whatever_it_is_made_of():
    rows = [
        row("ha-asyn", 9, 30.0),
        row("ha-asyn-m", 9, 10.0),
        row("fedbuff", 9, 20.0),
        row("fedavg", 9, 90.0),
    ]
    for s in range(3):
        rows += [row("ha-asyn-m", s, 10.0 + s), row("fedbuff", s, 21.0 + 2 * s), row("fedavg", s, 5.0)]
    text = page(arena(rows, tuning=9))
    assert "| A setting | ha-asyn-m | fedbuff | 2.09" in text
    assert "Of 1 settings ours is sooner than any other in 1 and later in 0; it is sooner than what" in text
    rows += [row("fednova-m", s, 5.0 + s) for s in (0, 1, 2, 9)]
    rows[-1]["reached"] = rows[0]["reached"][:1] * 2  # 30 s: not as soon as fedbuff on the tuning seed
    assert "| A setting | ha-asyn-m | fedbuff |" in page(arena(rows, tuning=9))
    rows[-1] = row("fednova-m", 9, 15.0)
    text = page(arena(rows, tuning=9))
    assert "| A setting | ha-asyn-m | fednova-m | 0.54" in text
    assert "| fedbuff | 2.09" in text
    assert "in 0 and later in 1; it is sooner than what is published in 1 and later in 0." in text
    assert "Best against best" not in page(arena(rows))


def test_many_comparisons_are_corrected_by_holm():
    ps, seeds = [0.04, 0.001, 0.03, 0.012], 3

    def made(p, low=2.0, high=3.0, never=0):
        return Ratio(1.0, low, high, 3, never, 0, seeds, p)

    assert corrected([made(p) for p in ps]) == ["ours", "ours"]  # 0.03 > 0.05 / 2, and then it ends
    assert corrected([made(0.001, 0.1, 0.5), made(0.9)]) == ["rival"]
    assert corrected([made(0.001, 0.1, 0.5, never=1)]) == []
    ratio = arena(
        [row("ha-progress", s, t) for s, t in enumerate((10.0, 20.0, 30.0))]
        + [row("fedavg", s, t) for s, t in enumerate((15.0, 24.0, 50.0))]
    ).ratio("a", "fedavg", 1, "time_s")
    logs = [log(b / a) for a, b in ((10.0, 15.0), (20.0, 24.0), (30.0, 50.0))]
    assert ratio.p == pytest.approx(ttest_1samp(logs, 0).pvalue)


def test_a_bout_that_was_cut_short_is_not_picked_and_the_page_tells_of_it():
    cut = {**row("ha-progress", 9, None, end=9.0), "until_s": 9.0, "cut_short": True}
    rows = [row("ha-asyn", 9, 30.0), row("ha-progress", 9, 9.0), cut]
    rows += [row("ha-progress", 0, 10.0), row("fedavg", 0, 20.0)]
    assert arena(rows, tuning=9).pick("a", "fedavg") == "ha-progress"
    assert "cut short (not counted as failed)" in page(arena(rows, tuning=9))
    assert "cut short" not in page(arena(rows))


def test_the_figure_shows_only_settings_of_which_something_is_known():
    rows = [row("ha-progress", s, 10.0 + s) for s in range(3)] + [row("fedavg", s, 20.0) for s in range(3)]
    some = arena(rows)
    some.about["settings"].append({**SETTING, "name": "later", "power_w": 0.0})
    assert [text.get_text() for text in draw(some).legends[-1].get_texts()] == ["a"]


def test_losses_are_named_with_what_they_cost():
    rows = [row("ha-progress", s, 50.0 + s, 10.0) for s in range(3)]
    rows += [row("fedbuff", s, 20.0 + s, 90.0 + s) for s in range(3)]
    text = page(arena(rows))
    assert "a rival in 1" in text
    assert "- A setting: **fedbuff** takes 0.41" in text
    assert "nobody ever waits" in text
    assert "it spends 22.1 times our power" in text
    assert "it keeps no energy limit and spends" in page(arena(rows, power_w=1.0))


def test_every_rival_has_a_reason():
    assert set(RIVALS) == set(TRAITS) | set(OURS)
    for rival in TRAITS:
        rows = [row("ha-progress", s, 50.0 + s, 10.0 + s) for s in range(3)]
        rows += [row(rival, s, 20.0 + s, 9.0 + 0.5 * s) for s in range(3)]
        assert f"**{rival}** takes 0.41" in page(arena(rows))
        assert f"Otherwise than ours {TRAITS[rival]}; it " in page(arena(rows))


def test_a_loss_at_an_earlier_target_is_told_and_a_target_that_few_reach_compares_nobody():
    rows = [row("ha-progress", s, 50.0 + s) for s in range(3)] + [
        row("fedbuff", s, 20.0 + s) for s in range(3)
    ]
    for each in rows:
        each["reached"][1] = None
    some = arena(rows)
    assert some.goal("a") == 0
    text = page(some)
    assert "time to 80 %, theirs / ours" in text
    assert "of our energy to 80 %" in text
    assert "ours is better in 0 comparisons, a rival in 1, 0 are open (corrected" in text


def test_where_nobody_gets_there_nobody_is_better():
    rows = [row(name, s, None) for name in ("ha-progress", "fedbuff") for s in range(3)]
    assert "a rival in 0, 0 are open, in 1 neither got there (corrected" in page(arena(rows))


@pytest.mark.parametrize(("cheapest", "won"), [(2.0, 1), (30.0, 0)])
def test_energy_is_counted_with_the_one_of_ours_that_saves_it(cheapest, won):
    rows = [row("ha-progress", s, 20.0, 50.0 + s) for s in range(3)]
    rows += [row("tifl", s, 40.0, 10.0 + s) for s in range(3)]
    text = page(arena(rows))
    assert "Energy: ours is better in 0 comparisons, a rival in 1, 0 are open (corrected" in text
    rows += [row("cheapest", s, 60.0, cheapest + s) for s in range(3)]
    assert f"Of the 1 that a rival wins, {won} are won by our `cheapest`" in page(arena(rows))


def test_settings_of_a_rival_inside_another_are_written_out():
    rows = [row("ha-progress", s, 50.0 + s) for s in range(3)] + [
        row("fedavgm", s, 60.0 + s) for s in range(3)
    ]
    for each in rows[3:]:
        each["with"] = {"class": "FedAvgM", "inner": {"class": "FedAvg", "epochs": 3}, "momentum": 0.8}
    assert "| fedavgm | epochs 3, momentum 0.8 |" in page(arena(rows))


def test_what_is_not_finished_is_marked_and_not_dropped():
    rows = [row("ha-progress", s, 50.0 + s) for s in range(3)]
    rows += [row("fedavg", 0, 60.0), row("fedavg", 1, 70.0)]
    some = arena(rows)
    some.about["rivals"] = ["fedavg", "fedbuff", "ha-progress"]
    some.about["settings"] = [SETTING, {**SETTING, "name": "b", "title": "Another"}]
    some.about["bouts"] = 18
    text = page(some)
    assert "13 of 18 bouts are not finished" in text
    assert "## A setting\n\n**Not finished: 4 of 9 bouts are missing.**" in text
    assert "## Another\n\n**Not finished: none of its bouts is reported yet.**" in text
    assert "| fedavg (*2 of 3 seeds*) |" in text
    assert "| fedbuff (*0 of 3 seeds*) |  |  |  |  |  | not finished | not finished |" in text
    assert "3 are not finished (corrected" in text
    assert some.ratio("a", "fedbuff", 0, "time_s").verdict == "not finished"
    assert written(some.ratio("b", "fedavg", 0, "time_s")) == "not finished"


def test_unfinished_bouts_are_said(tmp_path):
    some = arena([row("ha-progress", 0, 5.0), row("fedavg", 0, 9.0)])
    some.about["bouts"] = 6
    assert "4 of 6 bouts are not finished" in page(some)
    paths = write(some, tmp_path)
    assert all(path.stat().st_size for path in paths)


def test_an_unknown_profile_is_an_error_that_names_the_known_ones(tmp_path):
    done = CliRunner().invoke(cli, ["arena", "tomorrow"])
    assert done.exit_code == 2
    assert "quick" in done.output


def test_no_two_settings_look_alike():
    rows = [row(name, s, 10.0 + s) for name in ("ha-progress", "fedavg") for s in range(3)]
    some = arena(rows)
    for name in "bcdefghij":
        some.about["settings"].append({**SETTING, "name": name})
        some = Arena(some.about, (*some.rows, *({**each, "setting": {"name": name}} for each in rows)))
    marks = [(line.get_color(), line.get_marker()) for line in draw(some).legends[-1].get_lines()]
    assert len(set(marks)) == len(marks) == 10
