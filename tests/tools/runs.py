"""Runs to report on, as records in JSON, and a strict reader of pages."""

import json
import math
from html.parser import HTMLParser
from pathlib import Path

from flwr_mel import allocate
from flwr_mel.allocation.limiting import limiting
from flwr_mel.paper import PaperFleet
from flwr_mel.solvers import Exact
from flwr_mel.tools.fleetfile import Fleet
from flwr_mel.tools.report import load_run, render

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
    """Plan real cycles for the paper's fleet; only the accuracy is invented."""
    records, done, clock, joules = [], 0.0, 0.0, 0.0
    for cycle in range(1, cycles + 1):
        fleet = Fleet(PaperFleet(seed, learners).devices(cycle))
        problem = fleet.problem(
            cycle_time_s=10.0, total_samples=3000 * learners, staleness=staleness, min_samples=100
        )
        plan = allocate(problem, Exact())
        limits = limiting(problem, plan.epochs, plan.samples)
        rows = [
            {
                "learner": name, "node": str(1000 + k), "outcome": "used", "reason": "",
                "epochs": int(plan.epochs[k]), "samples": int(plan.samples[k]),
                "time_s": float(plan.time_s[k]), "energy_j": float(plan.energy_j[k]),
                "energy_limit_j": float(problem.energy_limit_j[k]), "limited_by": str(limits[k]),
            }
            for k, name in enumerate(fleet.names)
        ]  # fmt: skip
        if lose and cycle in (4, 7):
            rows[cycle] |= {"outcome": "late", "reason": "no reply within 12.5 s"}
            rows[0] |= {"outcome": "skipped", "reason": "is busy", "epochs": 0, "samples": 0}
        done += plan.mean_epochs
        waited = 9.0 + cycle if real else None
        clock, joules = clock + (waited or float(plan.time_s.max())), joules + float(plan.energy_j.sum())
        accuracy = 0.985 - 0.6 * math.exp(-0.55 * done**0.62) - 0.002 * seed
        records.append({
            "cycle": cycle, "cycle_time_s": 10.0, "makespan_s": float(plan.time_s.max()),
            "total_samples": 3000 * learners, "asked_samples": 3000 * learners, "staleness": staleness,
            "status": "optimal", "objective": "epochs", "value": plan.mean_epochs, "bound": plan.bound,
            "energy_j": float(plan.energy_j.sum()), "clock_s": clock, "total_energy_j": joules,
            "metrics": {"accuracy": accuracy, "loss": -math.log(accuracy)}, "notes": [], "stopped": "",
            "learners": rows, "waited_s": waited,
        })  # fmt: skip
    write(path, *records)
    config = {"scheme": "ha-asyn" if staleness else "ha-sync", "mode": "pl", "cycles": cycles, "seed": seed}
    facts = {"config": {**config, "dataset": "mnist", "staleness": staleness}, "notice": "EMBEDDED SUBSET."}
    (path / "config.json").write_text(json.dumps(facts))
    return path


def write(path: Path, *records: dict) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "records.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


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
