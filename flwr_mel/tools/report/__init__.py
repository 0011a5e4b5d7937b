"""The report: one self-contained HTML page about one run, or a comparison of several.

``page.html`` is the frame with the style sheet; ``single.html`` and ``compare.html`` have the sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flwr_mel import __version__
from flwr_mel._files import atomically
from flwr_mel._validate import complain
from flwr_mel.tools.report.compare import compare
from flwr_mel.tools.report.markup import fill
from flwr_mel.tools.report.runs import Run, load_run
from flwr_mel.tools.report.single import single

__all__ = ["Run", "load_run", "render", "write_report"]


def render(runs: Sequence[Run]) -> str:
    """Return the page about one run or several as text.

    Raises
    ------
    ImportError
        If matplotlib, which draws the curves, is not installed.
    """
    title, main = single(runs[0]) if len(runs) == 1 else compare(runs)
    return fill("page.html", title=title, main=main, version=__version__)


def write_report(runs: Sequence[str | Path], out: str | Path) -> Path:
    """Write one self-contained HTML page about one run or several, at once or not at all.

    Parameters
    ----------
    runs : sequence of paths
        Run directories or files of records, at least one. One: the full report. Several: a comparison.
    out : path
        The HTML file.

    Raises
    ------
    ValueError
        A run cannot be read, or the page cannot be written; the message names the path.
    ImportError
        If matplotlib, which draws the curves, is not installed.
    """
    page = render([load_run(path) for path in runs])
    try:
        atomically(out, lambda file: file.write(page))
    except OSError as error:
        why = f"{error.strerror or error}."
        raise complain("out", "a file that can be written", str(out), why) from error
    return Path(out)
