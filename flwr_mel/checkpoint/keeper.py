"""What both strategies do with checkpoints: when they are written, and how a training goes on from one."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from flwr_mel._files import check_room
from flwr_mel._validate import complain, count
from flwr_mel.checkpoint.claim import claim
from flwr_mel.checkpoint.store import Checkpoint, Checkpoints
from flwr_mel.orchestrator import Orchestrator, Stopped
from flwr_mel.records import Callback, CycleRecord

log = logging.getLogger("flwr.mel")

#: Free bytes without which there is no point in beginning.
_LEAST_ROOM = 1 << 20

Model = Mapping[str, npt.NDArray[Any]]
Snapshot = list[dict[str, tuple[str, Any]]]


class Inner(Protocol):
    """State of the wrapped strategy, as `flwr_mel.flower.inner_state.InnerState` takes and restores it."""

    @property
    def api(self) -> str:
        """Which of Flower's APIs the strategy is of."""

    @property
    def classes(self) -> list[str]:
        """Full names of the classes, from outside to inside."""

    def snapshot(self) -> Snapshot:
        """Return the state by layer and name."""

    def has_arrays(self, snapshot: Snapshot) -> list[str]:
        """Return the names of what holds arrays in a snapshot."""

    def restore(self, snapshot: Snapshot) -> None:
        """Put the state back."""


class Models(Protocol):
    """Models of earlier cycles, as `flwr_mel.flower.moving.Models` keeps them."""

    def snapshot(self, cycles: Collection[int]) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """Return the models of these cycles."""

    @property
    def updates(self) -> dict[str, dict[str, Any]]:
        """Updates that count again, by `Echo.name`."""

    def restore(
        self, snapshot: Mapping[str, Model], names: Sequence[str], updates: Mapping[str, dict[str, Any]]
    ) -> None:
        """Put all back, under these names of arrays."""


