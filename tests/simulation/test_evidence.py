"""What is said of accuracies and sums of S follows from the committed sweeps."""

import re
from pathlib import Path

import numpy as np
import pytest
from mel_simulation.paper import evidence
from mel_simulation.sweep.results import read_results

from flwr_mel import aim
from flwr_mel.aim import SHIPPED, UNEVEN

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(("mode", "alpha", "table"), [("pl", 0.0, SHIPPED), ("fl", 0.5, UNEVEN)])
def test_the_evidence_is_what_the_sweeps_found(mode, alpha, table):
    rows = {
        row["cell"]: row
        for name in ("past", "headline", "paper", "objectives")
        for row in read_results(RESULTS / f"{name}.jsonl")
    }
    for accuracy, known in table.items():
        sums = []
        for row in rows.values():
            config = row["config"]
            ours = not row["trouble"] and not config["baseline"] and config["average"] == "data"
            if not ours or (config["dataset"], config["mode"], config["alpha"]) != ("mnist", mode, alpha):
                continue
            hit = [i for i, reached in enumerate(row["accuracy"]) if reached >= accuracy]
            if hit:
                sums.append(sum(act["progress"] for act in row["acts"][: hit[0] + 1]))
        assert len(sums) >= 15
        assert np.round(np.quantile(sums, [0.1, 0.5, 0.9]), -2) == pytest.approx(known)


def test_a_command_writes_the_evidence(tmp_path):
    module, committed = tmp_path / "aim.py", Path(aim.__file__).read_text(encoding="utf-8")
    other = re.sub(r"(?m)^    0\.9\d*: \(.*\),\n", "", committed)
    assert other != committed
    module.write_text(other, encoding="utf-8")
    evidence.update(
        [RESULTS / f"{name}.jsonl" for name in ("past", "headline", "paper", "objectives")], module
    )
    assert module.read_text(encoding="utf-8") == committed
