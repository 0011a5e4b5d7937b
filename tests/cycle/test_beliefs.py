"""What the server assumes about a client from one round to the next, seen from outside.

Every assumption rests on what a client did or declared last; silence and errors are no evidence but of time.
The clients run the real mod on a virtual clock (`tests.lab`).
"""

import logging

import pytest

from flwr_mel import Estimation, Rounds, Shards, wire
from flwr_mel.checkpoint import Checkpointed
from tests.cycle.histories import DATA
from tests.lab import LATE, SILENT, Client, World, train, wrapped

APIS = pytest.mark.parametrize("api", ["message", "classic"])
#: A loader leaves out a sample that would be the only one of its batch, once per epoch.
LONE = 10
CODES = pytest.mark.parametrize("code", range(9))


class Told(World):
    """A world in which each round may change something: `what` maps rounds to functions of the clients."""

    def __init__(self, clients, what=None, **more):
        super().__init__(clients, **more)
        self.what = what or {}

    def begin(self, number):
        super().begin(number)
        if number in self.what:
            self.what[number](self.clients)


def declared(client, factor=1.0, **more):
    """Declare the client's true costs, or so many times them."""
    costs = (client.pace, 0.0, client.fixed_s, 1e-3, 0.0, 0.1)
    client.profile = dict(zip(wire.COEFFICIENTS, (factor * x for x in costs), strict=True))
    client.profile |= {wire.MAX_SAMPLES: client.held, **more}
    return client


def run(world, number, api="message", /, **options):
    mel = wrapped(world, api, **options)
    with world.clock.running():
        train(mel, world, number, api)
    return list(mel.records)


def row(record, k):
    return next(x for x in record.learners if int(x.node) == 1001 + k)


def work(records, k):
    """Return the planned work of a client in each round; 0: it had no task of its own."""
    return [row(x, k).epochs * row(x, k).samples for x in records]


def did(world, k, rounds):
    return [world.done[n, k].drawn if (n, k) in world.done else 0 for n in range(1, rounds + 1)]


# --- errors ----------------------------------------------------------------------------------------------


@APIS
@CODES
def test_an_error_does_not_make_a_simulated_client_a_stranger(api, code):
    """Shards went to no client any more: PermissionError in the next round."""
    clients = [declared(Client("shard", held=60, simulated=True)) for _ in range(3)]
    world = World(clients)
    world.fates[2, 1] = code
    records = run(world, 6, api, cycle_time_s=1.0, shards=Shards(DATA))
    assert [str(row(x, 1).outcome) for x in (records[0], records[-1])] == ["used", "used"]


@APIS
@CODES
def test_an_error_does_not_start_the_servers_clock(api, code):
    """Time in a simulation with declared costs is what the plans take, also after an error."""
    world = World([declared(Client(held=100, simulated=True)) for _ in range(3)])
    world.fates[2, 1] = code
    records = run(world, 4, api, cycle_time_s=1.0)
    assert [x.waited_s for x in records] == [None] * 4


@pytest.mark.parametrize("code", [code for code in range(9) if code not in LATE])
@APIS
def test_after_an_error_a_client_gets_the_task_that_it_had(api, code):
    clients = [declared(Client(held=100, pace=1e-3 * s)) for s in (1, 2, 4)]
    world = World(clients)
    world.fates[3, 1] = code
    works = work(run(world, 5, api, cycle_time_s=1.0), 1)
    assert works[3] == works[1] > 0


def test_flowers_words_for_silence_are_silence():
    """A message or a reply that expired is late; a node that is not there is no failure of its app."""
    for code in (3, 4):
        world = World([declared(Client(held=100)) for _ in range(3)])
        world.fates[2, 1] = code
        assert str(row(run(world, 2, cycle_time_s=1.0)[1], 1).outcome) == "late"


# --- nothing fits ----------------------------------------------------------------------------------------


@APIS
@pytest.mark.parametrize("policy", ["relax", "skip"])
def test_min_samples_above_what_the_sampled_clients_hold_ends_no_training(api, policy):
    """It raised InputError as soon as only small clients were sampled."""
    world = World([Client(held=n) for n in (200, 200, 30)])
    world.sampled = {4: (2,), 5: (2,)}
    options = {"min_samples": 100, "rounds": Rounds(on_infeasible=policy)}
    records = run(world, 6, api, cycle_time_s=2.0, **options)
    assert len(records) == 6
    assert row(records[3], 2).asked or row(records[3], 2).reason
    assert row(records[5], 0).asked


