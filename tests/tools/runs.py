"""Runs to report on, as records in JSON, and a strict reader of pages."""

import json
import math
from html.parser import HTMLParser
from pathlib import Path

from flwr_mel import JsonlWriter, Workload, wire
from flwr_mel.clientapp import describe
from flwr_mel.paper import PAPER_LAYERS, PaperFleet
from flwr_mel.tools.report import load_run, render
from tests.cycle.tools import App, Run

HOSTILE = (
    '<script>document.title="owned"</script>',
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(2)</script>",
    "</title></style><svg onload=alert(3)>",
    "' onmouseover='alert(4)",
    "\u202egpj.exe\x00\ud800",
    "&lt;b&gt; $title ${main}",
    "W" * 200,
)


def make_run(path: Path, cycles=8, learners=20, *, staleness=2, seed=0, lose=True, real=False) -> Path:
    """Train scripted clients with the devices of the paper's fleet; only the accuracy is invented."""
    devices = PaperFleet(seed, learners).devices()
    apps = [App(capability=describe(d) | {wire.LEARNER: d.name}, held=10**6) for d in devices]
    limits = {"cycle_time_s": 10.0, "total_samples": 3000 * learners, "min_samples": 100}
    run = Run(apps, staleness=staleness, workload=Workload.mlp(PAPER_LAYERS), **limits)
    writer, done = JsonlWriter(path / "records.jsonl"), 0.0
    for cycle in range(1, cycles + 1):
        record = run.round(lost=[cycle] if lose and cycle in (4, 7) else [])
        if real:
            record.waited_s, record.clock_s = 9.0 + cycle, 9.0 * cycle + cycle * (cycle + 1) / 2
        done += record.value
        accuracy = 0.985 - 0.6 * math.exp(-0.55 * done**0.62) - 0.002 * seed
        record.metrics, record.notes = {"accuracy": accuracy, "loss": -math.log(accuracy)}, []
        writer(record)
    config = {"scheme": "ha-asyn" if staleness else "ha-sync", "mode": "pl", "cycles": cycles, "seed": seed}
    facts = {"config": {**config, "dataset": "mnist", "staleness": staleness}, "notice": "EMBEDDED SUBSET."}
    (path / "config.json").write_text(json.dumps(facts))
    return path


def write(path: Path, *records: dict) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "records.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def deployment(path, rounds=4, observed=False, **more):
    """Write a run of a client that was measured: 10 s in the baseline, then 5 s of 40 s planned."""
    records = []
    for n in range(1, rounds + 1):
        own = observed or n == 1
        row = {"learner": "pi-1", "node": "1", "outcome": "used", "baseline": own, "epochs": 0 if own else 3,
               "samples": 0 if own else 50, "time_s": 40.0, "round_trip_s": 10.0 if own else 5.0}  # fmt: skip
        took = 10.0 if own else 5.0
        clock = took * n if observed else 10.0 + 5.0 * (n - 1)
        records.append(
            {"cycle": n, "cycle_time_s": 10.0, "waited_s": took, "clock_s": clock, "baseline_s": 10.0,
             "status": "baseline" if own else "optimal", "work": 1.0 if own else 1.2,
             "total_energy_j": clock / 5, "metrics": {"accuracy": 0.2 * n, "loss": 1 / n},
             "began_at": 1.7e9 + clock - took, "learners": [row]} | more
        )  # fmt: skip
    return write(path, *records)


def hostile_run(path: Path) -> Path:
    rows = [
        {"learner": name, "node": str(k), "outcome": ("used", "failed", "late")[k % 3], "reason": name,
         "epochs": 3, "samples": 100,
         "time_s": 5.0, "energy_j": 4.0, "energy_limit_j": 8.0, "limited_by": name}
        for k, name in enumerate(HOSTILE)
    ]  # fmt: skip
    records = [
        {"cycle": c, "cycle_time_s": 10.0, "status": HOSTILE[0], "objective": HOSTILE[1], "learners": rows,
         "metrics": {"accuracy": 0.5 + 0.1 * c, HOSTILE[1]: 1.0}, "notes": HOSTILE, "stopped": HOSTILE[2]}
        for c in (1, 2)
    ]  # fmt: skip
    write(path, *records)
    config = {"scheme": HOSTILE[0], "dataset": HOSTILE[3], "mode": HOSTILE[1], "seed": HOSTILE[4]}
    facts = {"config": {**config, HOSTILE[2]: HOSTILE}, "notice": HOSTILE[2]}
    (path / "config.json").write_text(json.dumps(facts))
    return path


class Page(HTMLParser):
    """Parse strictly: every element is closed in order, ids are unique, nothing is loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source, self.open, self.elements, self.texts = text, [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open
        ids = [a["id"] for _, a in self.elements if "id" in a]
        assert len(ids) == len(set(ids))
        links = [a[k] for _, a in self.elements for k in ("href", "src", "xlink:href") if k in a]
        assert all(link.startswith("#") for link in links)

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "hr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def page(*runs: Path) -> Page:
    return Page(render([load_run(run) for run in runs]))
