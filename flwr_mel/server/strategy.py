"""The classic strategy: allocation in `configure_fit`, checks and weights in `aggregate_fit`."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, time

from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    Parameters,
    Scalar,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from flwr_mel._validate import complain
from flwr_mel.checkpoint.keeper import Model
from flwr_mel.flower.arrays import Array, Key, decode
from flwr_mel.flower.metrics import check_metrics
from flwr_mel.flower.patience import Patience
from flwr_mel.flower.reasons import RefusedUpdate, brief
from flwr_mel.flower.replies import Reply
from flwr_mel.flower.sizes import cut_words
from flwr_mel.flower.strategy import MelStrategy as Common
from flwr_mel.flower.tasks import task_words, weight_of
from flwr_mel.flower.transport import check_transport
from flwr_mel.orchestrator import Returned, Stragglers, Task, Times
from flwr_mel.orchestrator.own_work import measurement
from flwr_mel.records import Outcome
from flwr_mel.server.asking import Questions
from flwr_mel.server.evaluations import check_evaluations
from flwr_mel.server.proxy import TaskProxy

Results = list[tuple[ClientProxy, FitRes]]
Failures = list[tuple[ClientProxy, FitRes] | BaseException]
Failed = dict[str, tuple[Outcome, str]]
#: How Flower names numpy's format.
_NUMPY = "numpy.ndarray"
_MOST_ARRAYS = 100_000


class MelStrategy(Common, Strategy):
    """Make any classic strategy heterogeneity-aware.

    Takes the arguments of `flwr_mel.flower.strategy.MelStrategy`. When there are checkpoints to go on from,
    ask `rounds_left` for the number of rounds.
    """

    strategy: Strategy

    _kind, _other = Strategy, "flwr_mel.serverapp.MelStrategy"

    def _set_up(self, patience: Patience) -> None:
        self._questions = Questions(patience)
        self._sent: dict[str, tuple[TaskProxy, Task]] = {}
        self._left_s = 0.0
        self._manager: ClientManager | None = None

    @staticmethod
    def _views(model: Parameters) -> dict[Key, Array]:
        if len(model.tensors) > _MOST_ARRAYS:
            raise RefusedUpdate(f"has more than {_MOST_ARRAYS:,} arrays")
        return {(str(i),): decode(f"array {i}", data) for i, data in enumerate(model.tensors)}

    @staticmethod
    def _named(model: Parameters) -> Model:
        return {str(i): array for i, array in enumerate(parameters_to_ndarrays(model))}

    @staticmethod
    def _encoded(model: Model) -> Parameters:
        return ndarrays_to_parameters(list(model.values()))

    @staticmethod
    def _policy(asked: Stragglers | str | None) -> Stragglers | str:
        if asked == Stragglers.SPAN:
            raise complain(
                "stragglers",
                "'exclude' or 'keep' in the classic API, whose rounds wait for every reply: no task can take "
                "several of them, and late replies are lost",
                str(asked),
                "Use flwr_mel.serverapp.MelStrategy for 'span'.",
            )
        return Stragglers.KEEP if asked is None else asked

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Leave it to the inner strategy, unless there is a checkpoint to go on from."""
        self.summary()
        given = self.strategy.initialize_parameters(client_manager)
        model = self._keeper.resume(given)
        return given if model is None else ndarrays_to_parameters(list(model.values()))

    def rounds_left(self, num_rounds: int) -> int:
        """Return how many rounds Flower is to run: ``ServerConfig(num_rounds=strategy.rounds_left(100))``.

        Parameters
        ----------
        num_rounds : int
            Cycles in all, those before an interruption included.
        """
        self._keeper.resume(None, inner=False)
        return self._keeper.rounds_left(num_rounds)

    # --- training -----------------------------------------------------------------------------------

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Let the inner strategy choose the clients, then give each its own task."""
        cycle = self.orchestrator.cycle_of(server_round)
        self._sent = {}
        if self.stopped is not None:
            return []
        self._keeper.begin(parameters)
        self._expect(parameters)
        proposed = self.strategy.configure_fit(cycle, parameters, client_manager)
        clients = {client.cid: (client, ins) for client, ins in proposed}
        for client, _ in clients.values():
            check_transport(client, self.orchestrator.settings)
        connected = {*client_manager.all(), *clients}
        self._questions.forget(connected)
        self.orchestrator.bind(self._names.of(connected))
        strangers = self.orchestrator.strangers(clients, connected)
        self._questions.ask([clients[cid][0] for cid in strangers], cycle)
        awaited = self.orchestrator.awaited(clients)
        self.orchestrator.hear_all(self._questions.answers(awaited), self._questions.took_s)
        plan = self.orchestrator.plan(cycle, list(clients))
        # Those without a task are asked while the others train: their limits may have changed.
        others = client_manager.all()
        unheard = [others[cid] for cid in self.orchestrator.unheard() if cid in others]
        self._questions.ask([*(clients[cid][0] for cid in plan.ask_again), *unheard], cycle + 1)
        instructions: list[tuple[ClientProxy, FitIns]] = []
        for task in plan.tasks:
            client, ins = clients[task.node]
            proxy = TaskProxy(client, self.orchestrator.deadline_s)
            self._sent[task.node] = (proxy, task)
            # Instructions of the learner's own: inner strategies share one object among all.
            config = {**ins.config, **task_words(task, self.orchestrator.settings)}
            instructions.append((proxy, FitIns(ins.parameters, config)))
        self._left_s, self._manager = monotonic(), client_manager
        return instructions

    def aggregate_fit(
        self, server_round: int, results: Results, failures: Failures
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Check every result, weight it by its allocated samples, let the inner strategy aggregate."""
        times = self._times()
        _refuse_masked(results)
        reports: dict[str, Mapping[str, object]] = {
            client.cid: {k: v for k, v in result.metrics.items() if k.startswith("mel-")}
            for client, result in results
            if client.cid in self._sent
        }
        said = {client.cid: measurement(result.num_examples) for client, result in results}
        claims = {cid: claim for cid, claim in said.items() if claim is not None}
        clean, failed, over = self._sift(results, reports)
        for cid, (proxy, _) in self._sent.items():
            if cid not in clean and cid not in failed:
                outcome = Outcome.LATE if proxy.late else Outcome.FAILED
                failed[cid] = (outcome, brief(proxy.failure or "no reply"))
        weights = {cid: r.num_examples for cid, r in clean.items()}
        took = {cid: proxy.round_trip_s for cid, (proxy, _) in self._sent.items()}
        round_trips = {cid: seconds for cid, seconds in took.items() if seconds is not None}
        bounded = {cid: cut_words(factor) for cid, factor in over.items()}
        self.orchestrator.settle(
            Returned(weights, failed, reports, round_trips, claims=claims, bounded=bounded, times=times)
        )
        if not clean:
            return None, {}
        cycle = self.orchestrator.cycle_of(server_round)
        ordered = [(self._sent[cid][0].client, result) for cid, result in self._blended(clean).items()]
        return self._aggregated(lambda: self.strategy.aggregate_fit(cycle, ordered, failures))

    def _times(self) -> Times:
        """Return what the clock says of this cycle's tasks."""
        proxies = {cid: proxy for cid, (proxy, _) in self._sent.items()}
        sent = {cid: proxy.sent_at for cid, proxy in proxies.items() if proxy.sent_at is not None}
        came = {cid: proxy.received_at for cid, proxy in proxies.items() if proxy.received_at is not None}
        here = None if self._manager is None else set(self._manager.all())
        return Times(time(), monotonic() - self._left_s, sent, came, here)

    def _blended(self, results: dict[str, FitRes]) -> dict[str, FitRes]:
        """Return the results so that their weighted average is the one that was asked for."""
        blend = self.orchestrator.blend(list(results))
        if blend is None:
            return results
        new = {}
        for (cid, old), weight, factor in zip(results.items(), blend.weights, blend.factors, strict=True):
            arrays = self._sieve.scaled(self._views(old.parameters), factor)
            new[cid] = FitRes(old.status, ndarrays_to_parameters(arrays), weight, old.metrics)
        return new

    def _sift(
        self, results: Results, reports: Mapping[str, Mapping[str, object]]
    ) -> tuple[dict[str, FitRes], Failed, dict[str, float]]:
        """Sort the results into those to hand on, in order, and refused ones; tell which were cut back."""
        came: dict[str, FitRes] = {}
        for client, result in results:
            came.setdefault(client.cid, result)
        read: dict[str, Reply] = {}
        failed: Failed = {}
        # In the order of the tasks, so that sums have the same bits whoever answers first.
        for cid, (_, task) in self._sent.items():
            try:
                if cid in came:
                    read[cid] = self._read(came[cid], task, reports[cid])
            except RefusedUpdate as refused:
                failed[cid] = (Outcome.REFUSED, str(refused))
        sifted = self._sieve.sift(read, len(self._sent))
        failed |= {cid: (Outcome.REFUSED, reason) for cid, reason in sifted.refused.items()}
        clean, over = {}, self._oversized({cid: read[cid] for cid in sifted.metrics})
        for cid, metrics in sifted.metrics.items():
            parameters = Parameters(came[cid].parameters.tensors, _NUMPY)
            if cid in over:
                parameters = ndarrays_to_parameters(self._sieve.cut_back(read[cid].arrays, over[cid]))
            clean[cid] = FitRes(came[cid].status, parameters, read[cid].weight, metrics)
        return clean, failed, over

    def _read(self, result: FitRes, task: Task, report: Mapping[str, object]) -> Reply:
        """Read a result, or refuse it."""
        weight = weight_of(task, self.orchestrator.settings, result.num_examples, report)
        check_metrics(result.metrics)
        metrics = {key: value for key, value in result.metrics.items() if not key.startswith("mel-")}
        return Reply(self._views(result.parameters), metrics, weight, max(task.epochs, 1))

    # --- evaluation and the end of a cycle -------------------------------------------------------------

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Leave it to the inner strategy; put its metrics on record."""
        cycle = self.orchestrator.cycle_of(server_round)
        # What a resumed training starts with was evaluated when its cycle ended.
        if self.stopped is not None or cycle > server_round == 0:
            return None
        result = self.strategy.evaluate(cycle, parameters)
        if result is not None:
            self.orchestrator.observe({"loss": result[0], **result[1]})
        return result

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Leave it to the inner strategy; after the stop nobody is asked."""
        if self.stopped is not None:
            return []
        self._keeper.see(parameters)
        cycle = self.orchestrator.cycle_of(server_round)
        instructions = self.strategy.configure_evaluate(cycle, parameters, client_manager)
        if not instructions:
            self.orchestrator.close()
        return instructions

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Leave it to the inner strategy; put its metrics on record and end the cycle."""
        checked = check_evaluations(results)
        cycle = self.orchestrator.cycle_of(server_round)
        loss, metrics = self.strategy.aggregate_evaluate(cycle, checked, failures)
        self.orchestrator.observe({**({} if loss is None else {"loss": loss}), **metrics})
        self.orchestrator.close()
        return loss, metrics


def _refuse_masked(results: Results) -> None:
    """Say clearly that secure aggregation does not compose.

    Flower's SecAgg+ workflow hands every client the one unmasked average in place of its own update.
    """
    if len(results) > 1 and all(result.parameters is results[0][1].parameters for _, result in results):
        raise RuntimeError(
            "these results come from secure aggregation (SecAgg+), which hides the learners' own "
            "updates: MelStrategy can then neither check them nor weight them by allocated samples. Use "
            "one or the other; see docs/COMPOSITION.md."
        )
