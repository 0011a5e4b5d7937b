"""Who goes by which name. Names are claims: they order the learners and find what is remembered of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr_mel.orchestrator.state import LearnerState


class Names:
    """Gives every name to one learner at a time, and every learner one name for good.

    The first to claim a name has it. Another node gets it only after the holder is gone, as when a learner
    comes back under a new node id.
    """

    def __init__(self) -> None:
        self._holders: dict[str, str] = {}
        self._present: frozenset[str] | None = None
        self._told: set[str] = set()

    def meet(self, nodes: Iterable[str]) -> None:
        """Take note of who is there in the coming cycle."""
        self._present = frozenset(nodes)

    def give(self, learner: LearnerState, asked: str | None, learners: Mapping[str, LearnerState]) -> str:
        """Name a learner; return what people should know, or "".

        Parameters
        ----------
        learner : LearnerState
            Who asks; it goes by its node id until it has a name.
        asked : str or None
            The name it claims.
        learners : mapping of node to LearnerState
            All that are known.
        """
        if asked is None or learner.name != learner.node or asked == learner.name:
            return ""
        holder = self._holders.get(asked)
        # Those who gave no name go by their node ids, which are nobody else's names either.
        if holder is None and asked in learners and learners[asked].name == asked:
            holder = asked
        if holder is not None and holder != learner.node:
            if self._present is None or holder in self._present:
                if learner.node in self._told:
                    return ""
                self._told.add(learner.node)
                return f"claims the name {asked!r} of node {holder} and goes by its node id"
            learners[holder].name = holder
        self._holders[asked] = learner.node
        learner.name = asked
        return ""
