"""Updates that count again in cycles after the one in which they came; their replies are kept meanwhile.

Each time they are handed to the wrapped strategy as ordinary replies, moved onto the present model. What they
reported counts once, in the cycle in which they came: a loss of many cycles ago says nothing of the present
one. Wrapped strategies want the same metrics of every reply, so later they get the mean of the cycle's new
ones, weighted as these are, which leaves every average as it is. Nor do they vote on what updates look like,
or how large they are: who was cut back when it came is cut back as much again.

Memory: the arrays as they came, of at most as many updates as come in 2 max_span cycles (of one learner
seldom two at a time), and the models that they began with, at most 4 max_span. Checkpoints have both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict

from flwr_mel.flower.moving import Models
from flwr_mel.flower.reasons import RefusedUpdate
from flwr_mel.flower.replies import Sieve
from flwr_mel.orchestrator import Orchestrator
from flwr_mel.records import Echo
from flwr_mel.serverapp.replies import Read, blended, moved_from, read_reply
from flwr_mel.serverapp.tasks import Returned


class Echoes:
    """Keeps the replies of updates that count again, and moves them onto the present model.

    Parameters
    ----------
    orchestrator : Orchestrator
        Knows which count again.
    models : Models
        Has the models that they began with, and the replies in plain types, as checkpoints want them.
    sieve : Sieve
        Knows the present model.
    """

    def __init__(self, orchestrator: Orchestrator, models: Models, sieve: Sieve) -> None:
        self._brain, self._models, self._sieve = orchestrator, models, sieve
        self._nodes: dict[str, int] = {}

    def moved(self, weight_key: str) -> tuple[dict[str, Read], dict[str, str]]:
        """Return the updates that should count again in this cycle by `Echo.name`, and why others cannot.

        Parameters
        ----------
        weight_key : str
            The metric that the inner strategy weights by.
        """
        read: dict[str, Read] = {}
        gone: dict[str, str] = {}
        self._nodes = {name: kept["node"] for name, kept in self._models.updates.items()}
        for x in self._brain.state.echoes:
            try:
                read[x.name] = self._moved(x, weight_key)
            except RefusedUpdate as refused:
                gone[x.name] = str(refused)
        return read, gone

    def _moved(self, x: Echo, weight_key: str) -> Read:
        kept = self._models.updates.get(x.name)
        if kept is None or x.cycle not in self._models:
            raise RefusedUpdate("it, or the model that it began with, is not there any more")
        content = RecordDict(
            {
                **{name: ConfigRecord(said) for name, said in kept["others"].items()},
                **{name: _arrays(record) for name, record in kept["arrays"].items()},
                kept["metrics"]: MetricRecord({}),
            }
        )
        content = blended(content, partial(moved_from, self._models, x.cycle), {})
        if kept["factor"] < 1:
            content = blended(content, partial(self._sieve.cut_back, factor=kept["factor"]), {})
        return read_reply(content, lambda _: x.weight, weight_key, free=False)

    def keep(self, back: Returned, cut: Mapping[str, float]) -> None:
        """Keep the replies that came in this cycle and count again; forget those that do not any more.

        Parameters
        ----------
        back : Returned
            What came.
        cut : mapping of str to float
            By what factor updates were cut back.
        """
        for x in self._brain.state.echoes:
            if (x.learner, x.cycle) in back.came:
                whose, read = back.came[x.learner, x.cycle]
                self._models.updates[x.name] = {
                    "node": back.replies[whose].metadata.src_node_id,
                    "factor": cut.get(whose, 1.0),
                    "arrays": {name: _plain(arrays) for name, arrays in read.arrays.items()},
                    "metrics": read.metrics_name,
                    "others": {name: dict(said) for name, said in read.others.items()},
                }
        self._models.trim_updates([x.name for x in self._brain.state.echoes])

    def reply(self, x: Echo, content: RecordDict) -> Message:
        """Return a reply of a learner, which need not be there any more.

        Parameters
        ----------
        x : Echo
            One of those that are moved.
        content : RecordDict
            What to hand on.
        """
        task = Message(RecordDict(), dst_node_id=self._nodes[x.name], message_type=MessageType.TRAIN)
        return Message(content, reply_to=task)


def _plain(arrays: Mapping[str, Array]) -> dict[str, list[Any]]:
    return {key: [a.dtype, [int(n) for n in a.shape], a.stype, a.data] for key, a in arrays.items()}


def _arrays(kept: Mapping[str, list[Any]]) -> ArrayRecord:
    return ArrayRecord(
        {key: Array(dtype, tuple(shape), kind, data) for key, (dtype, shape, kind, data) in kept.items()}
    )
