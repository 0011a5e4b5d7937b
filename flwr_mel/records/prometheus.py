"""The last cycle as metrics for Prometheus, which asks for them over HTTP."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flwr_mel._text import printable
from flwr_mel._validate import count
from flwr_mel.records.cycle import CycleRecord, Outcome, Standing

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

#: Beyond so many learners, only counts are given: every name is a series that Prometheus keeps.
MOST_LEARNERS = 500
_LONGEST = 100

_CYCLE = {
    "mel_cycle": ("cycle", "Cycles done"),
    "mel_cycle_time_seconds": ("cycle_time_s", "T: everybody is to report within this time"),
    "mel_planned_last_report_seconds": ("makespan_s", "When the last learner was to report"),
    "mel_last_report_seconds": ("waited_s", "When the last learner reported, by the server's clock"),
    "mel_cycle_duration_seconds": ("duration_s", "The whole cycle, by the server's clock"),
    "mel_flower_seconds": ("flower_s", "What a task takes beside the work"),
    "mel_ended_timestamp_seconds": ("ended_at", "When the last cycle ended"),
    "mel_samples": ("total_samples", "Samples handed out"),
    "mel_mean_epochs": ("mean_epochs", "Mean of the learners' epochs"),
    "mel_energy_joules": ("total_energy_j", "Energy of all learners since the start, by the cost model"),
}
_LEARNER = {
    "mel_learner_epochs": ("epochs", "Epochs of the learner's task"),
    "mel_learner_samples": ("samples", "Samples of the learner's task"),
    "mel_learner_planned_seconds": ("time_s", "What the learner's task was to take"),
    "mel_learner_took_seconds": ("took_s", "What it took, by the server's clock"),
    "mel_learner_since_timestamp_seconds": ("since", "Since when the learner does what it does"),
}


class PrometheusWriter:
    """Serve the last cycle's numbers at ``http://127.0.0.1:PORT/metrics``; needs ``prometheus_client``.

    Parameters
    ----------
    port : int
        0: any that is free; `port` tells which.
    address : str
        Where to listen. It is unencrypted and asks for no password: leave it on the server itself.
    """

    def __init__(self, port: int = 9464, address: str = "127.0.0.1") -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415
        except ImportError as error:
            raise ImportError("PrometheusWriter needs: pip install 'flwr-mel[prometheus]'") from error
        self._record: CycleRecord | None = None
        registry = CollectorRegistry()
        registry.register(self)
        self._server, self._thread = start_http_server(count("port", port), address, registry)
        self.port: int = self._server.server_port

    def __call__(self, record: CycleRecord) -> None:
        """Serve this cycle from now on."""
        self._record = record

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics, as `prometheus_client` asks for them."""
        from prometheus_client.core import GaugeMetricFamily as Gauge  # noqa: PLC0415

        record = self._record
        if record is None:
            return
        for name, (field, text) in _CYCLE.items():
            if _known(value := getattr(record, field)):
                yield Gauge(name, text, value=value)
        outcomes = Counter(row.outcome for row in record.learners)
        learners = Gauge("mel_learners", "Learners by what became of them", labels=["outcome"])
        for outcome in Outcome:
            learners.add_metric([str(outcome)], outcomes[outcome])
        yield learners
        yield Gauge("mel_learners_gone", "Learners that are not connected any more", value=len(record.gone))
        metrics = Gauge("mel_metric", "What training and evaluation told", labels=["name"])
        for key, value in record.metrics.items():
            metrics.add_metric([printable(key, _LONGEST)], value)
        yield metrics
        if len(record.learners) <= MOST_LEARNERS:
            yield from _of_learners(record, Gauge)


def _of_learners(record: CycleRecord, gauge: Any) -> Iterator[GaugeMetricFamily]:
    # Two learners of one name would be one series twice, which Prometheus refuses.
    rows = {printable(row.learner, _LONGEST): row for row in record.learners}
    for name, (field, text) in _LEARNER.items():
        found = gauge(name, text, labels=["learner"])
        for learner, row in rows.items():
            if _known(value := getattr(row, field)):
                found.add_metric([learner], value)
        yield found
    state = gauge("mel_learner_standing", "1 for what the learner is doing", labels=["learner", "standing"])
    for learner, row in rows.items():
        if row.standing is not None:
            state.add_metric([learner, str(row.standing)], 1)
    for name in record.gone:
        if (learner := printable(name, _LONGEST)) not in rows:
            state.add_metric([learner, str(Standing.GONE)], 1)
    yield state


def _known(value: object) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)
