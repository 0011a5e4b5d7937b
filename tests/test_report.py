"""The run report: its numbers are the records', it survives what runs leave behind, and it can be read."""

import base64
import json
import math
import re
import shutil
import subprocess
import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from flwr_mel import Workload, paper_fleet, scheme
from flwr_mel.clientapp import describe
from flwr_mel.learners.paper import PAPER_LAYERS, draw_energy
from flwr_mel.orchestrator import Orchestrator, Settings
from flwr_mel.orchestrator.settings import Stopping
from flwr_mel.records import CycleRecord, JsonlWriter, LearnerRecord, Outcome
from flwr_mel.report import load_run, render, write_report
from flwr_mel.report.axis import cycles_axis, fit
from flwr_mel.report.charts import spread
from flwr_mel.report.ledger import class_name
from flwr_mel.report.numerals import measure, percent, ranges, short, used
from flwr_mel.report.style import CSS

with warnings.catch_warnings():
    # typer uses names that newer releases of click announce to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from flwr_mel.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")

VOID = {"meta", "br", "hr"}
FLAGS = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
    "disable-component-update", "disable-sync", "hide-scrollbars", "enable-logging=stderr",
)  # fmt: skip
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


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
        orchestrator.settle({t.node: t.samples for t in tasks if t.node not in failed}, failed, {})
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


@pytest.fixture(scope="module")
def paper(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "ha-asyn", staleness=2)


@pytest.fixture(scope="module")
def several(tmp_path_factory, paper) -> list[Path]:
    base = tmp_path_factory.mktemp("several")
    # HU-Sync cannot carry equal batches under these limits: nobody works in any cycle.
    return [paper, make_run(base / "b", "ha-sync", seed=1), make_run(base / "c", "hu-sync", cycles=5)]


# --- one run ------------------------------------------------------------------------------------------


def test_page_is_well_formed_and_loads_nothing(paper):
    found = page(paper)
    for tag, attributes in found.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "href", "xlink:href", "srcset", "action"} & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in CSS
    assert "@import" not in CSS


def test_drawings_have_title_and_description(paper):
    text = render([load_run(paper)])
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.S)
    assert len(drawings) > 45
    for drawing in drawings:
        assert re.search(r"^<svg[^>]*role=\"img\"[^>]*><title>[^<]+</title><desc>[^<]+</desc>", drawing)
        assert not re.search(r"nan|inf\b|None", drawing.replace("</", ""))


def test_embedded_numbers_equal_the_records(paper):
    records, (data,) = lines(paper), page(paper).data
    assert [c["metrics"] for c in data["cycles"]] == [r["metrics"] for r in records]
    for key in ("cycle", "mean_epochs", "bound", "clock_s", "total_energy_j", "makespan_s", "stopped"):
        assert [c[key] for c in data["cycles"]] == [r[key] for r in records]
    assert len(data["learners"]) == 20
    for row in data["learners"]:
        theirs = [next(x for x in r["learners"] if x["learner"] == row["learner"]) for r in records]
        for key in ("epochs", "samples", "time_s", "energy_j", "energy_limit_j"):
            assert row[key] == [x[key] for x in theirs]
        idle = [r["cycle_time_s"] - x["time_s"] for r, x in zip(records, theirs, strict=True)]
        assert row["idle_s"] == pytest.approx(idle)


def test_shown_numbers_equal_the_records(paper):
    records, text = lines(paper), page(paper).text
    last = records[-1]
    assert percent(last["metrics"]["accuracy"]) in text
    assert f"Virtual time {measure(last['clock_s'], ((0, 1, 's'),))}".replace("\u00a0", " ") in text
    assert f"Energy {last['total_energy_j']:,.0f} J" in text
    assert f"Mean epochs {np.mean([r['mean_epochs'] for r in records]):.2f}" in text
    for record in records:
        assert percent(record["metrics"]["accuracy"]) in text
        assert f"{record['total_samples']:,}" in text
    for row in last["learners"]:
        theirs = [x for r in records for x in r["learners"] if x["learner"] == row["learner"]]
        share = np.mean([x["time_s"] for x in theirs]) / 10
        assert f"{row['learner']} {used(share)} " in text
    for expected in (
        "HA-Asyn on MNIST",
        "20 learners",
        "T = 10 s",
        "c = 2",
        "12 cycles done",
        "EMBEDDED SUBSET",
    ):
        assert expected in text
    assert "2 laptop-16, microcontroller-19 4, 9" in text
    assert "no reply within 12.5 s" in text