@APIS
@pytest.mark.parametrize("policy", ["relax", "skip"])
def test_min_samples_above_what_fits_ends_no_training(api, policy):
    """In round 4 nothing fits any more; in round 6 everything does."""

    def slow(clients):
        for client in clients:
            client.pace *= 100
            declared(client)

    def fast(clients):
        for client in clients:
            client.pace /= 100
            declared(client)

    world = Told([declared(Client(held=200)) for _ in range(3)], {3: slow, 5: fast})
    options = {"min_samples": 100, "rounds": Rounds(on_infeasible=policy)}
    records = run(world, 8, api, cycle_time_s=1.0, **options)
    assert len(records) == 8
    assert all(x.asked or x.reason for record in records for x in record.learners)
    assert work(records, 0)[7] > 0


@APIS
@pytest.mark.parametrize("policy", ["relax", "skip"])
def test_best_ends_no_training_when_no_battery_allows_a_task(api, policy):
    def battery(value):
        return lambda clients: [client.profile.update({wire.ENERGY_LIMIT_J: value}) for client in clients]

    clients = [declared(Client(held=200, pace=1e-3 * s)) for s in (1, 2)]
    world = Told(clients, {3: battery(1e-3), 5: battery(1e3)})
    records = run(world, 8, api, cycle_time_s="best", rounds=Rounds(on_infeasible=policy))
    assert len(records) == 8
    empty = [record for record in records if not record.asked]
    assert empty
    assert all("energy" in x.reason for record in empty for x in record.learners)
    assert all(work(records, k)[7] > 0 for k in (0, 1))


# --- what an app follows ---------------------------------------------------------------------------------


@APIS
@pytest.mark.parametrize("broken", ["rows, own epochs", "loader, own epochs", "own work", "steps"])
def test_recorded_work_is_counted_work_or_unknown(api, broken):
    """A stock project with hard-coded epochs: 113 % of the work in the log, 61 % in reality."""
    world = World([Client(broken, own=2, held=320, pace=1e-3 * s) for s in (1, 1, 3, 10)])
    records = run(world, 20, api)
    own = sum(client.own_work() for client in world.clients)
    for record in records[1:]:
        counted = sum(world.done[record.cycle, k].drawn for k in range(4))
        assert record.work is None or record.work == pytest.approx(counted / own, rel=0.05)


@APIS
def test_hard_coded_epochs_are_not_planned(api):
    """The app reads neither a config nor `Assignment.epochs`: whatever epochs are sent, it does its own."""
    world = World([Client("rows, own epochs", own=2, held=320, pace=1e-3 * s) for s in (1, 1, 3, 10)])
    for record in run(world, 12, api)[5:]:
        for k in range(4):
            x = row(record, k)
            if x.asked and not x.baseline:
                assert x.samples == world.done[record.cycle, k].used
                assert x.epochs <= 2  # 1: the server does not know how many they are


@APIS
@pytest.mark.parametrize("given", [None, 3.0])
@pytest.mark.parametrize("honest", ["loader", "rows", "task rows"])
def test_a_cold_first_round_does_not_make_an_honest_client_fixed(api, given, honest):
    """Five seconds of imports in the first round; afterwards all tasks are planned and followed."""
    world = World([Client(honest, own=2, held=320, pace=1e-3 * s, cold_s=5.0) for s in (1, 1, 3, 10)])
    options = {} if given is None else {"cycle_time_s": given}
    records = run(world, 10, api, **options)
    assert not any(x.baseline for record in records[3:] for x in record.learners)
    for k in range(4):
        assert work(records, k)[5:] == pytest.approx(did(world, k, 10)[5:], abs=LONE)


@APIS
@pytest.mark.parametrize(("load_s", "time_s"), [(1.0, 1.2), (0.5, 0.75), (3.0, 3.6)])
def test_fast_clients_whose_loading_takes_most_of_the_time_are_not_skipped(api, load_s, time_s):
    """They were taken for apps that do the same work for every task, and skipped for good."""
    world = World([Client("rows", held=3000, pace=1e-4 * s, fixed_s=load_s) for s in (1, 1, 3, 10)])
    records = run(world, 25, api, cycle_time_s=time_s)
    for k in (0, 1):
        assert all(work(records, k)[4:])


