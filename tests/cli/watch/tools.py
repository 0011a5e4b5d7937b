"""Cycles to watch."""

import json

from flwr_mel.records import CycleRecord, LearnerRecord, Outcome


def cycle(n, *, accuracy=None, learners=3, **fields):
    rows = [
        LearnerRecord(
            f"phone-{k}", str(k), Outcome.USED, "", 3, 812 + k, 812 + k, 9.0, 4.0, 5.0, "energy", 8.5, 3.9
        )
        for k in range(learners)
    ]
    metrics = {"accuracy": n / 10 if accuracy is None else accuracy, "loss": 1 / n}
    values = {
        "makespan_s": 9.0,
        "total_samples": 2439,
        "clock_s": 9.0 * n,
        "status": "optimal",
        "learners": rows,
        "metrics": metrics,
    }
    return CycleRecord(n, 10.0, **{**values, **fields})


def line(record):
    return json.dumps(record.as_dict()).encode() + b"\n"
