"""``flwr-mel watch``: follow a job's records from another terminal."""

from __future__ import annotations

import io
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, Protocol

import typer

from flwr_mel._text import printable
from flwr_mel._validate import InputError, Phrase, complain, number
from flwr_mel.cli.drawing import some
from flwr_mel.cli.shared import bad_input, console, refuse_given
from flwr_mel.cli.watch.lines import Lines
from flwr_mel.cli.watch.place import Place
from flwr_mel.cli.watch.screen import Screen
from flwr_mel.records.follow import Damage, Entry, History, Restart
from flwr_mel.report.run import RECORDS

EXAMPLES = """Examples:

flwr-mel watch runs/mine

flwr-mel watch mel.jsonl -v | tee watch.log

flwr-mel watch runs/mine --json | jq .metrics.accuracy

flwr-mel watch runs/mine --once --wait 60"""

_OPTIONS = {"wait": "--wait", "metric": "--metric"}
#: Seconds between two looks at the file.
_PERIOD_S = 0.5
#: Bad lines that one look reports one by one.
_MOST_DAMAGES = 3
#: What a shell says of a program that SIGTERM ended.
_TERMINATED = 128 + signal.SIGTERM


class Show(Protocol):
    """What a way of showing a run does."""

    def say(self, text: str) -> None:
        """Tell about the file."""

    def cycle(self, entry: Entry, cycles: int | None) -> None:
        """Take a cycle."""

    def look(self, history: History, cycles: int | None, ending: str, age_s: float) -> None:
        """End a look at the file."""


def follow(place: Place, show: Show, *, once: bool, wait_s: float | None, metric: str = "") -> None:
    """Show a run until it ends.

    Parameters
    ----------
    place : Place
        Where it is.
    show : Show
        How.
    once : bool
        End as soon as there is something to show.
    wait_s : float or None
        How long to wait for the first cycle; None: as long as it takes.
    metric : str
        Must be among the run's, at the latest when it ends; empty: any.
    """
    history, began, waiting, doubted = History(), time.monotonic(), False, False
    while True:
        damages: list[Damage] = []
        for event in place.poll():
            if isinstance(event, Entry):
                history.add(event.record)
                show.cycle(event, place.cycles)
            elif isinstance(event, Restart):
                history.clear()
                show.say(str(event))
            else:
                damages.append(event)
        _report(place, show, damages, alone=history.last is None)
        ending = place.ending(history)
        doubt = _doubt(history, metric)
        if doubt and (ending or once):
            raise doubt
        if doubt and not doubted:
            show.say(f"{doubt.told(_OPTIONS)} Perhaps it comes later.")
            doubted = True
        show.look(history, place.cycles, ending, place.age_s)
        if ending or (once and history.last):
            return
        if history.last is None and not waiting:
            waiting = True
            place.check()
            if wait_s != 0:
                show.say(f"waiting for the end of the first cycle in {place.records} (Ctrl-C ends)")
                show.look(history, place.cycles, "", 0.0)
        if history.last is None and wait_s is not None and time.monotonic() - began >= wait_s:
            raise _nothing(place, wait_s)
        time.sleep(_PERIOD_S)


def _report(place: Place, show: Show, damages: list[Damage], *, alone: bool) -> None:
    if damages and alone and place.records == place.path:
        got = Phrase(f"{place.path}, whose line {damages[0].line} is none ({damages[0].why})")
        raise complain("RUN", "a run directory or a file of records (JSON lines)", got)
    for damage in damages[:_MOST_DAMAGES]:
        show.say(f"{place.records}: {damage}")
    if len(damages) > _MOST_DAMAGES:
        show.say(f"{place.records}: {len(damages) - _MOST_DAMAGES:,} more lines are skipped")


def _doubt(history: History, metric: str) -> InputError | None:
    """Return what is to be said of a metric that no cycle has had yet."""
    known = dict.fromkeys(key for metrics in history.metrics.values() for key in metrics)
    if not metric or history.last is None or metric in known:
        return None
    names = some([printable(key) for key in known], 10) or "none"
    return complain("metric", "one that the run has", metric, f"It has: {names}.")


def _nothing(place: Place, wait_s: float) -> InputError:
    if place.path.is_dir():
        what = "has no finished cycle" if place.records.exists() else f"has no {RECORDS}"
    else:
        what = "has no finished cycle" if place.path.exists() else "is not there"
    waited = f" after {wait_s:g} s" if wait_s else ""
    remedy = Phrase("Give a run directory or a file of records, or a longer {}.", "wait")
    return complain("RUN", "a run with records", Phrase(f"{place.path}, which {what}{waited}"), remedy)


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise typer.Exit(_TERMINATED)


@contextmanager
def _orderly() -> Iterator[None]:
    """Leave the terminal as it was, whoever ends us; Ctrl-C is the usual way to stop watching."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def watch(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run directory, or a file that JsonlWriter writes.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Show what is there and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The records, one line of JSON per cycle.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Lines, with one per learner, also in a terminal.")
    ] = False,
    metric: Annotated[
        str,
        typer.Option(
            help="Metric to draw, or to write in lines.  \\[default: accuracy, else loss, else any; "
            "in lines all]",
            show_default=False,
        ),
    ] = "",
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long to wait for a first cycle.  \\[default: for ever; with --once 0]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Follow a running job: what every learner was given, what keeps it from more, what came back.

    RUN is a run directory, or a file that JsonlWriter writes. It may not be there yet,
    and may be resumed while it is watched. The job is not disturbed.

    In a terminal: the last cycle in a view that fits it, problems first if there are many learners.
    Elsewhere: one line per cycle and who was not used; -v adds a line per learner.

    A cycle that a resumed run repeats is shown again; the later one counts.

    Ends with the run (its record says that training stopped, or its directory has the summary)
    or on Ctrl-C, both with exit code 0. A lone file of records does not tell that all is done.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names come from learners; one that this terminal cannot write must not end the view.
        sys.stdout.reconfigure(errors="replace")
    if as_json:
        refuse_given("with --json, which has all metrics and learners", "metric", "verbose")
    with bad_input(_OPTIONS):
        wait_s = (0.0 if once else None) if wait is None else number("wait", wait, least=0)
        out = console()
        lines = as_json or verbose or out.is_dumb_terminal or not sys.stdout.isatty()
        with _orderly():
            if lines:
                words = Lines(as_json=as_json, verbose=verbose, metric=metric)
                follow(Place(run), words, once=once, wait_s=wait_s, metric=metric)
                return
            with Screen(out, str(run), metric, live=not once) as screen:
                follow(Place(run), screen, once=once, wait_s=wait_s, metric=metric)
