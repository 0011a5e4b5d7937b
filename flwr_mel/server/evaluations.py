"""Checks of the evaluations of the classic API."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from flwr.common import EvaluateRes
from flwr.server.client_proxy import ClientProxy

from flwr_mel._validate import complain, number
from flwr_mel.flower.metrics import check_metrics, fill_in, odd_metrics, positive

log = logging.getLogger("flwr.mel")

Evaluations = list[tuple[ClientProxy, EvaluateRes]]
# Weighted and summed it stays finite.
_LARGEST_LOSS = 1e150


def check_evaluations(results: Evaluations) -> Evaluations:
    """Return the evaluations that can be averaged; the others are logged and left out.

    Parameters
    ----------
    results : list of (client, EvaluateRes)
        As the learners sent them.
    """
    good: dict[str, tuple[ClientProxy, EvaluateRes]] = {}
    said: dict[str, Mapping[str, object]] = {}
    reasons: dict[str, str] = {}
    for client, result in results:
        try:
            check_metrics(result.metrics)
            weight = max(int(positive(result.num_examples)), 1)
            if abs(number("loss", result.loss)) > _LARGEST_LOSS:
                raise complain("loss", f"at most {_LARGEST_LOSS:g}", result.loss)
        except ValueError as refused:
            reasons[client.cid] = str(refused)
            continue
        good[client.cid] = (client, EvaluateRes(result.status, result.loss, weight, result.metrics))
        said[client.cid] = result.metrics
    keys, odd = odd_metrics(said)
    for cid, reason in {**reasons, **odd}.items():
        log.warning("evaluation of client %s is left out: %s", cid, reason)
        good.pop(cid, None)
    common = {cid: {key: x for key, x in said[cid].items() if key in keys} for cid in good}
    for cid, metrics in fill_in(common, {cid: r.num_examples for cid, (_, r) in good.items()}).items():
        good[cid][1].metrics = metrics
    return list(good.values())