def test_classes_come_from_names_or_from_the_fleet(paper, tmp_path):
    assert [class_name(n) for n in ("laptop-00", "raspberry-pi-14", "7", "pi3", "Ann")] == [
        "laptop", "raspberry-pi", "learner", "pi", "Ann",
    ]  # fmt: skip
    (data,) = page(paper).data
    assert list(dict.fromkeys(row["class"] for row in data["learners"])) == [
        "laptop", "phone", "raspberry-pi", "microcontroller",
    ]  # fmt: skip
    shutil.copytree(paper, tmp_path / "told")
    facts = json.loads((paper / "config.json").read_text())
    facts["fleet"][0]["class"] = "special"
    (tmp_path / "told/config.json").write_text(json.dumps(facts))
    (data,) = page(tmp_path / "told").data
    assert next(r for r in data["learners"] if r["learner"] == "laptop-00")["class"] == "special"


def test_report_is_reproducible_and_atomic(paper, tmp_path, monkeypatch):
    out = tmp_path / "deep" / "report.html"
    assert write_report([paper], out) == out
    first = out.read_bytes()
    assert write_report([paper], out).read_bytes() == first
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(ValueError, match=r"report\.html: the report cannot be written: No space left"):
        write_report([paper], out)
    assert out.read_bytes() == first
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]


# --- what runs leave behind ----------------------------------------------------------------------------


def test_records_alone_suffice(paper, tmp_path):
    shutil.copy(paper / "records.jsonl", tmp_path)
    text = page(tmp_path).text
    assert "No configuration is on record" in text
    assert f"{tmp_path.name} 20 learners" in text


