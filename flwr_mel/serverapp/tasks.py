"""The messages of the tasks and what comes back of them, in this cycle and in later ones.

Nobody waits for a task that takes several cycles: it is sent apart, and so is looked after one that is late.
In a simulation, where all replies come at once, they are kept until their time is over on the virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic, time

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_mel.clientapp.report import examples_in
from flwr_mel.flower.moving import Models
from flwr_mel.flower.reasons import RefusedUpdate, brief
from flwr_mel.flower.tasks import weight_of
from flwr_mel.orchestrator import CyclePlan, Orchestrator, Stragglers, Task, Times
from flwr_mel.orchestrator.echoes import lasting
from flwr_mel.orchestrator.own_work import measurement
from flwr_mel.records import Outcome
from flwr_mel.serverapp.in_progress import Back, InProgress
from flwr_mel.serverapp.replies import Read, blended, is_from, moved_from, read_reply, report_of
from flwr_mel.serverapp.timing import RoundTrips

#: Flower's error code for a message that outlived its time to live.
_EXPIRED = 3


def earlier(node: str) -> str:
    """Name a learner's update of an earlier cycle's task: it may have one of this cycle's, too."""
    return f"{node} (earlier)"


@dataclass(frozen=True, slots=True)
class Returned:
    """What came back in a cycle; in the order of the tasks, those of earlier cycles last.

    Parameters
    ----------
    read : dict of str to Read
        What can be read, by node or `earlier(node)`.
    failed : dict of str to (outcome, reason)
        What is not there, or cannot be.
    replies : dict of str to Message
        The messages.
    before : dict of str to str
        From `earlier(node)` to the node, of all replies to earlier tasks.
    reports : dict of node to mapping
        What learners say of this cycle's tasks.
    round_trips : dict of node to float
        By the server's clock.
    open : set of node
        Whose replies may still come.
    asked : int
        How many updates there could be.
    claims : dict of node to float
        Samples by the apps' own account.
    times : Times
        When messages left and replies came.
    came : dict of (learner, cycle) to (str, Read)
        Replies to earlier cycles' tasks, read before they were moved, where they may count again; and what
        they are called in `replies`.
    """

    read: dict[str, Read]
    failed: dict[str, tuple[Outcome, str]]
    replies: dict[str, Message]
    before: dict[str, str]
    reports: dict[str, Mapping[str, object]]
    round_trips: dict[str, float]
    open: set[str]
    asked: int
    claims: dict[str, float]
    times: Times
    came: dict[tuple[str, int], tuple[str, Read]]


