"""Our two lines in an ordinary project on Flower's engine, no number given, devices 1 to 10 times slower."""

import json

import pytest

from flwr_mel.records import CycleRecord, Outcome
from tests.flower.slowed_app import HELD

APP = "tests.flower.slowed_app"
ROUNDS, OWN = 4, 2


class Played:
    """What one run left."""

    def __init__(self, engine, directory, *, rounds=ROUNDS, **asked):
        self.path = directory
        plain = {"api": "message", "mods": "mel", "wrapped": True, "samples": False, "batches": False}
        words = {**plain, "loader": False, "raises": False, "out": str(directory), "rounds": rounds, **asked}
        config = {"local-epochs": OWN}
        self.log = engine.play(APP, directory, config=config, nodes=4, SLOWED=json.dumps(words))

    def lines(self, name):
        return [json.loads(line) for line in (self.path / name).read_text().splitlines()]

    @property
    def records(self):
        return [CycleRecord.from_dict(line) for line in self.lines("cycles.jsonl")]

    def model(self, cycle):
        return next(line["model"] for line in self.lines("models.jsonl") if line["cycle"] == cycle)

    def did(self, cycle):
        """Epochs and samples of everybody."""
        mine = sorted(
            (x["k"], x["epochs"], x["samples"]) for x in self.lines("did.jsonl") if x["cycle"] == cycle
        )
        return [(epochs, samples) for _, epochs, samples in mine]


@pytest.fixture(params=["message", "classic"])
def api(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    def made(name):
        (tmp_path / name).mkdir()
        return tmp_path / name

    return made


@pytest.mark.parametrize("samples", [False, True])
def test_every_round_is_as_long_as_it_should_be(api, engine, folder, samples):
    plain = Played(engine, folder("plain"), api=api, mods="plain", wrapped=False, rounds=1)
    wrapped = Played(engine, folder("wrapped"), api=api, samples=samples)
    # The first cycle is the round that the project had, to the bit.
    assert wrapped.model(1) == plain.model(1)
    assert wrapped.did(1) == plain.did(1) == [(OWN, n) for n in HELD]
    first, *later = wrapped.records
    assert len(later) == ROUNDS - 1
    assert first.status == "free"
    assert [(row.epochs, row.samples, row.weight) for row in first.learners] == [(OWN, n, n) for n in HELD]
    for record in later:
        rows = record.learners
        assert [row.outcome for row in rows] == [Outcome.USED] * 4
        # What the record says is what the clients did.
        assert [(row.epochs, row.samples) for row in rows] == wrapped.did(record.cycle)
        assert [(row.epochs_done, row.samples_used) for row in rows] == wrapped.did(record.cycle)
        assert [row.weight for row in rows] == [row.samples for row in rows]
        assert 0 < record.cycle_time_s <= record.own_round_s
        # Waiting for one of the engine's two workers is nobody's link.
        assert all(row.round_trip_s is None for row in rows)
        assert rows[0].epochs > rows[3].epochs
        if not samples:
            assert [row.samples for row in rows] == list(HELD)
    advice = [note for record in wrapped.records for note in record.notes if "uses all its samples" in note]
    assert len(advice) == (0 if samples else 1)


def test_batches_in_place_of_samples_are_said_once_and_change_no_weight(api, engine, folder):
    played = Played(engine, folder("batches"), api=api, samples=True, batches=True)
    for record in played.records[1:]:
        assert [row.weight for row in record.learners] == [n for _, n in played.did(record.cycle)]
    notes = [note for record in played.records for note in record.notes if "perhaps batches" in note]
    assert len(notes) == 1
    assert "len(loader.dataset)" in notes[0]


def test_batches_of_a_client_that_has_only_the_two_lines_are_counted_as_samples(api, engine, folder):
    played = Played(engine, folder("loader"), api=api, batches=True, loader=True)
    for record in played.records:
        rows = record.learners
        assert [row.samples for row in rows] == [row.weight for row in rows] == list(HELD)
        assert [row.samples_used for row in rows] == list(HELD)
    notes = [note for record in played.records for note in record.notes if "batches" in note]
    assert len(notes) == 1
    assert notes[0] in played.records[0].notes
    assert "(2 of 32 samples)" in notes[0]
    assert "Report len(loader.dataset), not len(loader)" in notes[0]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"mods": "plain"}, ("does not say what it can do (no mel_mod)", "ClientApp(mods=[mel_mod])")),
        ({"mods": "second"}, ("does not say what it can do (no mel_mod)", "the mod first")),
        ({"mods": "bad"}, ("cannot say what it can do: TypeError: the capability must be", "MelMod(...)")),
        ({"raises": True}, ("RuntimeError: no such file: data.csv", "without MelStrategy")),
    ],
)
def test_a_run_in_which_nobody_works_fails_with_the_cause_and_the_remedy(api, engine, folder, asked, words):
    with pytest.raises(AssertionError) as trouble:
        Played(engine, folder("failing"), api=api, **asked)
    assert "NobodyWorks" in str(trouble.value)
    for word in words:
        assert word in str(trouble.value)