def test_interrupted_run_shows_what_it_had(paper, tmp_path):
    whole = (paper / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_text("".join(whole[:7]) + whole[7][:200])
    shutil.copy(paper / "config.json", tmp_path)
    run = load_run(tmp_path)
    assert len(run.records) == 7
    assert not run.complete
    found = page(tmp_path)
    assert "interrupted after cycle 7 of 12" in found.text
    assert "last line of records.jsonl is cut off" in found.text
    assert [c["cycle"] for c in found.data[0]["cycles"]] == [1, 2, 3, 4, 5, 6, 7]


def test_a_cycle_on_record_twice_is_shown_once(paper, tmp_path):
    whole = (paper / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_text("".join([*whole[:3], *whole[2:]]))
    found = page(tmp_path)
    assert [c["cycle"] for c in found.data[0]["cycles"]] == list(range(1, 13))
    assert "on record more than once" in found.text


def test_cycles_in_which_nobody_worked(several):
    found = page(several[2])
    assert "nobody works in this cycle: Infeasible" in found.text
    assert "No learner had work in any cycle." in found.text
    assert "Learners 0 worked, of 20" in found.text


@pytest.mark.parametrize(
    "records",
    [
        [CycleRecord(1, 10.0)],
        [CycleRecord(1, 10.0, notes=["no learner says what it can do"]), CycleRecord(2, 10.0)],
        [CycleRecord(3, 5.0, metrics={"accuracy": math.nan, "f1": 0.5})],
        [CycleRecord(1, 1e-9, mean_epochs=math.inf, bound=math.nan, metrics={"accuracy": 1.0})],
        [CycleRecord(c, 10.0, clock_s=1e9 * c, metrics={"accuracy": 0.1}) for c in (1, 2, 900)],
        [CycleRecord(1, 10.0, learners=[LearnerRecord("a", "1"), LearnerRecord("a", "2")])],
        [
            CycleRecord(
                1, 10.0, learners=[LearnerRecord("", "1", Outcome.USED, "", 10**9, 2**40, 1, 11.0, 9e9, 1.0)]
            )
        ],
    ],
    ids=["empty", "notes", "nan", "inf", "sparse", "same name", "huge and over"],
)
def test_odd_records(tmp_path, records):
    found = page(add(tmp_path, *records))
    assert [c["cycle"] for c in found.data[0]["cycles"]] == [r.cycle for r in records]
    assert not re.search(r"\bnan\b|\binf\b", found.text.lower())


def test_one_cycle(tmp_path):
    found = page(make_run(tmp_path / "one", cycles=1))
    assert "Final accuracy" in found.text
    assert len(found.data[0]["cycles"]) == 1


def test_long_run_merges_cells(tmp_path):
    run = make_run(tmp_path / "long", cycles=100, learners=4)
    text = render([load_run(run)])
    assert max(len(re.findall("<rect", s)) for s in re.findall(r"<svg.*?</svg>", text, flags=re.S)) <= 90
    assert "cycle 1\u20132" in text


def test_thousand_learners_are_shown_by_class(tmp_path):
    run = make_run(tmp_path / "thousand", cycles=3, learners=1000, lose=False)
    text = render([load_run(run)])
    found = Page(text)
    assert "1,000 learners" in found.text
    assert "laptop \u00d7 250" in found.text
    assert text.count("<svg") < 30
    assert len(text) < 2_000_000
    assert len(found.data[0]["learners"]) == 1000


def test_broken_side_files_are_noticed_not_fatal(paper, tmp_path):
    shutil.copy(paper / "records.jsonl", tmp_path)
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "summary.json").write_text("[1]")
    text = page(tmp_path).text
    assert "config.json cannot be read and is left out" in text
    assert "summary.json is left out" in text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "there is no such run directory"),
        ({}, "not a run directory, it has no records.jsonl"),
        ({"records.jsonl": ""}, "no cycle was finished"),
        ({"records.jsonl": '{"cycle": 1'}, "no cycle was finished"),
        ({"records.jsonl": "oops\n{}\n"}, "line 1: not a cycle record"),
    ],
)
def test_errors_name_the_path_and_what_is_missing(tmp_path, files, message):
    run = tmp_path / "run"
    for name, text in (files or {}).items():
        run.mkdir(exist_ok=True)
        (run / name).write_text(text)
    if files == {}:
        run.mkdir()
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_run(run)
    assert str(run) in str(caught.value)


# --- hostile names -------------------------------------------------------------------------------------

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
            name, str(k), Outcome.USED if k % 2 else Outcome.FAILED, name, 3, 100, 100, 5.0, 4.0, 8.0, name
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


def test_names_cannot_become_markup(tmp_path, paper):
    hostile = hostile_run(tmp_path / "</title><script>alert(9)</script>")
    for runs in ([hostile], [hostile, paper]):
        found = page(*runs)
        assert [tag for tag, _ in found.elements].count("script") == 2
        assert not [tag for tag, _ in found.elements if tag == "img"]
        assert not [a for _, attributes in found.elements for a in attributes if a.startswith("on")]
        assert "alert" not in found.scripts["js"]
        assert '<script>document.title="owned"</script>' in found.text
        assert "&lt;b&gt;" in found.text  # shown as it was written, not decoded twice
        assert not set(found.text) & set("\u202e\x00")
        write_report(runs, tmp_path / "page.html")  # and it can be encoded