@APIS
@pytest.mark.parametrize("broken", ["rows, own epochs", "loader, own epochs", "steps"])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_repaired_app_is_planned_again(api, broken, resumed, tmp_path):
    """It stayed "own work" for ever, also after a resume."""
    repaired = {"rows, own epochs": "task rows"}.get(broken, "loader")

    def repair(clients):
        for client in clients:
            client.work = repaired

    world = Told([Client(broken, own=2, held=320, pace=1e-3 * s) for s in (1, 1, 3, 10)], {7: repair})
    options = {"cycle_time_s": 4.0}
    with world.clock.running():
        mel = wrapped(world, api, **options)
        if resumed:
            train(Checkpointed(mel, tmp_path), world, 6, api)
            mel = wrapped(world, api, **options)
            again = Checkpointed(mel, tmp_path)
            train(again, world, 14 if api == "message" else again.rounds_left(14), api)
        else:
            train(mel, world, 14, api)
    last = list(mel.records)[-4:]
    for k in range(4):
        assert [row(x, k).baseline for x in last] == [False] * 4
        assert work(last, k) == pytest.approx(did(world, k, 14)[-4:], abs=LONE)
        assert all(work(last, k))
    assert row(last[-1], 0).epochs > 2


# --- time ------------------------------------------------------------------------------------------------


def test_a_client_that_is_late_in_its_first_task_gets_less():
    """It got the complete baseline task in every later round, and was late in each."""
    clients = [Client("rows", own=2, held=800, pace=p) for p in (1e-4, 1e-4, 3e-4, 1.2e-2)]
    world = World(clients)
    records = run(world, 10, cycle_time_s=3.0, rounds=Rounds(deadline_slack=0.5))
    outcomes = [str(row(x, 3).outcome) for x in records]
    assert outcomes[0] == "late"
    assert outcomes.count("late") <= 3
    assert "used" in outcomes


@APIS
@pytest.mark.parametrize("kind", ["loader", "rows"])
@pytest.mark.parametrize("declares", [False, True])
def test_a_client_that_needs_more_than_the_round_time_delays_few_rounds(api, kind, declares):
    """T = 2 s, 5 s for any task: every round took 5 s. It is asked again after 2, 4, 8 and 16 rounds."""
    clients = [Client(kind, held=600, pace=1e-3) for _ in range(3)] + [Client(kind, held=600, fixed_s=5.0)]
    if declares:
        clients[:3] = [declared(client) for client in clients[:3]]
    world = World(clients)
    records = run(world, 20, api, cycle_time_s=2.0, max_epochs=1)
    late = [record.cycle for record in records if world.seconds(record.cycle) > 1.15 * 2.0]
    assert len(late) <= 5
    assert all(row(x, 3).reason for x in records if not row(x, 3).asked)


def test_a_client_that_hangs_costs_few_deadlines():
    """Every round took its whole deadline until the device was restarted."""
    clients = [Client("rows", held=300, pace=1e-3 * s) for s in (1, 1, 2)]
    world = World(clients)
    world.fates = {(n, 2): SILENT for n in range(4, 25)}
    run(world, 24, cycle_time_s=2.0, rounds=Rounds(deadline_slack=0.25))
    assert sum((n, 2) in world.done for n in range(4, 25)) <= 5


@pytest.mark.parametrize("rounds", [1, 3, 8])
@pytest.mark.parametrize("how", ["silent", "slow"])
@pytest.mark.parametrize("kind", ["loader", "rows"])
def test_after_an_outage_a_client_is_back_within_five_tasks(rounds, how, kind):
    """After 8 missed rounds it took 122 rounds."""

    class Outage(World):
        def factor(self, cycle, client):
            slow = how == "slow" and client.k == 2 and 10 <= cycle < 10 + rounds
            return super().factor(cycle, client) * (8.0 if slow else 1.0)

    clients = [declared(Client(kind, held=2000, pace=1e-3 * s)) for s in (1, 1, 2)]
    world = Outage(clients, noise=0.02)
    if how == "silent":
        world.fates = {(n, 2): SILENT for n in range(10, 10 + rounds)}
    options = {"estimation": Estimation(), "rounds": Rounds(deadline_slack=0.25)}
    records = run(world, 60, cycle_time_s=1.5, max_epochs=1, **options)
    works = work(records, 2)
    usual = sum(works[4:9]) / 5
    after = [
        w
        for x, w in zip(records, works, strict=True)
        if x.cycle >= 10 + rounds and row(x, 2).outcome == "used"
    ]
    assert len(after) >= 10
    assert min(after[5:]) >= 0.9 * usual


