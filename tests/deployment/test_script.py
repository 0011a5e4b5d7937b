"""Twenty devices, twenty cycles, a seeded script of what befalls them: every record is held against it."""

import numpy as np
import pytest

from bench.scripted import CYCLES, FULL, PROMISED, play
from flwr_mel.checkpoint import Checkpoints
from flwr_mel.records import Outcome, Standing

pytestmark = [pytest.mark.slow, pytest.mark.deployment, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Run the script once for all tests."""
    return play(tmp_path_factory.mktemp("script"))


def rows_of(records, name):
    return {r.cycle: row for r in records for row in r.learners if row.learner == name}


def test_every_cycle_is_on_record_once(told):
    records = told.records
    assert [record.cycle for record in records] == list(range(1, CYCLES + 1))
    began = [record.began_at for record in records]
    assert began == sorted(began)
    assert all(record.duration_s > 0 and record.waited_s > 0 for record in records)


def test_a_full_disk_costs_notes_and_nothing_else(told):
    records, out = told.records, told.out
    notes = "\n".join(note for record in records for note in record.notes)
    for cycle in FULL:
        assert f"failed in cycle {cycle}: OSError: [Errno 27] File too large" in notes
        assert f"no checkpoint of cycle {cycle} in" in notes
    assert f"no checkpoint of cycle {FULL[-1] + 1}" not in notes
    assert Checkpoints(out / "checkpoints").load().cycle == CYCLES
    assert np.isfinite(np.load(out / "model.npy")).all()


def test_who_is_killed_is_missed_and_who_returns_is_back(told):
    roles, returns, records = told.roles, told.returns, told.records
    for name, role in roles.items():
        if "kill" not in role:
            assert not any(name in record.gone for record in records)
            continue
        rows = rows_of(records, name)
        at = min(cycle for cycle, row in rows.items() if cycle >= role["kill"] and row.asked)
        assert all(rows[cycle].outcome is Outcome.USED for cycle in range(1, role["kill"]))
        assert rows[at].outcome in (Outcome.LATE, Outcome.BUSY, Outcome.FAILED)
        missed = [record.cycle for record in records if name in record.gone]
        assert missed
        assert missed == list(range(missed[0], missed[-1] + 1))
        between = [row for cycle, row in rows.items() if at < cycle <= missed[-1]]
        assert not any(row.outcome is Outcome.USED or row.moved_weight for row in between)
        # Its row is there as long as its task is.
        assert all(rows[cycle].standing is Standing.GONE for cycle in missed if cycle in rows)
        back = [row for cycle, row in rows.items() if cycle > missed[-1]]
        assert bool(back) == (name == returns)
    assert any(row.outcome is Outcome.USED for row in back_rows(records, returns))


def back_rows(records, name):
    last = max(record.cycle for record in records if name in record.gone)
    return [row for cycle, row in rows_of(records, name).items() if cycle > last]


def test_who_slows_down_gets_less_and_is_used_again(told):
    roles, records = told.roles, told.records
    for name, role in roles.items():
        if "slow" not in role:
            continue
        first, last, _ = role["slow"]
        rows = rows_of(records, name)
        work = {cycle: row.epochs * row.samples / row.span for cycle, row in rows.items() if row.asked}
        onset = min(cycle for cycle in work if cycle >= first)
        assert rows[onset].outcome in (Outcome.LATE, Outcome.BUSY)
        assert rows[onset].standing in (Standing.LATE, Standing.WORKING)
        assert rows[onset].since is not None
        # Its update is used when it comes, and after that it is not given as much while it is slow.
        came = min(cycle for cycle, row in rows.items() if row.moved_from == onset)
        later = [n for cycle, n in work.items() if came < cycle < last]
        assert not later or max(later) < work[onset]
        assert any(row.outcome is Outcome.USED for cycle, row in rows.items() if cycle >= last)


def test_a_liars_updates_are_refused(told):
    roles, records = told.roles, told.records
    (liar,) = (role for role in roles.values() if "nan" in role)
    for cycle, row in rows_of(records, liar["name"]).items():
        if cycle < liar["nan"]:
            assert row.outcome is Outcome.USED
        elif row.asked and row.received_at is not None:
            assert row.outcome is Outcome.REFUSED
            assert "finite" in row.reason
            assert row.weight == 0


def test_the_others_keep_t_in_the_promised_share_of_cycles(told):
    kept = told.kept()
    for record, held in zip(told.records, kept, strict=True):
        rows = [row for row in record.learners if row.learner in told.honest]
        assert {row.learner for row in rows} == told.honest
        assert all(row.outcome in (Outcome.USED, Outcome.BUSY, Outcome.LATE) for row in rows)
        print(record.cycle, round(record.waited_s, 1), round(record.flower_s or 0, 1), held)
    assert sum(kept) >= PROMISED * CYCLES
