"""The run report: one self-contained HTML page about one run, or a comparison of several."""

from flwr_mel.report.page import render, write_report
from flwr_mel.report.run import Run, load_run

__all__ = ["Run", "load_run", "render", "write_report"]
