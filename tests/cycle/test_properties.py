"""Whatever clients send: plans keep every constraint, nothing raises, nothing that is given is changed."""

import copy
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flwr_mel import Robust, wire
from flwr_mel.cycle.errors import NoWork
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.plan import plan
from flwr_mel.cycle.settle import Reply, settle
from flwr_mel.cycle.state import State, with_answers, with_nodes
from flwr_mel.records import CycleRecord, Outcome
from tests.cycle.tools import MODEL, App, Run, declared
from tests.search import examples

KEYS = sorted(
    {x for x in vars(wire).values() if isinstance(x, str) and x.startswith("mel-")} | set(wire.COEFFICIENTS)
)
ODD = [0, 1, -1, 2.5, math.nan, math.inf, -math.inf, 1e308, 1e-320, 2**31, 2**40, 2**63 - 1, -(2**63)]
values = st.one_of(
    st.sampled_from(ODD),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=8),
    st.booleans(),
    st.lists(st.floats(), max_size=3),
)
words = st.dictionaries(st.sampled_from(KEYS), values, max_size=12)
costs = st.tuples(
    st.floats(1e-5, 1e-1),
    st.floats(0, 1e-2),
    st.floats(0, 2),
    st.floats(0, 1e-2),
    st.floats(0, 1e-2),
    st.floats(0, 1),
)
limits = st.one_of(st.none(), st.floats(0.1, 100))
fleets = st.lists(st.tuples(costs, limits, st.integers(1, 2000)), min_size=1, max_size=7)


def capability(client):
    six, limit, held = client
    energy = {} if limit is None else {wire.ENERGY_LIMIT_J: limit}
    return declared(six) | energy | {wire.MAX_SAMPLES: held}


@examples(100)
@given(
    fleets,
    st.floats(0.1, 60),
    st.integers(1, 5000),
    st.one_of(st.none(), st.integers(0, 5)),
    st.integers(1, 20),
)
def test_a_plan_keeps_every_constraint(clients, time_s, total, cap, least):
    """T, E_k, c, the smallest batch, what a client holds, and the sum of samples."""
    options = Options(cycle_time_s=time_s, total_samples=max(total, least), staleness=cap, min_samples=least)
    total = options.total_samples
    nodes = [str(k) for k in range(len(clients))]
    answers = {n: {wire.MODDED: 1, **capability(c)} for n, c in zip(nodes, clients, strict=True)}
    state = with_answers(with_nodes(State(), nodes), options, answers)
    try:
        _, tasks, record = plan(state, options, 1, nodes, len(nodes))
    except NoWork as error:
        assert "too short" in str(error)  # noqa: PT017
        return
    for task, row in ((t, next(r for r in record.learners if r.node == t.node)) for t in tasks):
        (c2, c1, c0, g2, g1, g0), limit, held = clients[int(task.node)]
        work = task.epochs * task.samples
        assert c2 * work + c1 * task.samples + c0 <= time_s * (1 + 1e-9)
        assert limit is None or g2 * work + g1 * task.samples + g0 <= limit * (1 + 1e-9)
        assert least <= task.samples <= held
        assert (row.epochs, row.samples) == (task.epochs, task.samples)
    given_out = sum(task.samples for task in tasks)
    assert given_out == record.total_samples <= total
    assert given_out == total or record.notes or not tasks
    epochs = [task.epochs for task in tasks]
    assert not epochs or cap is None or max(epochs) - min(epochs) <= cap
    assert record.bound >= record.value * (1 - 1e-9)


