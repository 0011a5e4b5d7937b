"""What comes back of a cycle's tasks, as adapters tell it, as plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from flwr_mel.records import Outcome


@dataclass(frozen=True, slots=True)
class Times:
    """What the server's clock says of a cycle, in seconds since 1970.

    Parameters
    ----------
    now : float
        When it was asked.
    waited_s : float
        From sending the tasks to the last report, or to the end of waiting.
    sent_at, received_at : mapping of node to float
        When tasks left and replies came, as far as is known.
    here : collection of node, optional
        Who is still connected; None: not known.
    """

    now: float
    waited_s: float
    sent_at: Mapping[str, float] = field(default_factory=dict)
    received_at: Mapping[str, float] = field(default_factory=dict)
    here: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """What came back of a cycle's tasks.

    Parameters
    ----------
    used : mapping of node to weight
        Whose update is averaged, with how many samples.
    failed : mapping of node to (outcome, reason)
        Whose is not.
    reports : mapping of node to mapping
        What learners said along with their replies (measurements and fresh capabilities).
    round_trips : mapping of node to float
        Seconds from sending a task to the arrival of the reply, by the server's clock. Without learning
        they are not kept: records of simulations do not depend on the wall clock.
    moved : mapping of node to weight
        Whose update of an earlier cycle's task is averaged, moved onto the present model.
    lost : mapping of node to (outcome, reason)
        Whose is not.
    open : collection of node
        Whose task of this cycle is not back and may still come.
    claims : mapping of node to float
        Samples by the apps' own account.
    bounded : mapping of node to str
        Whose update was made smaller, and by how much.
    dropped : mapping of str to str
        Which updates that should count again cannot be used any more, by `Echo.name`, and why.
    times : Times, optional
        By the server's clock. They are kept of real learners only.
    """

    used: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, tuple[Outcome, str]] = field(default_factory=dict)
    reports: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    round_trips: Mapping[str, float] = field(default_factory=dict)
    moved: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, tuple[Outcome, str]] = field(default_factory=dict)
    open: Collection[str] = ()
    claims: Mapping[str, float] = field(default_factory=dict)
    bounded: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    times: Times | None = None