def test_a_client_that_was_slow_for_a_while_is_asked_for_its_work_again():
    """Eight times slower for a while: it stayed at the smallest task for 30 rounds."""

    class Busy(World):
        def factor(self, cycle, client):
            return 8.0 if client.k == 3 and 6 <= cycle < 10 else 1.0

    world = Busy([Client("rows", held=500, pace=1e-3, fixed_s=0.5) for _ in range(4)])
    works = work(run(world, 40, cycle_time_s=3.0), 3)
    assert works[25] >= 0.9 * works[4] > 0


# --- profiles --------------------------------------------------------------------------------------------


@APIS
@pytest.mark.parametrize("wobble", [0.0, 1e-3, 1e-2])
def test_a_profile_that_wobbles_keeps_what_was_learned(api, wobble):
    """The truth is three times what is declared; learned costs were dropped at every change of a bit."""

    class Wobbling(Told):
        def profile(self, cycle, client):
            factor = (1 + wobble * (-1) ** cycle) / 3
            costs = (client.pace, 0.0, client.fixed_s, 1e-3, 0.0, 0.1)
            words = dict(zip(wire.COEFFICIENTS, (factor * x for x in costs), strict=True))
            return words | {wire.MAX_SAMPLES: client.held}

    world = Wobbling([Client("rows", held=500, pace=1e-3 * s, fixed_s=0.2) for s in (1, 2, 4)])
    records = run(world, 15, api, cycle_time_s=2.0, estimation=Estimation())
    late = [x.cycle for x in records if world.seconds(x.cycle) > 1.15 * 2.0]
    assert len(late) <= 2


@APIS
def test_a_limit_can_be_withdrawn(api):
    """A phone that is plugged in again stayed limited for ever."""

    def unlimited(clients):
        del clients[1].profile[wire.ENERGY_LIMIT_J]

    clients = [declared(Client("rows", held=500)) for _ in range(2)]
    clients[1].profile[wire.ENERGY_LIMIT_J] = 0.3
    world = Told(clients, {4: unlimited})
    records = run(world, 8, api, cycle_time_s=1.0)
    works = work(records, 1)
    assert 0 < works[1] < 0.5 * work(records, 0)[1]
    assert works[7] == work(records, 0)[7]
    assert row(records[7], 1).energy_limit_j is None


@APIS
def test_a_data_limit_can_be_withdrawn(api):
    def unlimited(clients):
        del clients[1].profile[wire.MAX_SAMPLES]

    clients = [declared(Client("rows", held=500)) for _ in range(2)]
    clients[1].profile[wire.MAX_SAMPLES] = 50
    world = Told(clients, {4: unlimited})
    works = work(run(world, 9, api, cycle_time_s=1.0), 1)
    assert works[8] > 1.5 * works[1] > 0


@APIS
def test_an_energy_limit_without_energy_costs_is_pointed_out(api, caplog):
    """It was ignored in silence."""
    caplog.set_level(logging.WARNING, "flwr.mel")
    clients = [Client("rows", held=500, profile={wire.ENERGY_LIMIT_J: 1e-6}) for _ in range(2)]
    records = run(World(clients), 4, api, cycle_time_s=1.0)
    said = [
        caplog.text,
        *(n for x in records for n in x.notes),
        *(y.reason for x in records for y in x.learners),
    ]
    assert any("energy" in text for text in said)


@APIS
def test_one_absurd_profile_does_not_stretch_the_round_time(api):
    """c0 = 1e9 s drove a derived T to 9e6 s."""
    clients = [declared(Client("rows", held=300, pace=1e-3 * s)) for s in (1, 1, 2, 4, 4)]
    clients[4].profile[wire.COEFFICIENTS[2]] = 1e9
    world = World(clients)
    records = run(world, 8, api)
    assert all(record.cycle_time_s < 10 for record in records)


def test_robust_samples_do_not_hide_the_work_of_clients_that_use_all_their_data():
    """`Robust(max_samples)` planned a tenth of the real time for them."""
    from flwr_mel import Robust

    world = World([Client("all data", held=1000, pace=1e-3 * s) for s in (1, 1, 2)])
    records = run(world, 8, cycle_time_s=3.0, max_epochs=1, robust=Robust(max_samples=100))
    for record in records[2:]:
        for x in record.asked:
            client = world.clients[int(x.node) - 1001]
            assert x.time_s > 0.9 * (client.pace * 1000 + client.fixed_s)


# --- what a record says ----------------------------------------------------------------------------------