@examples(100)
@given(
    st.lists(words, min_size=1, max_size=4),
    st.lists(words, min_size=4, max_size=4),
    st.booleans(),
    st.randoms(),
)
def test_no_words_raise(answers, reports, timed, random):
    """Answers, reports and numbers of examples are whatever a client likes to send."""
    options = Options(cycle_time_s=5.0 if timed else None, robust=Robust(max_norm_ratio=2.0, max_share=0.5))
    nodes = [str(10 + k) for k in range(len(answers))] + ["90", "91"]
    honest = {wire.MODDED: 1, wire.SIMULATED: 1}
    state = with_nodes(State(), nodes)
    state = with_answers(state, options, dict(zip(nodes, [*answers, honest, honest], strict=True)))
    for cycle in range(1, 5):
        state = with_nodes(state, nodes)
        state, tasks, record = plan(state, options, cycle, nodes, len(nodes))
        replies = {}
        for task in tasks:
            report = {wire.TRAIN_SECONDS: 1.0, wire.SAMPLES_USED: task.samples or 50, wire.SAMPLES_HELD: 50}
            if int(task.node) < 90:
                report = random.choice(reports)
            replies[task.node] = Reply(dict(MODEL), random.choice([50, *ODD]), {**honest, **report}, 1.0)
        for node in ("90", "91"):
            if node in replies:
                replies[node] = Reply(dict(MODEL), 50, replies[node].words, 1.0)
        state, record, updates = settle(state, options, record, replies, MODEL, 1.0)
        assert all(1 <= update.weight <= 2**41 for update in updates)
        assert {u.node for u in updates} == {r.node for r in record.learners if r.outcome is Outcome.USED}
        assert CycleRecord.from_dict(record.as_dict()).as_dict() == record.as_dict()
        assert State.from_dict(state.as_dict()).as_dict() == state.as_dict()
        assert math.isfinite(record.cycle_time_s)
        assert math.isfinite(record.clock_s)


@examples(15)
@given(st.integers(0, 2**32), st.booleans())
def test_honest_clients_keep_the_time(seed, chooses):
    rng = np.random.default_rng(seed)
    apps = [
        App(
            own=int(rng.integers(1, 4)),
            held=int(rng.integers(40, 900)),
            pace=float(10 ** rng.uniform(-4, -2)),
            chooses=chooses,
        )
        for _ in range(int(rng.integers(1, 6)))
    ]
    run = Run(apps)
    own = run.round().waited_s
    for record in run.rounds(5)[1:]:
        assert record.waited_s <= 1.1 * own
        assert all(row.outcome is Outcome.USED for row in record.learners)


def test_functions_change_nothing_they_are_given():
    run = Run([App(), App(pace=1e-2), App(capability=declared() | {wire.MAX_SAMPLES: 50})])
    run.rounds(2)
    state, options, nodes = run.state, run.options, run.nodes
    before = copy.deepcopy(state.as_dict())
    new, tasks, record = plan(state, options, 3, nodes, 3)
    frozen = copy.deepcopy(record)
    replies = {t.node: run._app(t.node).reply(0, t, MODEL) for t in tasks}
    words_ = {node: dict(reply.words) for node, reply in replies.items()}
    arrays = {node: {n: x.copy() for n, x in r.arrays.items()} for node, r in replies.items()}
    once = settle(new, options, record, replies, MODEL, 1.0)
    again = settle(new, options, record, replies, MODEL, 1.0)
    assert record == frozen
    assert state.as_dict() == before
    assert once[0].as_dict() == again[0].as_dict() != new.as_dict()
    assert once[1] == again[1]
    for node, reply in replies.items():
        assert dict(reply.words) == words_[node]
        assert all(np.array_equal(x, arrays[node][n]) for n, x in reply.arrays.items())
    assert with_answers(new, options, {nodes[0]: {wire.MODDED: 1, **declared()}}).as_dict() != new.as_dict()
    assert plan(state, options, 3, nodes, 3)[2] == frozen


def test_one_seed_gives_one_training():
    def train(seed):
        run = Run([App(pace=1e-3 * s) for s in (1, 2, 9)], seed=seed)
        run.rounds(4)
        return [record.as_dict() for record in run.records], [task.seed for task in run.tasks]

    assert train(1) == train(1)
    assert train(1)[1] != train(2)[1]
