"""FedAvg whose average has the same bits in both APIs."""

from __future__ import annotations

from flwr.common import FitRes, Parameters, Scalar, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg

from flwr_mel.flower.average import Normalised, weighted_average


class MelFedAvg(FedAvg):
    """FedAvg with the paper's d_k-weighted average in double precision.

    The same bits as `flwr_mel.serverapp.MelFedAvg` in the Message API; Flower's own two FedAvg round
    differently.
    """

    def aggregate_fit(
        self,
        server_round: int,  # noqa: ARG002
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Average parameters with `weighted_average`; metrics as FedAvg does."""
        if not results or (failures and not self.accept_failures):
            return None, {}
        updates = [parameters_to_ndarrays(result.parameters) for _, result in results]
        average = weighted_average(updates, [result.num_examples for _, result in results])
        metrics: dict[str, Scalar] = {}
        if self.fit_metrics_aggregation_fn is not None:
            metrics = self.fit_metrics_aggregation_fn([(r.num_examples, r.metrics) for _, r in results])
        return ndarrays_to_parameters(average), metrics


class MelFedNova(Normalised, MelFedAvg):
    """FedAvg normalised by the work that each learner did (FedNova): ``MelStrategy(MelFedNova(...))``.

    Takes FedAvg's arguments and `average`: "nova" (p_k = d_k / d) or "nova-held" (p_k = n_k / n, what
    learners hold). Around other strategies that average as FedAvg does, give `average` to MelStrategy.
    """

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Average as `MelFedAvg` does what the MelStrategy around it has normalised."""
        self.check_wrapped()
        return super().aggregate_fit(server_round, results, failures)
