"""Questions to clients about their profile, which they answer without their app, during the training.

The Message API sends a train message without a model, the classic API a request for properties. The mod
answers both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from time import monotonic, sleep

from flwr_mel.cycle.reports import Words

_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _PAUSE = 0.02, 1.0, 0.02


class Probes(ABC):
    """Probes that are under way. Each API sends and collects them in its own way."""

    def __init__(self) -> None:
        #: Clients whose answers are still to come.
        self.open: set[str] = set()

    @abstractmethod
    def send(self, nodes: Sequence[str], cycle: int, timeout_s: float) -> None:
        """Send probes and return at once."""

    @abstractmethod
    def collect(self) -> dict[str, Words | None]:
        """Return the answers that are there; None: the client did not answer in time."""

    def ask(self, nodes: Collection[str], cycle: int, timeout_s: float) -> None:
        """Probe clients; one with an open probe is not asked again.

        Parameters
        ----------
        nodes : collection of str
            The clients.
        cycle : int
            The coming round.
        timeout_s : float
            After which a probe expires.
        """
        new = [node for node in nodes if node not in self.open]
        if new:
            self.open |= set(new)
            self.send(new, cycle, timeout_s)

    def answers(self, awaited: Collection[str], timeout_s: float) -> dict[str, Words | None]:
        """Return the answers that came; None for an awaited client that did not answer.

        Parameters
        ----------
        awaited : collection of str
            Clients to wait for.
        timeout_s : float
            How long.
        """
        came: dict[str, Words | None] = {}
        start = monotonic()
        while self.open:
            came |= {node: words for node, words in self.collect().items() if node in self.open}
            self.open -= came.keys()
            missing = self.open.intersection(awaited)
            waited = monotonic() - start
            if not missing or waited >= timeout_s:
                self.open -= missing
                return came | dict.fromkeys(missing)
            sleep(min(pause_s(waited), timeout_s - waited))
        return came


def pause_s(waited: float) -> float:
    """Return how long to wait before looking for replies again: a fiftieth of the time waited so far."""
    return min(max(_PAUSE * waited, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
