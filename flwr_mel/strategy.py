"""What the strategies of both Flower APIs share: keywords, state, log lines, callbacks.

`flwr_mel.serverapp.MelStrategy` (Message API) and `flwr_mel.server.MelStrategy` (classic API) translate
between Flower's messages and the neutral values of `flwr_mel.cycle`.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from time import monotonic, time
from typing import Any, ClassVar

from flwr_mel import wire
from flwr_mel._npy import write_npy
from flwr_mel._validate import complain
from flwr_mel.allocation import Solver
from flwr_mel.costs import Workload
from flwr_mel.cycle.advice import PLAN, STATISTICS, TURNS, final_line, round_line
from flwr_mel.cycle.errors import NoWork, failed_text, unable_text
from flwr_mel.cycle.metrics import Form, Records, consistent, countable
from flwr_mel.cycle.options import Average, Estimation, Options, Robust, Rounds, Shards
from flwr_mel.cycle.plan import plan
from flwr_mel.cycle.settle import Reply, Update, settle
from flwr_mel.cycle.state import State, Task, with_answers, with_nodes
from flwr_mel.cycle.updates import Arrays, not_finite
from flwr_mel.devices import Device, Measured
from flwr_mel.probes import Probes
from flwr_mel.records import Callback, CycleRecord, JsonlWriter, Outcome, title
from flwr_mel.solvers import Exact, Rate
from flwr_mel.step_strategies import SlopeStep
from flwr_mel.wrapped import (
    averages,
    check_average,
    check_strategy,
    layers,
    replaced_weights,
    steps_statistics,
    weighs,
)

log = logging.getLogger("flwr.mel")

#: Records that `MelStrategy.records` keeps, and rows of clients in all of them together, but at least those
#: of the last record: memory must not grow with the number of rounds, nor with that of rounds times clients.
KEEP_RECORDS, KEEP_ROWS = 100, 10_000
#: Environment variables of `flwr-mel try`: "observe" plans nothing, "best" sets the round time, and the
#: records are appended to a file.
TRIAL, RECORDS = "FLWR_MEL_TRY", "FLWR_MEL_RECORDS"
#: Probes to clients without a task, per round.
_PROBES = 200
_EXACT, _ROBUST, _ROUNDS = Exact(), Robust(), Rounds()


class MelStrategy:
    """Plans every round of a wrapped Flower strategy for clients of unequal speed.

    Each client gets its own number of epochs and samples, so that all clients reply within the round time and
    stay within their energy limits. Without a given round time, the first round runs as the project defines
    it, and the round time is derived from its measurements.

    A cycle of the paper is a round in Flower, and a learner is a client.

    Parameters
    ----------
    strategy : Strategy
        A strategy of the same API. It samples the clients and aggregates their updates.
    cycle_time_s : float or "best", optional
        T, the round time: all clients reply within it. None: derived from the first round. "best": short
        rounds whose T and samples follow from the costs; see `flwr_mel.solvers.Rate`.
    total_samples : int, optional
        d, the samples of a round with all connected clients; a round with fewer clients gets a proportional
        part. None: all data.
    staleness : int, optional
        c: the epochs of any two clients differ by at most c. None: no cap.
    min_samples : int, optional
        The smallest number of samples in a task. None: 1 for a given T, 16 with "best", otherwise 32 (or all
        samples of the client that holds the fewest).
    max_epochs : int, optional
        The largest number of epochs in a task. None: five times the project's own number if it is known,
        otherwise no limit.
    solver : Solver or Rate
        `Exact()` or another solver from `flwr_mel.solvers`. With "best": `Rate(...)`.
    workload : Workload, optional
        The training job, for clients that declare physical values (clock, link, power).
    default_device : Device or Measured, optional
        The device assumed for clients that declare no costs, which are then not measured.
    shards : Shards, optional
        Data on the server that are sent to the clients (parallelized learning).
    average : str
        "samples" (weights d_k, as in the paper), "nova" or "nova-held" (FedNova's average).
    estimation : Estimation, optional
        Learn the costs of all clients from their replies. None: only those of clients without a profile.
    robust : Robust
        Bounds on what one client can do to the model; all off by default.
    rounds : Rounds
        Deadline, probe timeout, behaviour if the samples do not fit, epochs key.
    callbacks : iterable of callables
        Each receives every finished `CycleRecord` and may return a reason to stop, as `Stopping` does.
    seed : int
        The same seed gives the same result.
    """

    #: The API's own class of strategies, and the path of the other API's MelStrategy.
    _kind: ClassVar[type]
    _other: ClassVar[str]
    #: The server step that `flwr-mel try --best` puts around a strategy that averages.
    _slope_step: ClassVar[type[SlopeStep]]
    _probes: Probes

    def __init__(
        self,
        strategy: Any,
        *,
        cycle_time_s: float | str | None = None,
        total_samples: int | None = None,
        staleness: int | None = None,
        min_samples: int | None = None,
        max_epochs: int | None = None,
        solver: Solver | Rate = _EXACT,
        workload: Workload | None = None,
        default_device: Device | Measured | None = None,
        shards: Shards | None = None,
        average: Average | str = Average.SAMPLES,
        estimation: Estimation | None = None,
        robust: Robust = _ROBUST,
        rounds: Rounds = _ROUNDS,
        callbacks: Iterable[Callback] = (),
        seed: int = 0,
    ) -> None:
        check_strategy(strategy, self._kind, self._other, MelStrategy)
        trial = os.environ.get(TRIAL, "")
        if trial == "observe":
            rounds = replace(rounds, observe=True)
        elif trial == "best":
            cycle_time_s, total_samples, solver = "best", None, solver if isinstance(solver, Rate) else _EXACT
            own_start = getattr(type(strategy), "start", None) is not getattr(self._kind, "start", None)
            if averages(strategy) and not own_start:
                strategy = self._slope_step(strategy)
        self._step = next((x for x in layers(strategy) if isinstance(x, SlopeStep)), None)
        if (
            self._step is not None
            and cycle_time_s == "best"
            and average == Average.SAMPLES
            and weighs(strategy)
        ):
            average = Average.NOVA  # per step, as the length of the server's step is found per step
        self.options = Options(
            cycle_time_s=cycle_time_s,
            total_samples=total_samples,
            staleness=staleness,
            min_samples=min_samples,
            max_epochs=max_epochs,
            solver=solver,
            workload=workload,
            default_device=default_device,
            shards=shards,
            average=average,  # type: ignore[arg-type]
            estimation=estimation,
            robust=robust,
            rounds=rounds,
            seed=seed,
        )
        check_average(strategy, self.options.average)
        if key := replaced_weights(strategy):
            log.warning(
                "updates are weighted by their samples: the weights that clients report as %r are replaced",
                key,
            )
        self.strategy = strategy
        self.callbacks = _callables(callbacks)
        if path := os.environ.get(RECORDS):
            self.callbacks.append(JsonlWriter(path))
        self.state = State()
        self.records: deque[CycleRecord] = deque(maxlen=KEEP_RECORDS)
        #: Called after each round and its callbacks with the record and the new model.
        self.on_round: list[Callable[[CycleRecord, Arrays], None]] = []
        self._record: CycleRecord | None = None
        self._settled = True
        #: When the latest replies were there, by the server's clock; None in simulated time.
        self._ended_at: float | None = None
        #: As sent to the clients; after a round the new one.
        self._model: Arrays = {}
        #: Metrics that clients report, in training and in evaluation, and clients with other ones.
        self._forms: dict[str, Form | None] = {}
        self._odd: set[tuple[str, str]] = set()
        self._offset, self._resumed = 0, False
        #: Rounds of this run, as opposed to those before a resume.
        self._rounds = 0
        self._set_up()

    def _set_up(self) -> None:
        """Create what only one of the APIs needs."""

    def __getattr__(self, name: str) -> Any:
        """Return what only the wrapped strategy has: its own methods and attributes."""
        if name.startswith("__") or "strategy" not in self.__dict__:  # or not there yet, while being copied
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.strategy, name)

    @property
    def stopped(self) -> str:
        """Why training stopped; "" while it goes on."""
        return self.state.stopped

    @property
    def _in_turns(self) -> bool:
        """Whether clients of the simulation wait for one another."""
        return TURNS in self.state.warned

    def cycle_of(self, server_round: int) -> int:
        """Return the number of a round, those before a resume included."""
        return self._offset + server_round

    def resume(self, state: State, records: Sequence[CycleRecord] = ()) -> None:
        """Continue after the last round of a checkpoint.

        Parameters
        ----------
        state : State
            Of the checkpoint.
        records : sequence of CycleRecord
            The last rounds before it.
        """
        self.state = replace(state, keys=self.state.keys, learners={**self.state.learners, **state.learners})
        self._offset, self._resumed = state.cycle, True
        self.records = deque(records, maxlen=KEEP_RECORDS)

    def summary(self) -> None:
        """Log the settings, then those of the wrapped strategy."""
        o = self.options
        time_s = "derived from the first round" if o.time_s is None else f"{o.time_s:g} s"
        time_s = "follows from the costs" if o.best else time_s
        samples = "all data" if o.total_samples is None else f"{o.total_samples:,}"
        cap = "no cap" if o.staleness is None else str(o.staleness)
        solver = type(o.solver).__name__
        learned = "all clients" if o.estimation else "clients without a profile"
        log.info("\t├──> MelStrategy around %s:", type(self.strategy).__name__)
        log.info("\t│\t├── round time T: %s | samples: %s | staleness: %s", time_s, samples, cap)
        log.info("\t│\t└── solver: %s | average: %s | costs learned for: %s", solver, o.average, learned)
        if callable(inner := getattr(self.strategy, "summary", None)):
            inner()

    # --- one round ------------------------------------------------------------------------------------

    def _begin(
        self, cycle: int, nodes: Sequence[str], connected: Sequence[str], model: Arrays
    ) -> tuple[Task, ...]:
        """Begin a round: ask clients that are not known, plan, and ask clients without a task.

        It waits for answers only if fewer than half of the clients are known, and never for a client that did
        not answer before.
        """
        self._close()
        self.state = with_nodes(self.state, connected)
        timeout_s = self.options.rounds.probe_timeout_s
        clients = {node: self.state.of(node).identity for node in nodes}
        unknown = [node for node, x in clients.items() if not x.answered]
        self._probes.ask(unknown, cycle, timeout_s)
        awaited = {node for node in self._probes.open if self.state.of(node).identity.simulated}
        if 2 * len(unknown) > len(nodes):
            awaited |= {node for node in unknown if not clients[node].problem}
        answers = self._probes.answers(awaited, timeout_s)
        self.state = with_answers(self.state, self.options, answers)
        tasks = self._plan(cycle, nodes, len(connected), model)
        self._probes.ask(self._idle(tasks, nodes, connected), cycle + 1, timeout_s)
        return tasks

    def _plan(self, cycle: int, nodes: Sequence[str], connected: int, model: Arrays) -> tuple[Task, ...]:
        """Plan the round and log it."""
        self._model = model
        if self._ended_at is not None:
            self.state = self.state.paused(monotonic() - self._ended_at)
        self.state, tasks, record = plan(self.state, self.options, cycle, nodes, connected)
        if any(not self.state.of(node).identity.simulated for node in nodes):
            record.began_at = time()
        self._record, self._settled = record, False
        if tasks and record.notes and PLAN not in self.state.warned:
            self.state = replace(self.state, warned=self.state.warned | {PLAN})
            log.warning("round %d: %s", cycle, "; ".join(record.notes))
            if self.options.best and steps_statistics(self.strategy, model):
                log.warning(STATISTICS)
        if log.isEnabledFor(logging.DEBUG):
            for row in record.learners:
                log.debug("round %d, %s", cycle, row.describe())
        if not tasks:
            log.warning("round %d: no client has a task: %s", cycle, _reasons(record))
        return tasks

    def _words(self, task: Task) -> dict[str, Any]:
        """Return the keys and values of a task, with its shard if it has one. Arrays keep their types."""
        words: dict[str, Any] = {wire.CYCLE: task.cycle, wire.SEED: task.seed}
        if task.seconds is not None:
            words[wire.SECONDS] = task.seconds
        if self.options.rounds.epochs_key is not None:
            words[wire.EPOCHS_KEY] = self.options.rounds.epochs_key
        if task.baseline:
            return words | {wire.BASELINE: 1}
        words |= {wire.EPOCHS: task.epochs, wire.SAMPLES: task.samples}
        if task.shard is not None and self.options.shards is not None:
            for i, array in enumerate(self.options.shards.arrays):
                words[f"{wire.SHARD}{i}"] = write_npy(array[task.shard])
        return words

    def _idle(self, tasks: Sequence[Task], nodes: Sequence[str], connected: Sequence[str]) -> list[str]:
        """Return clients to probe during the round: those without a task, and other unknown clients."""
        busy = {task.node for task in tasks}
        idle = [node for node in nodes if node not in busy]
        known = self.state.learners
        if len(known) >= len(connected):
            return idle[:_PROBES]
        new = (x for x in connected if x not in busy and self.state.keys.get(x, x) not in known)
        return list(islice(dict.fromkeys([*idle, *islice(new, _PROBES)]), _PROBES))

    def _deadline_s(self, tasks: Sequence[Task]) -> float | None:
        """Return after how many seconds replies to these tasks are dropped; None: all replies are awaited."""
        if self._record is None or (self._record.status == "baseline" and self.options.time_s is None):
            return None
        simulated = any(self.state.of(task.node).identity.simulated for task in tasks)
        return self.options.deadline_s(self._record.cycle_time_s, simulated=simulated)

    def _aggregate(
        self,
        replies: Mapping[str, Reply],
        waited_s: float,
        inner: Callable[[list[Update]], tuple[Any, Any]],
        views: Callable[[Any], Arrays],
    ) -> tuple[Any, Any]:
        """Settle the round and let the wrapped strategy aggregate the updates; return model and metrics."""
        updates = self._settle(replies, waited_s)
        record, step = self._record, self._step
        model, metrics = None, None
        if updates and record is not None:
            if step is not None:
                step.observe(record.local_steps)
            model, metrics = inner(updates)
            self._observe(metrics, "train-")
        elif step is not None and record is not None and record.count(Outcome.REJECTED):
            model = step.undo()  # the last step left the region in which clients can train
        self._log_round()
        return (model if self._accept(None if model is None else views(model)) else None), metrics

    def _settle(self, replies: Mapping[str, Reply], waited_s: float | None) -> list[Update]:
        """Check and weight the replies, and log the round."""
        if self._record is None or self._settled:
            return []
        self._settled = True
        before = len(self._record.notes)
        try:
            self.state, self._record, updates = settle(
                self.state, self.options, self._record, replies, self._model, waited_s
            )
        except NoWork:
            self._record = None
            raise
        record = self._record
        self._ended_at = None if record.waited_s is None else monotonic()
        for row in record.failures:
            log.warning("round %d, %s %s: %s", record.cycle, title(row.learner), row.outcome, row.reason)
        for text in record.notes[before:]:
            log.warning("%s", text)
        return updates

    def _log_round(self) -> None:
        """Log the round in one line, with the server's step if it finds its own length."""
        if self._record is not None:
            step = "" if self._step is None else self._step.describe()
            line = round_line(self._record, in_turns=self._in_turns)
            log.info("%s", "; ".join(filter(None, (line, step))))

    def _consistent(
        self, phase: str, replies: Mapping[str, Records], weights: Mapping[str, float]
    ) -> dict[str, Records]:
        """Return metrics that the wrapped strategy can combine."""
        new, self._forms[phase], changed = consistent(replies, weights, self._forms.get(phase))
        for node, names in changed.items():
            text = "metrics that differ from those of the other clients are replaced or dropped:"
            self._warn(node, phase, f"{text} {names}")
        return new

    def _evaluations(self, found: Mapping[str, tuple[Records, object]]) -> dict[str, Records]:
        """Return metrics of an evaluation, without those whose number of examples is no weight."""
        weights: dict[str, Any] = {node: x for node, (_, x) in found.items() if countable(x)}
        if any(examples is not None for _, examples in found.values()):
            for node in found.keys() - weights.keys():
                text = f"its evaluation is not used: it cannot have {found[node][1]!r:.50} examples"
                self._warn(node, "evaluation", text)
            found = {node: x for node, x in found.items() if node in weights and any(weights.values())}
        records = {node: x for node, (x, _) in found.items()}
        return self._consistent("evaluation", records, {node: float(weights.get(node, 0)) for node in found})

    def _warn(self, node: str, phase: str, text: str) -> None:
        """Log what is odd about a client's replies, once."""
        if (node, phase) not in self._odd:
            self._odd.add((node, phase))
            text = f"{title(self.state.of(node).label)}: {text} ({phase})"
            log.warning("%s", text)
            if self._record is not None:
                self._record.notes.append(text)

    def _accept(self, model: Arrays | None) -> bool:
        """Whether the wrapped strategy returned a usable model; if not, the previous one is kept."""
        if model is None or self._record is None:
            return model is not None
        wrong = not_finite(model, self._model)
        if not wrong:
            self._model = model
            return True
        text = f"{type(self.strategy).__name__} returned a model with values that are not finite ({wrong})"
        text += ": the previous model is kept"
        log.warning("round %d: %s", self._record.cycle, text)
        self._record.notes.append(text)
        for row in self._record.learners:
            if row.outcome is Outcome.USED:
                row.outcome, row.reason, row.weight, row.share = Outcome.REJECTED, text, 0, 0.0
        return False

    def _observe(self, metrics: Mapping[Any, object] | None, prefix: str = "") -> None:
        """Add metrics to the record of the round."""
        if self._record is not None and metrics:
            self._record.metrics |= {
                f"{prefix}{key}": float(value)
                for key, value in metrics.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }

    def _close(self) -> None:
        """Finish the round: hand its record to the callbacks, which may stop the training."""
        if self._record is None:
            return
        if not self._settled:
            self._settle({}, None)
            self._log_round()
        record, self._record = self._record, None
        for callback in self.callbacks:
            try:
                reason = callback(record)
            except Exception as error:
                log.exception("the callback %r failed", callback)
                record.notes.append(f"the callback {callback!r} failed: {error}")
            else:
                if isinstance(reason, str) and reason and not record.stopped:
                    record.stopped = reason
        if record.stopped:
            self.state = replace(self.state, stopped=record.stopped)
            log.info("training stops after round %d: %s", record.cycle, record.stopped)
        self._rounds += 1
        self.records.append(record)
        self._forget_rows()
        for hook in self.on_round:
            hook(record, self._model)

    def _forget_rows(self) -> None:
        """Drop the clients' rows of older records where there are too many."""
        rows = 0
        for i, record in enumerate(reversed(self.records)):
            rows += len(record.learners)
            if i and rows > KEEP_ROWS and record.learners:
                self.records[len(self.records) - 1 - i] = replace(record, learners=[])

    def _finish(self) -> None:
        """End the training: close the last round, and log what was gained. An untrained model is an error."""
        self._close()
        if self.records and not self.state.trained:
            last = self.records[-1]
            skipped = [(row.learner, row.reason) for row in last.learners]
            raise NoWork(failed_text(last.asked) if last.asked else unable_text(skipped, ""))
        new = list(self.records)[-self._rounds :] if self._rounds else []
        if line := final_line(new, in_turns=self._in_turns):
            log.info("%s", line)


def _reasons(record: CycleRecord) -> str:
    """Return the different reasons why clients were skipped."""
    if not record.learners:
        return "no client is connected"
    return "; ".join(dict.fromkeys([*record.notes, *(row.reason for row in record.learners)]))


def _callables(callbacks: Any) -> list[Callback]:
    """Return the callbacks as a list."""
    given = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for callback in given:
        if not callable(callback):
            raise complain("callbacks", "a list of functions that take a CycleRecord", callback)
    return given
