"""FedAvg whose average has the same bits in both APIs."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg

from flwr_mel.flower.average import Normalised, weighted_average


class MelFedAvg(FedAvg):
    """FedAvg with the paper's d_k-weighted average in double precision.

    The same bits as `flwr_mel.server.MelFedAvg` in the classic API; Flower's own two FedAvg round
    differently.
    """

    def aggregate_train(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average arrays with `weighted_average`; metrics as FedAvg does."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid:
            return None, None
        contents = [reply.content for reply in valid]
        records = [next(iter(c.array_records.values())) for c in contents]
        weights = [next(iter(c.metric_records.values()))[self.weighted_by_key] for c in contents]
        arrays = weighted_average([[a.numpy() for a in r.values()] for r in records], weights)  # type: ignore[arg-type]
        average = ArrayRecord({k: Array(a) for k, a in zip(records[0], arrays, strict=True)})
        return average, self.train_metrics_aggr_fn(contents, self.weighted_by_key)


class MelFedNova(Normalised, MelFedAvg):
    """FedAvg normalised by the work that each learner did (FedNova): ``MelStrategy(MelFedNova(...))``.

    Takes FedAvg's arguments and `average`: "nova" (p_k = d_k / d) or "nova-held" (p_k = n_k / n, what
    learners hold). Around other strategies that average as FedAvg does, give `average` to MelStrategy.
    """

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average as `MelFedAvg` does what the MelStrategy around it has normalised."""
        self.check_wrapped()
        return super().aggregate_train(server_round, replies)