@APIS
@pytest.mark.parametrize("shards", [False, True])
def test_first_tasks_have_a_time_and_a_status(api, shards):
    """The first record of "best" had T = 0 and the status "skipped"."""
    kind = "shard" if shards else "rows"
    world = World([Client(kind, held=300, pace=1e-3 * s, simulated=True) for s in (1, 2, 4)])
    options = {"shards": Shards(DATA)} if shards else {}
    records = run(world, 4, api, cycle_time_s="best", **options)
    for record in records:
        assert record.asked
        assert record.status != "skipped"
        assert record.cycle_time_s > 0


@APIS
def test_connected_clients_without_a_task_are_not_called_absent(api, caplog):
    """The log said "no client is connected" with all of them connected."""
    caplog.set_level(logging.WARNING, "flwr.mel")

    def empty(clients):
        for client in clients:
            client.profile[wire.ENERGY_LIMIT_J] = 1e-3

    world = Told([declared(Client("rows", held=300)) for _ in range(3)], {3: empty})
    records = run(world, 6, api, cycle_time_s=1.0)
    assert not records[5].asked
    assert "no client is connected" not in caplog.text
    assert all(x.reason for x in records[5].learners)


def test_work_stays_about_the_same_with_the_default_settings():
    """Two lines alone gave up to 225 % of the work where the guide promises about as much."""
    world = World([Client("loader", own=2, held=320, pace=1e-3 * s, fixed_s=0.05) for s in (1, 1, 3, 10)])
    records = run(world, 12)
    for record in records[3:]:
        counted = sum(world.done[record.cycle, k].drawn for k in range(4)) / (4 * 2 * 320)
        assert 0.8 <= counted <= 1.3


def test_without_chosen_samples_the_work_stays_about_the_same():
    """The app follows its epochs and uses all its samples: the guide's two lines."""
    world = World([Client("all data", own=2, held=320, pace=1e-3 * s, fixed_s=0.05) for s in (1, 1, 3, 10)])
    records = run(world, 12)
    for record in records[3:]:
        counted = sum(world.done[record.cycle, k].drawn for k in range(4)) / (4 * 2 * 320)
        assert 0.8 <= counted <= 1.3


@pytest.mark.parametrize("kind", ["loader", "rows", "task rows"])
def test_a_healthy_run_has_no_warning(kind, caplog):
    """ "The local data have little weight in the model" appeared in most ordinary projects."""
    caplog.set_level(logging.WARNING, "flwr.mel")
    world = World([Client(kind, own=2, held=320, pace=1e-3 * s, fixed_s=0.05) for s in (1, 1, 3, 10)])
    records = run(world, 12)
    assert [x.getMessage() for x in caplog.records if x.name == "flwr.mel"] == []
    assert not any(record.notes for record in records)


# --- the last lines --------------------------------------------------------------------------------------


def last_line(caplog):
    return [x.getMessage() for x in caplog.records if x.name == "flwr.mel"][-1]


def test_noise_is_no_gain(caplog):
    """No task differed from the project's own work."""
    caplog.set_level(logging.INFO, "flwr.mel")
    world = World([Client("own work", own=2, held=600) for _ in range(4)], noise=0.2, seed=3)
    run(world, 8)
    assert "no gain" in last_line(caplog)
    assert "instead of" not in last_line(caplog)


def test_unequal_clients_are_not_called_equally_fast(caplog):
    """Two of four clients per round, and the last ones happened to be equal."""
    caplog.set_level(logging.INFO, "flwr.mel")
    world = World([Client("loader", own=1, held=320, pace=5e-3 * s) for s in (1, 1, 10, 10)])
    world.sampled = {n: (0, 1) if n > 4 else (2, 3) for n in range(1, 9)}
    run(world, 8)
    assert "equally fast" not in last_line(caplog)


def test_joiners_are_not_called_clients_that_do_not_follow(caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    clients = [Client("loader", own=2, held=320, pace=5e-3) for _ in range(5)]
    for client in clients[3:]:
        client.online = False

    def join(some):
        for client in some:
            client.online = True

    run(Told(clients, {6: join}), 6)
    assert "do not follow" not in caplog.text


def test_a_finished_run_that_is_resumed_does_not_repeat_its_gain(caplog, tmp_path):
    caplog.set_level(logging.INFO, "flwr.mel")
    world = World([Client("loader", own=2, held=320, pace=5e-3 * s) for s in (1, 1, 3, 10)])
    with world.clock.running():
        train(Checkpointed(wrapped(world), tmp_path), world, 6)
        assert "instead of" in last_line(caplog)
        caplog.clear()
        train(Checkpointed(wrapped(world), tmp_path), world, 6)
    assert "instead of" not in caplog.text
