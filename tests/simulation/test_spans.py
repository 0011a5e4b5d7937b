"""Tasks across cycles in simulations and sweeps: the plan, the same bits both ways, the page about them."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from mel_simulation.app.client_app import app
from mel_simulation.paper import stragglers as page
from mel_simulation.scenario.config import LAYERS, RunConfig
from mel_simulation.scenario.dry_run import settings_of
from mel_simulation.scenario.job import batch_size, dataset_of, local_indices
from mel_simulation.scenario.network import initial_weights
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.schedule import facts, plan_schedule
from mel_simulation.sweep.training import train_cell

from bench.strategy import InProcessGrid
from flwr_mel.serverapp import MelFedAvg, MelStrategy

K = 8
BASE = {
    "mode": "fl",
    "learners": K,
    "speeds": 30.0,
    "rare-labels": 2,
    "energy": 0.0,
    "samples": 1200,
    "min-samples": 60,
    "cycle-time": 10.0,
    "cycles": 6,
}
#: Keys and signatures of before updates counted again.
BEFORE = {
    ("span", "nova-held"): ("217fa3f9c9436aa6", "f77d9451339ca164"),
    ("span", "data"): ("8c0ff6373e0097a5", "cc9cb615c053ef05"),
    ("span", "nova"): ("61b9186376519ea0", "bfdca9b2970312ef"),
    ("keep", "nova-held"): ("aea038578ad5704f", "40a298ddcdf0b2bf"),
}
RULES = {"data": "samples", "nova": "nova", "nova-held": "nova-held"}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "1")


def planned(policy, **more):
    cell = Cell.parse({**BASE, "stragglers": policy, **more})
    return cell, plan_schedule(cell, K)


def test_the_slowest_alone_hold_the_rare_labels():
    config = RunConfig.parse({**BASE, "stragglers": "span"})
    labels = dataset_of(config).train_y
    held = [local_indices(config, k, K) for k in range(K)]
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(len(labels)))
    for k, rows in enumerate(held):
        assert set(labels[rows]) == ({8, 9} if k >= 6 else set(range(8)))


def test_spanning_slows_nobody_and_leaves_nobody_out():
    (_, keep), (_, out), (_, span) = (planned(policy) for policy in ("keep", "exclude", "span"))

    def rest(schedule):
        return np.mean([facts(cycle)["rest_epochs"] for cycle in schedule.cycles])

    assert rest(span) >= 0.98 * rest(out) > 1.5 * rest(keep)
    slow = {"learner-06", "learner-07"}
    assert not slow & {t.learner for cycle in out.cycles for t in cycle.tasks}
    assert slow <= {t.learner for cycle in span.cycles for t in (*cycle.tasks, *cycle.moved)}
    assert any("moved" in facts(cycle) for cycle in span.cycles)
    assert all(cycle.makespan_s <= BASE["cycle-time"] for cycle in span.cycles)


class Simulated(InProcessGrid):
    """Nodes of the simulation's app."""

    def __init__(self, config):
        super().__init__(app, K)
        self.contexts = {
            k + 1: Context(1, k + 1, {"partition-id": k, "num-partitions": K}, RecordDict(), config.as_dict())
            for k in range(K)
        }


@pytest.mark.parametrize("average", RULES)
def test_the_sweep_has_the_bits_of_the_strategy(average, monkeypatch):
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
    monkeypatch.setattr("flwr_mel.clientapp.mod.simulated", lambda: True)
    cell, schedule = planned("span", average=average)
    assert any(cycle.moved for cycle in schedule.cycles)
    assert any(cycle.again for cycle in schedule.cycles) == (average == "nova-held")
    curve = train_cell(cell, schedule)
    inner = MelFedAvg(fraction_evaluate=0.0, min_train_nodes=K, min_available_nodes=K)
    strategy = MelStrategy(inner, average=RULES[average], **settings_of(cell.config))
    data, losses = dataset_of(cell.config), []

    def evaluate_fn(cycle, arrays):
        from mel_simulation.scenario.network import evaluate

        if cycle:
            losses.append(evaluate(arrays.to_numpy_ndarrays(), data.test_x, data.test_y)[0])

    asked = ConfigRecord({"batch-size": batch_size(cell.config), "train-samples": len(data.train_y)})
    start = ArrayRecord(initial_weights(cell.config.seed, LAYERS))
    grid = Simulated(cell.config)
    strategy.start(grid, start, num_rounds=6, train_config=asked, evaluate_fn=evaluate_fn)
    assert losses == curve.loss
    used = [sum(row.moved_weight > 0 for row in record.learners) for record in strategy.records]
    assert used == [len(cycle.moved) for cycle in schedule.cycles]
    again = [[(x.learner, x.cycle, x.cycles) for x in record.echoes] for record in strategy.records]
    assert again == [[(t.learner, t.cycle, m) for t, m in cycle.again] for cycle in schedule.cycles]
    assert len(curve.rare) == 6


