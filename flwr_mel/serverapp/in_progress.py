"""Tasks that no cycle waits for: sent apart, and their replies kept until they count."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from flwr_mel.orchestrator import Task
from flwr_mel.serverapp.replies import is_from


@dataclass(frozen=True, slots=True)
class Back:
    """A reply to a task that no cycle waited for.

    Parameters
    ----------
    message : Message
        What was sent.
    task : Task
        What it asked for.
    reply : Message
        What came.
    """

    message: Message
    task: Task
    reply: Message


class InProgress:
    """Knows which messages are not answered yet, and has the answers that are not used yet."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Message, Task]] = {}
        self._came: dict[str, Back] = {}

    def add(self, message: Message, task: Task) -> None:
        """Expect the reply to a message that has been sent.

        Parameters
        ----------
        message : Message
            With its id.
        task : Task
            What it asks for.
        """
        self._open[message.metadata.message_id] = (message, task)

    def hold(self, back: Back) -> None:
        """Keep a reply that came before its time is over on the virtual clock."""
        self._came[back.task.node] = back

    def open_ids(self) -> list[str]:
        """Return the messages that are not answered."""
        return list(self._open)

    def ids(self) -> list[str]:
        """Return the messages that are not answered, and those whose replies are not used."""
        return [*self._open, *(back.message.metadata.message_id for back in self._came.values())]

    def sent_to(self) -> dict[str, str]:
        """Return to whom the messages were sent that are not answered."""
        return {key: task.node for key, (_, task) in self._open.items()}

    def nodes(self) -> list[str]:
        """Return whose replies are to come, or are kept."""
        return [task.node for _, task in self._open.values()] + list(self._came)

    def take_in(self, reply: Message) -> bool:
        """Keep a reply if it is to one of these messages: the first, and nobody answers for another.

        Parameters
        ----------
        reply : Message
            Any.
        """
        message, task = self._open.get(reply.metadata.reply_to_message_id, (None, None))
        if message is None or task is None or not is_from(reply, task.node):
            return False
        del self._open[reply.metadata.reply_to_message_id]
        self._came[task.node] = Back(message, task, reply)
        return True

    def look(self, grid: Grid) -> None:
        """Fetch the replies that are there; returns at once.

        Parameters
        ----------
        grid : Grid
            Ours does not wait for what is still being uploaded.
        """
        look = getattr(grid, "look", grid.pull_messages)
        if self._open:
            for reply in look(list(self._open)):
                self.take_in(reply)

    def came(self, nodes: Collection[str] | None = None) -> dict[str, Back]:
        """Hand over replies, once.

        Parameters
        ----------
        nodes : collection of str, optional
            Only theirs.
        """
        found = {node: back for node, back in self._came.items() if nodes is None or node in nodes}
        self._came = {node: back for node, back in self._came.items() if node not in found}
        return found

    def forget(self, wanted: Mapping[str, int]) -> None:
        """Expect nothing any more of tasks that are given up.

        Parameters
        ----------
        wanted : mapping of node to cycle
            The tasks in progress.
        """
        self._open = {key: x for key, x in self._open.items() if wanted.get(x[1].node) == x[1].cycle}
        self._came = {node: x for node, x in self._came.items() if wanted.get(node) == x.task.cycle}
