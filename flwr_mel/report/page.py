"""The page around the sections, and the file it goes to."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from flwr_mel import __version__
from flwr_mel._validate import complain
from flwr_mel.report.data import run_data
from flwr_mel.report.headline import title
from flwr_mel.report.markup import Html, data_block, el
from flwr_mel.report.overlay import labels, overlay
from flwr_mel.report.run import Run, load_run
from flwr_mel.report.single import single
from flwr_mel.report.style import CSS, JS


def write_report(runs: Sequence[str | Path], out: str | Path) -> Path:
    """Write one self-contained HTML page about one run or several.

    Parameters
    ----------
    runs : sequence of paths
        Run directories. One: the full report. Several: a comparison.
    out : path
        The HTML file. It is replaced in one step: readers never see half a page.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    ValueError
        A run cannot be read, or the page cannot be written; the message names the path.
    """
    if isinstance(runs, str | os.PathLike):
        runs = [runs]
    if not runs:
        raise complain("runs", "at least one run directory", list(runs))
    page = render([load_run(path) for path in runs])
    target = Path(out)
    try:
        _replace(target, page)
    except OSError as error:
        raise ValueError(f"{target}: the report cannot be written: {error.strerror or error}") from None
    return target


def render(runs: Sequence[Run]) -> str:
    """Return the page as text.

    Parameters
    ----------
    runs : sequence of Run
        One or more.
    """
    one = len(runs) == 1
    sections = single(runs[0]) if one else overlay(runs)
    name = title(runs[0]) if one else f"{len(runs):,} runs compared"
    data = [run_data(run, label) for run, label in zip(runs, labels(runs), strict=True)]
    # Inside script and style nothing may be escaped; both are our own text.
    script, style = Html(JS), Html(CSS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        # Even a name that got around the escaping could not run or load anything.
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{name} \u00b7 flwr-mel"),
        el("style", style),
    )
    foot = el(
        "footer",
        f"Made by flwr-mel {__version__}. Times and energies come from the cost model, not from a clock or a "
        "meter. The numbers of this page are in it as JSON, in the element ",
        el("code", "flwr-mel-data"),
        ".",
    )
    body = el("body", el("main", sections, foot), data_block("flwr-mel-data", data), el("script", script))
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def _replace(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        with part.open("x", encoding="utf-8") as file:
            file.write(text)
        part.replace(target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