class Tasks:
    """Sends a cycle's tasks and collects the replies.

    Parameters
    ----------
    orchestrator : Orchestrator
        Knows the tasks in progress.
    models : Models
        Has the models that they began with.
    """

    def __init__(self, orchestrator: Orchestrator, models: Models) -> None:
        self._brain, self._models = orchestrator, models
        self._apart = InProgress()
        self.clock = RoundTrips(self._apart)
        #: Whether messages go through our own grid, which goes on without those who are late.
        self.timed = False
        self._grid: Grid | None = None
        self._sent: dict[str, tuple[Message, Task]] = {}
        self._order: list[str] = []
        self._back: dict[str, Back] = {}
        self._lost: dict[str, tuple[Outcome, str]] = {}
        self._left_s = 0.0
        self._earlier: tuple[dict[str, float], dict[str, float]] = ({}, {})
        self._came: dict[tuple[str, int], tuple[str, Read]] = {}

    @property
    def _spans(self) -> bool:
        return self._brain.settings.stragglers is Stragglers.SPAN

    def begin(self, grid: Grid) -> None:
        """Begin a cycle.

        Parameters
        ----------
        grid : Grid
            The way to the nodes.
        """
        self._grid = grid
        self._sent, self._back, self._lost, self._came = {}, {}, {}, {}
        self._earlier = ({}, {})
        self.clock.forget()

    def take_in_between(self) -> None:
        """Take the replies that came since the last cycle: who has reported is free for this one."""
        if not self._brain.state.virtual and self._grid is not None:
            self._apart.look(self._grid)
            self._take_in(self._apart.came())

    def ttl_s(self, task: Task) -> float | None:
        """Return how long a message lives; None: as long as Flower lets it.

        Parameters
        ----------
        task : Task
            What it asks for.
        """
        return None if task.span > 1 or (self._spans and self.timed) else self._brain.deadline_s

    def send(self, plan: CyclePlan, message_of: Callable[[Task], Message]) -> list[Message]:
        """Send the tasks that nobody is to wait for; return the messages that Flower is to send.

        Parameters
        ----------
        plan : CyclePlan
            The cycle's.
        message_of : callable
            Builds a message.
        """
        state, apart = self._brain.state, []
        virtual = state.virtual
        self._order = [task.node for task in plan.tasks if task.cycle == plan.cycle]
        self._apart.forget({x.node: x.cycle for x in state.flights.values()})
        for task in plan.tasks:
            if task.cycle not in self._models:
                self._brain.arrive({task.node: None}, {})
                gone = "the model that it began with is not there any more"
                self._lost[task.node] = (Outcome.FAILED, gone)
            elif virtual or (task.span == 1 and task.cycle == plan.cycle):
                self._sent[task.node] = (message_of(task), task)
            else:
                apart.append((message_of(task), task))
        if apart and self._grid is not None:
            list(self._grid.push_messages([message for message, _ in apart]))
        for message, task in apart:
            self._apart.add(message, task)
        if self._spans and not virtual:
            # Own rounds are to be measured, so that they are waited for.
            measured = any(task.free for task in plan.tasks)
            quorum = 1.0 if measured else self._brain.settings.quorum
            record = self._brain.record
            self.clock.wait(self._brain.deadline_s, quorum, None if record is None else record.cycle_time_s)
        elif not virtual:
            # Messages live that long; but a reply that is being uploaded by then does not expire.
            self.clock.wait(self._brain.deadline_s)
        self._left_s = monotonic()
        return [message for message, _ in self._sent.values()]

    def back(self, replies: Iterable[Message], cycle: int, weight_key: str) -> Returned:
        """Read what came back, this cycle's and then earlier ones' moved onto the present model.

        Parameters
        ----------
        replies : iterable of Message
            Those that Flower waited for.
        cycle : int
            The present one.
        weight_key : str
            The metric that the inner strategy weights by.
        """
        waited_s = monotonic() - self._left_s
        by_node = self._by_node(replies)
        still = self._set_apart(by_node, cycle) if self._spans else set[str]()
        read: dict[str, Read] = {}
        failed: dict[str, tuple[Outcome, str]] = {}
        for node, (_, task) in self._sent.items():
            self._read(node, by_node.get(node), task, weight_key, read, failed)
        record = self._brain.record
        if record is not None and self.clock.waited_s < record.cycle_time_s:  # a quorum was enough
            failed = {node: why for node, why in failed.items() if node not in still}
        failed |= {earlier(node): why for node, why in self._lost.items()}
        back = dict(sorted(self._back.items(), key=lambda x: (x[1].task.cycle, x[1].task.learner)))
        for node, x in back.items():
            self._read(earlier(node), x.reply, x.task, weight_key, read, failed)
        sent_to = {message.metadata.message_id: node for node, (message, _) in self._sent.items()}
        claims = {n: examples_in(r.content.metric_records.values()) for n, r in by_node.items() if n in read}
        return Returned(
            read,
            failed,
            by_node | {earlier(node): x.reply for node, x in back.items()},
            {earlier(node): node for node in (*back, *self._lost)},
            {node: report_of(reply) for node, reply in by_node.items()},
            self.clock.of(sent_to),
            still,
            len(self._sent) + len(back),
            {node: claim for node, said in claims.items() if (claim := measurement(said)) is not None},
            self._times(sent_to, waited_s),
            self._came,
        )

    def _times(self, sent_to: dict[str, str], waited_s: float) -> Times:
        """Return what the clock says of this cycle's tasks and of those in progress."""
        now = time()
        left, came = self.clock.times(sent_to)
        # Where our own grid is not in between, all left when they were handed over.
        left = dict.fromkeys(sent_to.values(), now - waited_s) | left
        before, _ = self.clock.times(self._apart.sent_to())
        here = None
        if self._grid is not None and not self._brain.state.virtual:
            here = set(map(str, self._grid.get_node_ids()))
        return Times(now, waited_s, before | self._earlier[0] | left, self._earlier[1] | came, here)

    def _by_node(self, replies: Iterable[Message]) -> dict[str, Message]:
        """Tell whose replies these are: errors of the engine carry its own id, not the node's."""
        sent_to = {message.metadata.message_id: node for node, (message, _) in self._sent.items()}
        found: dict[str, Message] = {}
        for reply in replies:
            node = sent_to.get(reply.metadata.reply_to_message_id)
            # The first reply counts, and nobody answers for another.
            if node is not None and is_from(reply, node):
                found.setdefault(node, reply)
        return found

    def _set_apart(self, replies: dict[str, Message], cycle: int) -> set[str]:
        """Go on without the tasks that are not back; return whose may still come."""
        if self._brain.state.virtual:
            due = self._brain.due()
            for node, (message, task) in list(self._sent.items()):
                if node in replies and (task.cycle < cycle or (task.span > 1 and node not in due)):
                    self._apart.hold(Back(message, task, replies.pop(node)))
                    del self._sent[node]
            self._take_in(self._apart.came(due))
            return set(self._apart.nodes())
        for node, (message, task) in self._sent.items():
            if node not in replies and self.timed:
                self._apart.add(message, task)
        if self._grid is not None:
            self._apart.look(self._grid)
        came = self._apart.came()
        for node, back in came.items():
            if back.task.cycle == cycle:  # sooner than planned
                self._sent[node], replies[node] = (back.message, back.task), back.reply
        self._sent = {node: self._sent[node] for node in self._order if node in self._sent}
        self._take_in({node: back for node, back in came.items() if back.task.cycle < cycle})
        return set(self._apart.nodes())

    def _take_in(self, back: Mapping[str, Back]) -> None:
        """Take replies to earlier cycles' tasks that count in this one."""
        reports = {n: None if x.reply.has_error() else report_of(x.reply) for n, x in back.items()}
        ids = {x.message.metadata.message_id: node for node, x in back.items()}
        self._brain.arrive(reports, self.clock.of(ids))
        for known, more in zip(self._earlier, self.clock.times(ids), strict=True):
            known.update(more)
        self._back |= back

    def _read(
        self,
        whose: str,
        reply: Message | None,
        task: Task,
        weight_key: str,
        read: dict[str, Read],
        failed: dict[str, tuple[Outcome, str]],
    ) -> None:
        """Read one reply, or say why it cannot be used."""
        if reply is None or (reply.has_error() and reply.error.code == _EXPIRED):
            failed[whose] = (Outcome.LATE, "no reply in time")
        elif reply.has_error():
            failed[whose] = (Outcome.FAILED, brief(reply.error.reason or ""))
        else:
            weigh = partial(weight_of, task, self._brain.settings, report=report_of(reply))
            try:
                read[whose] = read_reply(reply.content, weigh, weight_key, free=task.free)
                if whose != task.node:
                    if lasting(self._brain.settings):
                        self._came[task.learner, task.cycle] = (whose, read[whose])
                    move = partial(moved_from, self._models, task.cycle)
                    reply.content = blended(reply.content, move, {})
                    read[whose] = read_reply(reply.content, weigh, weight_key, free=task.free)
                read[whose] = read[whose].after(task.epochs)
            except RefusedUpdate as refused:
                read.pop(whose, None)
                failed[whose] = (Outcome.REFUSED, str(refused))