def test_updates_that_count_again_make_another_training():
    """Results of before that rule are not taken for those of today, and all others are what they were."""
    for (policy, average), (key, signature) in BEFORE.items():
        cell, schedule = planned(policy, average=average)
        lasting = (policy, average) == ("span", "nova-held")
        assert (cell.key == key, schedule.signature(cell) == signature) == (not lasting, not lasting)
        assert sum("again" in facts(cycle) for cycle in schedule.cycles) == 3 * lasting
        # Also where updates came in the last cycle only: they count for another weight than before.
        once = replace(schedule, cycles=tuple(replace(cycle, again=()) for cycle in schedule.cycles))
        assert (once.signature(cell) == signature) == (not lasting)


def test_the_options_are_checked():
    with pytest.raises(ValueError, match="stragglers must be keep or exclude with the classic api"):
        RunConfig(stragglers="span", api="classic")
    with pytest.raises(ValueError, match="max_span must be left out where stragglers is not span"):
        RunConfig(max_span=3)
    with pytest.raises(ValueError, match="rare_labels must be left out in mode pl"):
        RunConfig(rare_labels=2)
    with pytest.raises(ValueError, match="speeds must be 0, or at least 1"):
        RunConfig(speeds=0.5)


def test_cells_of_before_these_options_are_still_the_same():
    """Finished sweeps must not begin anew."""
    cell = Cell.parse({"cycles": 3, "learners": 20})
    assert not {"stragglers", "max-span", "speeds", "rare-labels"} & set(cell.as_dict())
    assert cell.key == "11c315748bf4dd10"
    assert Cell.parse({"cycles": 3, "learners": 20, "stragglers": "span"}).key != cell.key


def test_the_page_says_who_learns_what():
    rows = []
    for policy, rare in (("keep", 0.1), ("exclude", 0.0), ("span", 0.9)):
        for seed in (0, 1):
            cell, schedule = planned(policy, average="nova-held", seed=seed, cycles=3)
            curve = [0.5, 0.86, 0.8 + rare / 8]
            rows.append(
                {
                    "config": cell.as_dict(),
                    "trouble": "",
                    "acts": [facts(cycle) for cycle in schedule.cycles],
                    "accuracy": curve,
                    "rare_accuracy": [0.0, 0.0, rare],
                }
            )
    text = page.document(rows)
    assert "speeds are 30 times apart" in text.replace("\n", " ")
    cells = [line.split(" | ") for line in text.splitlines() if "|" in line]
    lines = {first.strip("| "): rest for first, *rest in cells}
    assert lines["span"][:2] == ["91.25 ± 0.00", "90.00 ± 0.00 (90 to 90)"]
    assert lines["exclude"][-1].strip(" |") == "1.00"
    assert "Span against exclude, seed by seed: +90.00 ± 0.00 points on the rare labels (better)" in text
    assert "the others do at least 1.0" in text  # times the epochs, in every seed
    assert lines["exclude"][4] == "-"
    assert float(lines["span"][-1].strip(" |")) >= 0.98
    phones = [
        {**row, "config": {**row["config"], "phones": True, "rare-labels": 0}}
        for row in rows
        if row.pop("rare_accuracy")
    ]
    with_phones = page.document([{**r, "rare_accuracy": [0.0] * 3} for r in rows] + phones)
    assert [line for line in with_phones.splitlines() if line.startswith("# ")] == [text.splitlines()[0]]
    assert "\n## Real phones\n" in with_phones
    assert "\n### FedNova, n_k / n, even labels\n" in with_phones
    with pytest.raises(ValueError, match="run `flwr-mel sweep stragglers` first"):
        page.document([])


def test_the_page_does_not_depend_on_who_reported_last():
    """Between two reports of slow devices a model forgets their labels: one cycle says little."""
    cell, schedule = planned("span", cycles=8)
    acts = [facts(cycle) for cycle in schedule.cycles]
    row = {"config": cell.as_dict(), "trouble": "", "acts": acts}
    curve = [0.1] * 6 + [0.7, 0.9]
    text = page.document([{**row, "accuracy": curve, "rare_accuracy": [0.0] * 7 + [0.8]}])
    assert "| span | 80.00 | 40.00 (0 to 80) |" in text


def test_the_page_counts_epochs_of_longer_cycles_by_the_second():
    rows = []
    for policy, time_s, cycles in (("exclude", 10.0, 6), ("keep", 30.0, 2)):
        cell, schedule = planned(policy, **{"cycle-time": time_s}, cycles=cycles)
        acts = [facts(cycle) for cycle in schedule.cycles]
        row = {"config": cell.as_dict(), "trouble": "", "acts": acts, "accuracy": [0.5] * cycles}
        rows.append({**row, "rare_accuracy": [0.0] * cycles})
    short, long = (np.mean([act["rest_epochs"] for act in row["acts"]]) for row in rows)
    last = page.document(rows).strip().splitlines()[-1]
    assert last.startswith("| keep, T = 30 s |")
    assert float(last.split(" | ")[-1].strip(" |")) == pytest.approx(long / 3 / short, abs=0.006)
