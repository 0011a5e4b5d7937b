"""Everything that parses a stranger's words, fed with bent inputs: understood or refused."""

import numpy as np
from flwr.app import Message, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flwr_mel import wire
from flwr_mel._npy import read_npy
from flwr_mel.clientapp import Assignment
from flwr_mel.flower.metrics import check_weight, fill_in
from flwr_mel.flower.replies import Sieve
from flwr_mel.orchestrator import Capability, RefusedUpdate, brief, odd_metrics
from flwr_mel.serverapp.replies import read_reply
from tests import attacks
from tests.attacks import MODEL, npy, pick
from tests.fuzz.tools import PLANNED, check_words, inputs, tried


def test_there_are_a_hundred_thousand_inputs():
    assert sum(PLANNED.values()) >= 100_000


def test_bytes_are_decoded_as_numpy_does_or_refused():
    accepted, fine = 0, [npy(array) for array in MODEL.values()]
    for rng in inputs("bytes"):
        k = int(rng.integers(2))
        data = attacks.evil_bytes(rng, fine[k])
        try:
            array = read_npy(data)
        except ValueError as error:
            check_words(error, 200)
            continue
        accepted += 1
        assert array.nbytes <= len(data)
        # No other reader may see something else in the same bytes: inner strategies use numpy's.
        theirs = np.load(attacks.io.BytesIO(data), allow_pickle=False)
        assert (theirs.shape, theirs.dtype) == (array.shape, array.dtype)
        assert theirs.tobytes() == array.tobytes()
    assert accepted > tried("bytes") / 70


def test_words_are_understood_or_refused():
    able = 0
    for rng in inputs("words"):
        words = attacks.evil_words(rng)
        try:
            capability = Capability.parse(words, "fallback")
        except ValueError as error:
            check_words(error, 400)
            continue
        able += capability.able
        assert capability.learner.isprintable()
        assert 0 < len(capability.learner) <= 200
        assert capability.max_samples is None or 0 <= capability.max_samples <= 2**40
    assert able > tried("words") / 28


def test_replies_are_clean_or_refused():
    clean = 0
    for rng in inputs("replies"):
        content = attacks.evil_content(rng)
        try:
            read = read_reply(content, lambda claim: check_weight(claim, 30), "num-examples", free=False)
        except RefusedUpdate as refused:
            check_words(refused, 300)
            continue
        sieve = Sieve()
        sieve.begin({(key,): array for key, array in MODEL.items()})
        sifted = sieve.sift({"13": read.reply}, 3)
        for reason in sifted.refused.values():
            check_words(reason, 300)
        if sifted.refused:
            continue
        clean += 1
        assert 1 <= read.reply.weight <= 30
        again = read.content(sifted.metrics["13"], sifted.keys, ("arrays", "metrics"))
        assert (len(again.array_records), len(again.metric_records)) == (1, 1)
        for key, array in again["arrays"].items():
            assert np.isfinite(array.numpy()).all()
            assert array.shape == array.numpy().shape == MODEL[key].shape
            assert array.dtype == str(array.numpy().dtype)
            assert array.numpy().dtype.kind == MODEL[key].dtype.kind
    assert clean > tried("replies") / 17


def test_tasks_from_a_malicious_server_are_understood_or_refused():
    fine = {wire.EPOCHS: 2, wire.SAMPLES: 2, wire.CYCLE: 1, wire.SEED: 7, f"{wire.SHARD}0": npy(MODEL["a"])}
    read = 0
    for rng in inputs("tasks"):
        words = dict(fine)
        for _ in range(int(rng.integers(1, 3))):
            key = pick(rng, list(fine))
            words[key] = (
                attacks.evil_value(rng) if rng.random() < 0.6 else attacks.evil_bytes(rng, npy(MODEL["a"]))
            )
        if rng.random() < 0.1:
            del words[key]
        try:
            if rng.random() < 0.05:
                message = Message(
                    RecordDict({"c": attacks.config(words)}), dst_node_id=1, message_type="train"
                )
                assigned = Assignment.from_message(message)
            else:
                assigned = Assignment.from_config(words)
        except (ValueError, KeyError) as error:
            check_words(error, 600)
            continue
        read += 1
        assert min(assigned.epochs, assigned.samples, assigned.cycle) >= 1
        assigned.rng()
        assert len(assigned.choose(10)) <= 10
        assert all(len(part) == assigned.samples for part in assigned.shard or ())
    assert read > tried("tasks") / 60


def test_one_learners_metrics_never_have_another_refused():
    for rng in inputs("metrics"):
        honest = {"num-examples": 3, "loss": 0.5, "parts": [1.0, 2.0]}
        said = {f"honest-{k}": honest for k in range(int(rng.integers(1, 4)))}
        evil = dict(honest)
        for _ in range(int(rng.integers(1, 4))):
            evil[attacks.metric_name(rng)] = attacks.evil_value(rng)
            evil.pop(pick(rng, ("loss", "parts", "none")), None)
        order = [*said.items(), ("evil", evil)]
        keys, odd = odd_metrics(dict(order if rng.random() < 0.5 else order[::-1]))
        assert set(odd) <= {"evil"}
        assert keys <= set(honest)
        if len(said) > 1:
            assert keys == set(honest)
        good = {node: {key: mine[key] for key in keys} for node, mine in said.items()}
        if not odd:
            good["evil"] = {key: evil[key] for key in keys}
        filled = fill_in(good, dict.fromkeys(good, 20))
        if len(said) > 1:
            assert np.isfinite(np.hstack([x for mine in filled.values() for x in mine.values()])).all()
        assert all(filled[node] == good[node] for node in said)


@given(hnp.arrays(st.sampled_from(attacks.DTYPES), hnp.array_shapes(min_dims=0, min_side=0), elements=None))
@settings(max_examples=PLANNED["hypothesis"] // 2, derandomize=True, deadline=None)
def test_what_numpy_writes_is_read(array):
    for order in ("C", "F"):
        back = read_npy(npy(np.asarray(array, order=order)))
        assert back.tobytes() == array.tobytes()
        assert not back.flags.writeable


@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")), st.integers(0, 5))
@settings(max_examples=PLANNED["hypothesis"] // 2, derandomize=True, deadline=None)
def test_reasons_fit_one_line_of_a_log(text, times):
    for reason in (str(RefusedUpdate(text * 10**times)), brief(text * 10**times)):
        assert len(reason) <= 300
        assert reason.isprintable()