def test_policy_allows_our_script_alone(paper):
    found = page(paper)
    policy = next(a["content"] for _, a in found.elements if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe-eval" not in policy


# --- several runs --------------------------------------------------------------------------------------


def test_overlay_compares_the_runs(several):
    found = page(*several)
    for expected in ("3 runs compared", "HA-Asyn", "HA-Sync", "HU-Sync", "What differs", "cycles to 94%"):
        assert expected in found.text
    for axis in ("cycles", "virtual time", "energy"):
        assert f"Accuracy against {axis}" in found.text
    assert len(found.data) == 3
    for run, data in zip(several, found.data, strict=True):
        records = lines(run)
        accuracy = [r["metrics"]["accuracy"] for r in records]
        assert [c["metrics"]["accuracy"] for c in data["cycles"]] == accuracy
        reached = [
            next((r["cycle"] for r in records if r["metrics"]["accuracy"] >= x), "\u2013")
            for x in (0.9, 0.94, 0.95)
        ]
        row = (
            f"{percent(accuracy[-1])} {percent(max(accuracy))} {' '.join(map(str, reached))} {len(records)} "
        )
        assert row in found.text


def test_runs_of_one_name_are_told_apart(paper, tmp_path):
    for place in ("x", "y"):
        (tmp_path / place / "run").mkdir(parents=True)
        shutil.copy(paper / "records.jsonl", tmp_path / place / "run")
    names = [d["run"] for d in page(tmp_path / "x/run", tmp_path / "y/run", tmp_path / "y/run").data]
    assert names == ["x/run", "y/run", "y/run #2"]


def test_many_runs(paper):
    found = page(*[paper] * 12)
    assert len({d["run"] for d in found.data}) == 12


# --- small parts ---------------------------------------------------------------------------------------


def test_axes_hold_their_values_with_round_ticks():
    rng = np.random.default_rng(0)
    for _ in range(300):
        values = rng.normal(size=5) * 10 ** rng.uniform(-8, 9)
        for tight in (False, True):
            axis = fit("x", values, zero=bool(rng.random() < 0.5), tight=tight)
            assert axis.low <= values.min() * (1 + 1e-9) + 1e-12 or axis.low <= values.min()
            assert axis.high >= values.max() or math.isclose(axis.high, values.max())
            assert 1 <= len(axis.ticks) <= 9
            assert len({text for _, text in axis.ticks}) == len(axis.ticks)
    assert fit("x", np.zeros(3), zero=True).ticks[0] == (0.0, "0.0")
    assert [t for _, t in cycles_axis(np.arange(1.0, 31)).ticks] == ["1", "5", "10", "15", "20", "25", "30"]
    assert [t for _, t in fit("a", np.array([0.3, 0.95]), share=True, most=1.0).ticks][-1] == "100%"


def test_numbers_for_people():
    assert [short(x) for x in (0, 1234567, 0.5, 3.0, 1e-9, None, "x", math.nan)] == [
        "0", "1,234,567", "0.5", "3", "1e-09", "\u2013", "\u2013", "\u2013",
    ]  # fmt: skip
    assert used(0.99999) == "99%"
    assert used(1.0) == "100%"
    assert ranges([1, 2, 3, 7, 9, 10]) == "1\u20133, 7, 9\u201310"
    placed = spread([100, 101, 99, 100, 210], 210)
    assert min(np.diff(sorted(placed))) >= 15.9
    assert max(placed) <= 210


# --- the command line ----------------------------------------------------------------------------------


def call(*args: object, code: int = 0):
    result = CliRunner().invoke(app, ["report", *map(str, args)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def test_command_line(several, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    shutil.copytree(several[0], run)
    assert call(run).stdout == f"{run / 'report.html'}\n"
    assert call(*several).stdout == "report.html\n"
    assert "3 runs compared" in (tmp_path / "report.html").read_text()
    assert call(run, "--out", "x/y.html").stdout == "x/y.html\n"
    assert Path("x/y.html").read_text() == (run / "report.html").read_text()
    for args, said in (
        ((tmp_path / "none",), "no such run"),
        ((run, "--out", run), "is a directory"),
        ((), "RUN"),
    ):
        failed = call(*args, code=2)
        assert failed.stdout == ""
        assert said in failed.stderr
        assert len(failed.stderr.strip().splitlines()) == 1
    assert "flwr-mel report runs/ha-asyn" in call("--help").stdout


# --- in a browser --------------------------------------------------------------------------------------

#: Tells the page around it how the page fits.
PROBE = """<script>addEventListener("load", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  const root = document.documentElement, wide = root.clientWidth;
  const all = [...document.querySelectorAll("main *")];
  const beyond = e => !e.closest(".scroll, svg") && e.getBoundingClientRect().right > wide + 1;
  const seen = e => e.offsetParent && e.tagName != "SUB" && e.innerText?.trim();
  parent.postMessage({client: wide, scroll: root.scrollWidth, owned: document.title == "owned",
    beyond: all.filter(beyond).map(e => e.className || e.tagName),
    smallest: Math.min(...all.filter(seen).map(e => parseFloat(getComputedStyle(e).fontSize)))}, "*");
});</script>"""
#: A window cannot be as narrow as a phone, a frame can. What frames tell ends up where --dump-dom shows it.
FRAMES = """<!DOCTYPE html><body><pre></pre><script>const told = [];
addEventListener("message", e => { told.push(e.data); document.querySelector("pre").textContent =
  btoa(JSON.stringify(told)); });</script>
<iframe src="probe.html" width="390" height="800" style="border:0"></iframe>
<iframe src="probe.html" width="1280" height="800" style="border:0"></iframe></body>"""


def browse(tmp_path: Path, file: Path, *flags: str) -> subprocess.CompletedProcess:
    browser = next((b for b in BROWSERS if shutil.which(b)), None)
    if browser is None:
        pytest.skip(
            "NO BROWSER: install chromium to check the layout. Structure, numbers and escaping are checked "
            "without it."
        )
    fixed = [f"--{flag}" for flag in FLAGS]
    profile = tmp_path / f"profile-{len(list(tmp_path.iterdir()))}"
    command = [browser, *fixed, f"--user-data-dir={profile}", *flags, file.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("which", ["one", "several", "hostile"])
def test_browser_layout(which, several, tmp_path):
    runs = {"one": several[:1], "several": several, "hostile": [hostile_run(tmp_path / "hostile")]}[which]
    text = write_report(runs, tmp_path / "page.html").read_text()
    # The page's own policy would refuse the measuring script.
    bare = re.sub(r'<meta http-equiv="[^>]*>', "", text)
    (tmp_path / "probe.html").write_text(bare.replace("</body>", PROBE + "</body>"))
    frames = tmp_path / "frames.html"
    frames.write_text(FRAMES)
    dom = browse(
        tmp_path, frames, "--dump-dom", "--window-size=1400,1700", "--virtual-time-budget=9000"
    ).stdout
    told = json.loads(base64.b64decode(re.search("<pre>(.+?)</pre>", dom)[1]))
    assert sorted(one["client"] for one in told) == [390, 1280]
    for one in told:
        assert one["scroll"] <= one["client"], one
        assert not one["beyond"]
        assert one["smallest"] >= 11
        assert not one["owned"]


def test_browser_screenshots(paper, tmp_path):
    file = write_report([paper], tmp_path / "page.html")
    grounds = {}
    for name, size, flags in (
        ("laptop", (1280, 1800), ()),
        ("phone", (390, 2600), ()),
        ("dark", (1280, 900), ("--blink-settings=preferredColorScheme=0",)),
    ):
        shot = tmp_path / f"{name}.png"
        browse(tmp_path, file, f"--window-size={size[0]},{size[1]}", f"--screenshot={shot}", *flags)
        image = (255 * imread(shot)[:, :, :3]).astype(np.uint8)
        assert image.shape == (size[1], size[0], 3)
        grounds[name] = image[2, 2].mean()
        packed = image[::2, ::2].astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
        colours, counts = np.unique(packed, return_counts=True)
        assert len(colours) > 100
        assert counts.max() < 0.9 * counts.sum()
        # Ink in every part of the page, not only at its top.
        assert all(band.std() > 3 for band in np.array_split(image, 6))
    assert grounds["laptop"] > 200 > 60 > grounds["dark"]