class Keeper:
    """Writes a checkpoint after every cycle. Without `checkpoints` it does nothing.

    It is the last of the orchestrator's callbacks, so a cycle in a checkpoint has been told to all others.
    They may know of a later cycle than the checkpoint; those with `snapshot` and `restore`, such as
    `JsonlWriter`, drop it when the training goes on.

    Parameters
    ----------
    checkpoints : Checkpoints, path or None
        Where they go.
    resume : bool
        False: there must not be any yet.
    inner : Inner, optional
        State of the wrapped strategy; needed with checkpoints.
    orchestrator : Orchestrator
        Its state is kept; it tells of finished cycles.
    decode : callable
        Turns the model as Flower hands it on into named arrays.
    models : Models, optional
        The models that tasks in progress began with, and updates that count again.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | str | os.PathLike[str] | None,
        resume: bool,
        inner: Inner | None,
        orchestrator: Orchestrator,
        decode: Callable[[Any], Model],
        models: Models | None = None,
    ) -> None:
        if not isinstance(resume, bool):
            raise complain("resume", "True (go on if there is a checkpoint) or False (start anew)", resume)
        if isinstance(checkpoints, str | os.PathLike):
            checkpoints = Checkpoints(checkpoints)
        if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
            raise complain("checkpoints", "a flwr_mel.checkpoint.Checkpoints, a path or None", checkpoints)
        self.checkpoints = checkpoints
        self._may_resume = resume
        self._inner = None if checkpoints is None else inner
        self._orchestrator = orchestrator
        self._decode = decode
        self._models = models
        self._model: Any = None
        # Of the model as the training began: FedAdam makes float64 of float32.
        self._fingerprint: dict[str, Any] | None = None
        if self.checkpoints is not None:
            orchestrator.callbacks.append(self.keep)

    # --- going on -----------------------------------------------------------------------------------

    def resume(self, given: Any, *, inner: bool = True) -> Model | None:
        """Restore the newest usable checkpoint; return its model, or None when there is none.

        Parameters
        ----------
        given : object
            The model that the user would start with, in Flower's form; None when it is not known.
        inner : bool
            False: leave the wrapped strategy alone, because it has not been started yet.
        """
        if self.checkpoints is None or self._inner is None:
            return None
        claim(self.checkpoints.directory)
        self._check_room(self.checkpoints, given)
        if not self._may_resume:
            if self._fingerprint is None and self.checkpoints.files():
                where, remedy = str(self.checkpoints.directory), "Leave out resume=False to go on with it, "
                raise complain(
                    "checkpoints",
                    "a directory without a training when resume=False",
                    where,
                    f"{remedy}or give another directory",
                )
            return None
        found = self.checkpoints.load(self._facts(given))
        if found is None:
            return None
        orchestrator = self._orchestrator
        orchestrator.restore(found.state, found.records)
        orchestrator.state = replace(orchestrator.state, stopped=self._still_stopped(found))
        if found.fingerprint.get("api", self._inner.api) != self._inner.api:
            found = self._translated(found, self._inner, given)
        if inner:
            self._inner.restore(found.inner)
        if self._models is not None:
            self._models.restore(found.earlier, list(found.model), self._again(found.updates))
        for key, callback in _numbered(self._orchestrator.callbacks):
            callback.restore(dict(found.callbacks).get(key, {}), list(found.records))  # type: ignore[attr-defined]
        self._fingerprint = found.fingerprint
        log.info("going on after cycle %d from %s", found.cycle, self.checkpoints.directory)
        return found.model

    def _check_room(self, checkpoints: Checkpoints, given: Any) -> None:
        """Say at the start that checkpoints cannot be kept, while nothing is lost."""
        model = 0 if given is None else sum(np.asarray(a).nbytes for a in self._decode(given).values())
        # Those that are kept, and the new one beside them; moments and the like of strategies are not known.
        needed = (checkpoints.keep + 1) * model - sum(file.stat().st_size for file in checkpoints.files())
        try:
            check_room(checkpoints.directory, max(needed, _LEAST_ROOM))
        except OSError as error:
            raise complain(
                "checkpoints",
                f"a directory that takes the model, {checkpoints.keep + 1} times",
                str(checkpoints.directory),
                f"It does not: {error}. Free some space, give another directory, or keep fewer.",
            ) from error

    def _translated(self, found: Checkpoint, inner: Inner, given: Any) -> Checkpoint:
        """Return what a training through the other API left as this one would have left it.

        A wrapped strategy with moments or the like keeps them in another form there: it cannot go on.
        """
        facts = found.fingerprint
        if state := inner.has_arrays(found.inner):
            raise ValueError(
                f"the training in {self.checkpoints and self.checkpoints.directory} began through the "
                f"{facts['api']} API, and {facts['strategy'][0]} has a state ({', '.join(state)}) that "
                "cannot be taken over here. Go on through that API, or give another directory"
            )
        names = list(found.model if given is None else self._decode(given))
        shapes = [[name, *entry[1:]] for name, entry in zip(names, facts["model"], strict=True)]
        return replace(
            found,
            model=dict(zip(names, found.model.values(), strict=True)),
            fingerprint={**facts, "api": inner.api, "strategy": inner.classes, "model": shapes},
            inner=[{} for _ in found.inner],
        )

    def _still_stopped(self, found: Checkpoint) -> Stopped | None:
        """A met criterion holds unless the user asks for others now."""
        last = found.records[-1] if found.records else None
        if last is None or not last.stopped:
            return None
        if found.stopping != asdict(self._orchestrator.settings.stopping):
            log.info("training had stopped (%s) and goes on with other criteria", last.stopped)
            return None
        return Stopped(last.cycle, last.stopped)

    def rounds_left(self, num_rounds: int) -> int:
        """Return how many of `num_rounds` cycles are still to be done.

        Parameters
        ----------
        num_rounds : int
            Cycles in all, those before an interruption included.
        """
        if self.checkpoints is None:
            return num_rounds
        wanted = count("num_rounds", num_rounds)
        state = self._orchestrator.state
        if state.stopped is not None:
            text = "training stopped after cycle %d (%s): nothing is left. To go on, change the criterion"
            log.info(text, state.stopped.cycle, state.stopped.reason)
            return 0
        if state.cycles_done and state.cycles_done >= wanted:
            log.info("all %d cycles are done: nothing is left to do", wanted)
        return max(0, wanted - state.cycles_done)

    # --- keeping ------------------------------------------------------------------------------------

    def see(self, model: Any) -> None:
        """Remember the model that is the current one, in Flower's form."""
        self._model = model

    def begin(self, model: Any) -> None:
        """Write the checkpoint of the start, before the first cycle.

        Here a directory that cannot be written stops the training, because nothing is lost yet. From this
        file on it is known which lines of a record file are this training's.

        Parameters
        ----------
        model : object
            What the first cycle starts with.
        """
        self.see(model)
        if self.checkpoints is None or self._fingerprint is not None:
            return
        self._fingerprint = self._facts(model)
        try:
            self._save(self.checkpoints)
        except (OSError, TypeError) as error:
            raise complain(
                "checkpoints",
                "a directory that takes the model",
                str(self.checkpoints.directory),
                f"It does not: {error}",
            ) from error

    def keep(self, record: CycleRecord) -> None:
        """Write the checkpoint of a finished cycle. If that fails the orchestrator says so and goes on."""
        if self.checkpoints is None:
            return
        try:
            self._save(self.checkpoints)
        except Exception as error:  # a full disk must not cost the training
            text = f"no checkpoint of cycle {record.cycle} in {self.checkpoints.directory}"
            raise OSError(f"{text}: {error}. Training goes on, the last one remains") from error

    def _save(self, checkpoints: Checkpoints) -> None:
        orchestrator = self._orchestrator
        checkpoints.save(
            Checkpoint(
                cycle=orchestrator.state.cycles_done,
                model=dict(self._decode(self._model)),
                fingerprint=self._fingerprint or {},
                state=orchestrator.state.snapshot(),
                records=orchestrator.records,
                inner=self._inner.snapshot() if self._inner is not None else [],
                callbacks=[(key, c.snapshot()) for key, c in _numbered(orchestrator.callbacks)],  # type: ignore[attr-defined]
                stopping=asdict(orchestrator.settings.stopping),
                earlier={} if self._models is None else self._models.snapshot(orchestrator.origins),
                updates={} if self._models is None else self._again(self._models.updates),
            )
        )

    def _again(self, updates: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return those updates that count again."""
        return {x.name: updates[x.name] for x in self._orchestrator.state.echoes if x.name in updates}

    def _facts(self, model: Any) -> dict[str, Any]:
        arrays = None if model is None else self._decode(model).items()
        return {
            "model": arrays and [[name, np.asarray(a).dtype.str, list(np.shape(a))] for name, a in arrays],
            "seed": self._orchestrator.settings.seed,
            "mode": str(self._orchestrator.settings.mode),
            "strategy": self._inner.classes if self._inner is not None else [],
            "api": self._inner.api if self._inner is not None else None,
        }


def _numbered(callbacks: Iterable[Callback]) -> Iterator[tuple[str, Callback]]:
    """Yield the callbacks that have a state, by class and number: that is how they are found again."""
    seen: dict[str, int] = defaultdict(int)
    for callback in callbacks:
        if callable(getattr(callback, "snapshot", None)) and callable(getattr(callback, "restore", None)):
            name = type(callback).__name__
            seen[name] += 1
            yield f"{name} {seen[name]}", callback
