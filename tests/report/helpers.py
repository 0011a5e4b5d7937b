"""Runs to report on, and a strict reader of pages."""

import json
import math
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from flwr_mel import Workload, paper_fleet, scheme
from flwr_mel.clientapp import describe
from flwr_mel.orchestrator import Orchestrator, Returned, Settings
from flwr_mel.orchestrator.settings import Stopping
from flwr_mel.paper import PAPER_LAYERS, draw_energy
from flwr_mel.records import CycleRecord, JsonlWriter, LearnerRecord, Outcome
from flwr_mel.report import load_run, render

VOID = {"meta", "br", "hr"}


def make_run(
    path: Path, name="ha-asyn", cycles=12, learners=20, *, staleness=None, seed=0, lose=True, energy=10.0
) -> Path:
    """Plan real cycles for the paper's fleet; only the accuracy is invented."""
    rng = np.random.default_rng(seed)
    fleet = paper_fleet(rng, learners, energy_j=None)
    plan = scheme(name, staleness)
    samples = 3000 * learners
    settings = Settings(
        cycle_time_s=10.0,
        total_samples=samples,
        staleness=plan.staleness,
        solver=plan.solver,
        min_samples=100,
        workload=Workload.mlp(PAPER_LAYERS, ship_data=False),
        stopping=Stopping(cycles=cycles),
        seed=seed,
    )
    orchestrator = Orchestrator(settings, [JsonlWriter(path / "records.jsonl")])
    nodes, done = [str(1000 + k) for k in range(learners)], 0.0
    for cycle in range(1, cycles + 1):
        limits = draw_energy(rng, learners, energy, energy / 4)
        for node, device, limit in zip(nodes, fleet, limits, strict=True):
            orchestrator.hear(node, describe(device) | {"mel-energy-limit-j": float(limit)})
        tasks = orchestrator.plan(cycle, nodes).tasks
        failed = {}
        if lose and tasks and cycle in (4, 9):
            failed = {tasks[cycle % len(tasks)].node: (Outcome.LATE, "no reply within 12.5 s")}
        orchestrator.settle(Returned({t.node: t.samples for t in tasks if t.node not in failed}, failed, {}))
        done += sum(t.epochs for t in tasks) / learners
        accuracy = 0.985 - 0.6 * math.exp(-0.55 * done**0.62)
        orchestrator.observe(
            {"accuracy": accuracy, "loss": -math.log(accuracy), "train-loss": 1 / (1 + done)}
        )
    orchestrator.close()
    facts = {
        "config": {
            "scheme": name, "mode": "fl", "cycles": cycles, "cycle-time": 10.0, "energy": energy,
            "energy-spread": energy / 4, "staleness": plan.staleness, "dataset": "mnist", "seed": seed,
            "target-accuracy": 0.95,
        },
        "versions": {"flwr-mel": "0.1.0", "numpy": np.__version__},
        "fleet": [{"name": d.name, "cpu_hz": d.cpu_hz, "rate_bps": d.rate_bps} for d in fleet],
        "notice": "EMBEDDED SUBSET: 5,000 digits, not the full MNIST.",
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(facts))
    return path


class Page(HTMLParser):
    """Parse strictly: every element is closed in order, ids are unique, nothing is loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert not self.open, self.open
        ids = [a["id"] for _, a in self.elements if "id" in a]
        assert len(ids) == len(set(ids))

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            kind = self.elements[-1][1].get("type", "js")
            self.scripts[kind] = self.scripts.get(kind, "") + data
        elif "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def data(self) -> list[dict]:
        def refuse(constant):
            raise AssertionError(constant)

        return json.loads(self.scripts["application/json"], parse_constant=refuse)


def page(*runs: Path) -> Page:
    return Page(render([load_run(run) for run in runs]))


def add(path: Path, *records: CycleRecord) -> Path:
    for record in records:
        JsonlWriter(path / "records.jsonl")(record)
    return path


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]


HOSTILE = (
    '<script>document.title="owned"</script>',
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(2)</script>",
    "</title></style><svg onload=alert(3)>",
    "' onmouseover='alert(4)",
    "\u202egpj.exe\x00\ud800",
    "&lt;b&gt;",
    "W" * 200,
)


def hostile_run(path: Path) -> Path:
    rows = [
        LearnerRecord(
            name, str(k), Outcome.USED if k % 2 else Outcome.FAILED, name, 3, 100, 100, 5.0, 4.0, 8.0
        )
        for k, name in enumerate(HOSTILE)
    ]
    records = [
        CycleRecord(c, 10.0, 6.0, 700, 700, 1, HOSTILE[0], 3.0, 3.0, 28.0, 6.0 * c, 28.0 * c, rows,
                    {"accuracy": 0.5 + 0.1 * c, HOSTILE[1]: 1.0}, list(HOSTILE), HOSTILE[2] if c == 2 else "")
        for c in (1, 2)
    ]  # fmt: skip
    add(path, *records)
    config = {
        "scheme": HOSTILE[0],
        "dataset": HOSTILE[3],
        "mode": HOSTILE[1],
        "seed": HOSTILE[4],
        HOSTILE[2]: HOSTILE,
    }
    facts = {"config": config, "versions": {HOSTILE[0]: HOSTILE[1]}, "notice": HOSTILE[2]}
    facts["fleet"] = [{"name": HOSTILE[1], "class": HOSTILE[3], "cpu_hz": HOSTILE[0]}, HOSTILE[0]]
    (path / "config.json").write_text(json.dumps(facts))
    return path
