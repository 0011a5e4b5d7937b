"""The Message API strategy: allocation in `configure_train`, checks and weights in `aggregate_train`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from flwr_mel import wire
from flwr_mel.checkpoint.keeper import Model
from flwr_mel.flower.arrays import Array as NDArray
from flwr_mel.flower.arrays import Key
from flwr_mel.flower.inner import weight_key
from flwr_mel.flower.metrics import mean_of
from flwr_mel.flower.patience import Patience
from flwr_mel.flower.sizes import cut_words
from flwr_mel.flower.strategy import MelStrategy as Common
from flwr_mel.flower.tasks import task_words
from flwr_mel.flower.transport import check_transport
from flwr_mel.orchestrator import Returned, Stopped, Stragglers, Task
from flwr_mel.orchestrator.averaging import Blend
from flwr_mel.records import CycleRecord, Outcome
from flwr_mel.serverapp.asking import Questions
from flwr_mel.serverapp.echoes import Echoes
from flwr_mel.serverapp.outer import around
from flwr_mel.serverapp.own_loop import OwnLoop
from flwr_mel.serverapp.replies import (
    blended,
    check_evaluations,
    common_names,
    read_arrays,
)
from flwr_mel.serverapp.tasks import Tasks, earlier

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
_NO_CLOCK = (
    "replies are not timed on the server's own clock, so that links are not learnt: another strategy's start "
    "is running, not this MelStrategy's. Give it the grid with the clock: start(mel.timed(grid), ...)"
)
_OUTER = (
    "{} is around MelStrategy and must see every update before it counts, so that stragglers='span' is "
    "'exclude' here: who is too slow for the cycle time is left out. MelStrategy around it has 'span'"
)


@dataclass
class MelResult(Result):
    """Flower's result, and why and when training stopped.

    Parameters
    ----------
    stopped : Stopped, optional
        Cycle and reason, if a criterion was met.
    records : list of CycleRecord
        The last cycles, as many as the strategy's `keep_records`; callbacks such as `JsonlWriter` had all.
    cycles : int
        How many there were in all, those before an interruption included.
    """

    stopped: Stopped | None = None
    records: list[CycleRecord] = field(default_factory=list)
    cycles: int = 0


class MelStrategy(Common, Strategy):
    """Make any Message API strategy heterogeneity-aware.

    Takes the arguments of `flwr_mel.flower.strategy.MelStrategy`. `start` goes on after the last checkpoint
    if there is one, and `num_rounds` counts the cycles in all.
    """

    strategy: Strategy

    _kind, _other = Strategy, "flwr_mel.server.MelStrategy"

    def _set_up(self, patience: Patience) -> None:
        self._questions = Questions(patience)
        self._tasks = Tasks(self.orchestrator, self._models)
        self._echoes = Echoes(self.orchestrator, self._models, self._sieve)
        self._arrays_name = "arrays"
        self._watched = False
        self._loop = OwnLoop(self.strategy)

    @staticmethod
    def _views(model: ArrayRecord) -> dict[Key, NDArray]:
        return read_arrays(model)

    @staticmethod
    def _named(model: ArrayRecord) -> Model:
        return {key: np.asarray(array.numpy()) for key, array in model.items()}

    @staticmethod
    def _encoded(model: Model) -> ArrayRecord:
        return ArrayRecord({key: Array(array) for key, array in model.items()})

    # --- training -----------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the inner strategy choose the nodes, then give each its own task."""
        cycle = self.orchestrator.cycle_of(server_round)
        self._tasks.begin(grid)
        if self.stopped is not None:
            return []
        check_transport(grid, self.orchestrator.settings)
        self._keeper.begin(arrays)
        self._expect(arrays)
        # The caller's own config, into which strategies write what is to last, such as a learning rate.
        proposed = self._loop.own("configure_train")(cycle, arrays, config, grid)
        by_node = {str(message.metadata.dst_node_id): message for message in proposed}
        connected = {*map(str, grid.get_node_ids()), *by_node}
        self._questions.forget(connected)
        self.orchestrator.bind(self._names.of(connected))
        strangers = self.orchestrator.strangers(by_node, connected)
        self._questions.ask(strangers, cycle, grid)
        awaited = self.orchestrator.awaited(by_node)
        self.orchestrator.hear_all(self._questions.answers(grid, awaited), self._questions.took_s)
        self._mind_the_outer()
        self._tasks.take_in_between()
        if self._learns and not self._tasks.timed and not self.orchestrator.state.virtual:
            self.orchestrator.remark("no clock", _NO_CLOCK)
        plan = self.orchestrator.plan(cycle, list(by_node))
        # Those without a task are asked while the others train: their limits may have changed, or they have
        # not been chosen yet.
        self._questions.ask([*plan.ask_again, *self.orchestrator.unheard()], cycle + 1, grid)
        self._models.keep(cycle, arrays)
        self._models.trim({cycle, *self.orchestrator.origins})
        return self._tasks.send(plan, lambda task: self._task_message(by_node[task.node], task))

    def _mind_the_outer(self) -> None:
        """Leave out who is too slow where a strategy around this one must see every update.

        Replies to tasks of several cycles, and late ones, are looked for here and would get past it: past the
        clipping of a DP wrapper, for instance. In a simulation they pass through it when they are made.
        """
        settings, outer = self.orchestrator.settings, around(self)
        if outer is None or settings.stragglers is not Stragglers.SPAN or self.orchestrator.state.virtual:
            return
        self.orchestrator.settings = replace(settings, stragglers=Stragglers.EXCLUDE)
        self.orchestrator.remark("outer", _OUTER.format(type(outer).__name__))

    def _task_message(self, template: Message, task: Task) -> Message:
        """Build a message of the learner's own: inner strategies share one content among all.

        The task goes into the one ConfigRecord that is there, because Flower's DP mods take only one.
        """
        content = RecordDict(dict(template.content))
        self._arrays_name = next(iter(content.array_records), self._arrays_name)
        if task.cycle in self._models and task.cycle < max(self._models):
            content[self._arrays_name] = self._models[task.cycle]
        configs = content.config_records
        name = next(iter(configs)) if len(configs) == 1 else wire.RECORD
        words = task_words(task, self.orchestrator.settings)
        content[name] = ConfigRecord({**configs.get(name, {}), **words})
        deadline = self._tasks.ttl_s(task)
        return Message(
            content,
            dst_node_id=template.metadata.dst_node_id,
            message_type=template.metadata.message_type,
            ttl=template.metadata.ttl if deadline is None else deadline,
            group_id=template.metadata.group_id,
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check every reply, weight it by its allocated samples, let the inner strategy aggregate."""
        cycle, key = self.orchestrator.cycle_of(server_round), weight_key(self.strategy)
        back = self._tasks.back(replies, cycle, key)
        again, gone = self._echoes.moved(key)
        sifted = self._sieve.sift(
            {x: read.reply for x, read in back.read.items()},
            back.asked,
            {x: read.reply for x, read in again.items()},
        )
        gone |= {x: reason for x, reason in sifted.refused.items() if x in again}
        refused = {x: reason for x, reason in sifted.refused.items() if x not in again}
        failed = back.failed | {x: (Outcome.REFUSED, reason) for x, reason in refused.items()}
        names = common_names([back.read[x] for x in sifted.metrics], self._arrays_name)
        for x, metrics in sifted.metrics.items():
            back.replies[x].content = back.read[x].content(metrics, sifted.keys, names)
        over = self._oversized({x: back.read[x].reply for x in sifted.metrics})
        for x, factor in over.items():
            shrink = partial(self._sieve.cut_back, factor=factor)
            back.replies[x].content = blended(back.replies[x].content, shrink, {})
        weights = {x: back.read[x].reply.weight for x in sifted.metrics}
        used = {x: weight for x, weight in weights.items() if x not in back.before}
        moved = {back.before[x]: weight for x, weight in weights.items() if x in back.before}
        self.orchestrator.settle(
            Returned(
                used,
                {x: why for x, why in failed.items() if x not in back.before},
                back.reports,
                back.round_trips,
                moved=moved,
                lost={back.before[x]: why for x, why in failed.items() if x in back.before},
                open=back.open,
                claims=back.claims,
                bounded={back.before.get(x, x): cut_words(factor) for x, factor in over.items()},
                dropped=gone,
                times=back.times,
            )
        )
        self._echoes.keep(back, over)
        if not weights:
            return None, None
        new = (*used, *map(earlier, moved))
        ordered = [back.replies[x] for x in new]
        blend = self.orchestrator.blend(list(used), list(moved))
        record = self.orchestrator.record
        if blend is not None and record is not None and record.echoes:
            said = mean_of([sifted.metrics[x] for x in new], blend.weights[: len(new)])
            for echo in record.echoes:
                content = again[echo.name].content(said, sifted.keys, names)
                ordered.append(self._echoes.reply(echo, content))
        self._blend(ordered, blend)
        return self._aggregated(lambda: self._loop.own("aggregate_train")(cycle, ordered))

    def _blend(self, replies: Sequence[Message], blend: Blend | None) -> None:
        """Change the replies so that their weighted average is the one that was asked for."""
        if blend is None:
            return
        key = weight_key(self.strategy)
        for reply, weight, factor in zip(replies, blend.weights, blend.factors, strict=True):
            scale = partial(self._sieve.scaled, factor=factor)
            reply.content = blended(reply.content, scale, {key: weight})

    # --- evaluation and the end of a cycle -------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Leave evaluation to the inner strategy; after the stop nobody is asked."""
        self._tasks.clock.wait()
        if self.stopped is not None:
            return []
        self._keeper.see(arrays)
        cycle = self.orchestrator.cycle_of(server_round)
        messages: Iterable[Message] = self._loop.own("configure_evaluate")(cycle, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Leave aggregation to the inner strategy and put the metrics on record."""
        checked = check_evaluations(replies, weight_key(self.strategy))
        metrics: MetricRecord | None = self._loop.own("aggregate_evaluate")(
            self.orchestrator.cycle_of(server_round), checked
        )
        if metrics is not None:
            self.orchestrator.observe(dict(metrics))
        if not self._watched:
            self.orchestrator.close()
        return metrics

    def watch(self, evaluate_fn: EvaluateFn | None) -> EvaluateFn | None:
        """Wrap a server-side evaluation so that stopping criteria see its metrics.

        `start` does it by itself. Call it when another strategy, such as a DP wrapper, is the outermost.

        Parameters
        ----------
        evaluate_fn : callable or None
            As for `start`.
        """
        if evaluate_fn is None:
            return None
        self._watched = True

        def watched(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            cycle = self.orchestrator.cycle_of(server_round)
            # What a resumed training starts with was evaluated when its cycle ended.
            if self.stopped is not None or cycle > server_round == 0:
                # Loops of a strategy's own may count on numbers.
                return evaluate_fn(cycle, arrays) if self._loop.runs else None
            self._keeper.see(arrays)
            metrics = evaluate_fn(cycle, arrays)
            if metrics is not None:
                self.orchestrator.observe(dict(metrics))
            self.orchestrator.close()
            return metrics

        return watched

    @property
    def _learns(self) -> bool:
        settings = self.orchestrator.settings
        return bool(settings.learning) or (settings.learning is None and settings.cycle_time_s is None)

    def timed(self, grid: Grid) -> Grid:
        """Return the grid with the server's clock in it.

        Times are on record then, and replies are looked for more often than Flower's loop does. `start` does
        it by itself. Call it when another strategy, such as a DP wrapper, is the outermost.

        Parameters
        ----------
        grid : Grid
            As for `start`.
        """
        self._tasks.timed = True
        return self._tasks.clock.watch(grid)

    def resume(self, initial_arrays: ArrayRecord, num_rounds: int) -> tuple[ArrayRecord, int]:
        """Return what to start with and the rounds left, going on from the last checkpoint if there is one.

        `start` does it by itself. Call it when another strategy, such as a DP wrapper, is the outermost.

        Parameters
        ----------
        initial_arrays : ArrayRecord
            What a new training starts with.
        num_rounds : int
            Cycles in all, those before an interruption included.
        """
        model = self._keeper.resume(initial_arrays)
        if model is not None:
            initial_arrays = ArrayRecord({key: Array(array) for key, array in model.items()})
        return initial_arrays, self._keeper.rounds_left(num_rounds)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
        **own: Any,
    ) -> MelResult:
        """Run Flower's loop; the result also tells when and why training stopped.

        If the wrapped strategy has a `start` of its own, that is run, with arguments of its own. What it
        returns is returned, as it is if it is no plain `Result`.
        """
        initial_arrays, num_rounds = self.resume(initial_arrays, num_rounds)
        given = (
            self.timed(grid),
            initial_arrays,
            num_rounds,
            timeout,
            train_config,
            evaluate_config,
            self.watch(evaluate_fn),
        )
        if self._loop.exists:
            self.summary()
            result = self._loop.run(self, *given, **own)
        else:
            result = super().start(*given, **own)
        self.orchestrator.close()
        self.orchestrator.check_trained()
        if type(result) is not Result:
            return result  # type: ignore[no-any-return]
        if not result.arrays:  # nobody answered in the last cycles: the old model stays
            result.arrays = initial_arrays
        for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            by_round = getattr(result, kind)
            setattr(result, kind, {self.orchestrator.cycle_of(n): said for n, said in by_round.items()})
        done = self.orchestrator.state.cycles_done
        return MelResult(**vars(result), stopped=self.stopped, records=list(self.records), cycles=done)
