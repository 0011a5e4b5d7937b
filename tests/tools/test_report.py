"""The report: what it says is what the records say, whatever they hold."""

import json
import re
import sys

import pytest

from flwr_mel.tools.report import load_run, write_report
from tests.tools.commands import refused, run
from tests.tools.runs import deployment, hostile_run, make_run, page, write


def lines(path):
    return [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]


def test_one_run_has_every_section_and_the_numbers_of_the_records(several):
    found, records = page(several[0]), lines(several[0])
    heads = re.findall("<h2>(.*?)</h2>", found.source)
    assert heads == [
        "Learning", "One round", "Work given", "Limits and idle time", "Skipped and failed clients",
        "Remarks",
    ]  # fmt: skip
    last = records[-1]
    for text in (
        f"{100 * last['metrics']['accuracy']:.2f}%",
        f"{last['total_energy_j']:,.4g} J",
        "of T = 10 s",
        "mnist, ha-asyn, 20 clients, 8 rounds",
        "8 rounds done",
        "EMBEDDED SUBSET.",
        "late no reply in time 2 laptop-04, microcontroller-07 rounds 4, 7",
    ):
        assert text in found.text.replace("\u00a0", " "), text
    # Accuracy against time and energy, and the loss, drawn in the page's own colours.
    assert found.source.count("<svg") == 3
    assert all(
        name in found.text for name in ("Accuracy against time", "against energy", "Loss against time")
    )
    assert "prefers-color-scheme: dark" in found.source
    assert "var(--c0)" in found.source
    assert "#0072b2" not in found.source.partition("</style>")[2]
    bars = re.findall("left:(.+?)%;width:(.+?)%", found.source)
    assert len(bars) >= 3 * 20
    assert all(0 <= float(left) <= float(left) + float(width) <= 100 for left, width in bars)
    names = {row["learner"] for row in records[0]["learners"]}
    assert all(name in found.text for name in names)


def test_the_heat_map_has_a_cell_per_round_and_marks_lost_work(several):
    found = page(several[0])
    titles = [a["title"] for _, a in found.elements if "title" in a]
    records = lines(several[0])
    want = records[2]["learners"][1]
    assert f"{want['learner']}, round 3: {want['epochs']} epochs" in titles
    assert f"{want['learner']}, round 3: {want['samples']:,} samples" in titles
    assert len([t for t in titles if t.endswith(", not used")]) == 4  # two late clients, in both maps
    assert len([1 for _, a in found.elements if a.get("class") == "lost"]) == 4
    assert len([t for t in titles if re.search(r"round \d+: \S+ epochs", t)]) == 20 * 8


def test_many_clients_are_shown_by_kind_and_many_rounds_by_cells(tmp_path):
    found = page(make_run(tmp_path, cycles=61, learners=41, lose=False))
    assert "kind of client" in found.text
    assert "2 rounds, with their mean" in found.text
    assert "laptop-00" not in found.text
    assert len([1 for _, a in found.elements if "--v:" in a.get("style", "")]) == 2 * 4 * 31


def test_several_runs_are_compared_with_bands_over_seeds(several):
    found = page(*several)
    assert "6 runs compared" in found.text
    assert "scheme=ha-asyn staleness=2 3 runs" in found.text
    assert "scheme=ha-sync staleness=0 3 runs" in found.text
    assert "Runs that differ only in their seeds are combined." in found.text
    finals = [lines(path)[-1]["metrics"]["accuracy"] for path in several[:3]]
    assert f"{100 * sum(finals) / 3:.2f}%" in found.text
    assert f"{100 * min(finals):.2f}% to {100 * max(finals):.2f}%" in found.text
    assert found.source.count("fill-opacity: 0.2") >= 6  # a band per curve in three charts
    assert re.search(r"rounds to 9\d% scheme=ha-asyn staleness=2 3 runs \d", found.text)


def test_a_deployment_shows_what_was_measured(tmp_path):
    found = page(deployment(tmp_path))
    text = found.text.replace("\u00a0", " ")
    assert (
        "Round 4, as measured. The last reply came after 5 s; T = 10 s, and 4 of 4 rounds ended within T."
        in text
    )
    titles = [a["title"] for _, a in found.elements if "title" in a]
    assert "pi-1: 5\u00a0s, planned 40\u00a0s" in titles
    assert "was idle for 0 s per round" in text
    assert "2.4 times the training per second . A planned round takes 5 s instead of 10 s, with 120%" in text
    assert "14 November 2023, 22:13 UTC, 25 s" in text
    assert "Planned time 25" not in text
    assert "Time 25 s" in text


def test_a_run_is_running_until_it_is_silent_for_long(tmp_path):
    alive = load_run(deployment(tmp_path))
    last = 1.7e9 + 25.0
    assert alive.state(last + 60) == (
        True,
        "running: 4 rounds done when this page was made",
    )
    assert alive.state(last + 3600) == (True, "4 rounds done, the last on 14 November 2023 at 22:13 UTC")
    assert load_run(deployment(tmp_path, stopped="enough")).state(last + 60) == (True, "enough")
    (tmp_path / "config.json").write_text('{"config": {"cycles": 9}}')
    assert (
        load_run(deployment(tmp_path))
        .state(last + 3600)[1]
        .startswith("interrupted: 4 rounds done, the last on")
    )


def test_a_comparison_begins_with_the_gain_over_the_projects_own_rounds(tmp_path):
    own, planned = deployment(tmp_path / "own", observed=True), deployment(tmp_path / "planned")
    text = page(planned, own).text.replace("\u00a0", " ")
    assert "planned: 1.6 times as fast to 80.0%: 25 s instead of 40 s, 5 J instead of 8 J." in text
    assert "times as fast" not in page(planned, planned).text


def test_without_accuracy_or_energy_the_page_shows_what_there_is(tmp_path):
    base = {"learner": "a", "node": "1", "outcome": "used", "baseline": True, "time_s": 3.0}
    task = base | {"baseline": False, "epochs": 2, "samples": 50, "time_s": 4.0, "limited_by": "data"}
    records = [
        {
            "cycle": n,
            "cycle_time_s": 5.0,
            "waited_s": 6.0,
            "clock_s": 6.0 * n,
            "metrics": {"error": 0.5 / n},
            "learners": [row],
        }
        for n, row in enumerate((base, task), 1)
    ]
    found = page(write(tmp_path, *records))
    assert "Error against rounds" in found.text
    assert "energy, J" not in found.text
    assert "Final error 0.25" in found.text
    assert "was idle for 2.5 s per round" in found.text.replace("\u00a0", " ")
    assert not re.search(r"Energy|\d\sJ\b", found.text)
    assert "Final error 0.25" not in page(tmp_path, tmp_path).text


def test_records_with_little_in_them_are_enough(tmp_path):
    bare = {"cycle": 1, "cycle_time_s": 5.0, "learners": [], "metrics": {}}
    skipped = {"learner": "a", "node": "1", "outcome": "skipped", "reason": "x"}
    rows = [skipped, {"learner": "a", "node": "2", "outcome": "rejected"}]
    again = {"cycle": 3, "learners": rows, "staleness": None, "bound": None, "metrics": {}}
    nan = {"cycle": 2, "learners": [], "metrics": {"eval_acc": None}}
    text = page(write(tmp_path, bare, nan, again)).text
    assert "No client had a task in any round." in text
    assert "skipped x 1 a (1) round 3" in text
    assert "rejected no reason on record 1 a (2) round 3" in text
    assert "no staleness cap" in text
    page(tmp_path, tmp_path)


def test_cut_and_repeated_records(tmp_path):
    path = make_run(tmp_path / "run", cycles=3)
    file = path / "records.jsonl"
    again = {"cycle": 3, "stopped": "enough", "learners": [], "metrics": {}}
    file.write_text(file.read_text() + json.dumps(again) + '\n{"cycle": 4, "lear')
    found = load_run(path)
    assert [record.cycle for record in found.records] == [1, 2, 3]
    assert found.state() == (True, "enough")
    file.write_text(file.read_text().rpartition("\n")[0] + "\n" + json.dumps(again | {"cycle": 1}) + "\n")
    assert [record.cycle for record in load_run(path).records] == [1]  # another training has begun
    alone = tmp_path / "mine.jsonl"
    alone.write_text(file.read_text().split("\n")[0])
    assert (load_run(alone).name, load_run(alone).config) == ("mine.jsonl", {})
    assert (load_run(file).name, load_run(file).config) == ("run", found.config)
    bare = alone.rename(tmp_path / "records.jsonl")
    assert (load_run(bare).name, load_run(tmp_path).name) == ("records.jsonl", tmp_path.name)
    (path / "config.json").write_text("{")
    assert "and perhaps config.json" in refused("report", path, code=2)


def test_names_cannot_become_markup(tmp_path, several):
    hostile = hostile_run(tmp_path / "</title><script>alert(9)<script>")
    for runs in ([hostile], [hostile, several[0]]):
        found = page(*runs)
        assert not [tag for tag, _ in found.elements if tag in ("script", "img")]
        assert not [a for _, attributes in found.elements for a in attributes if a.startswith("on")]
        assert '<script>document.title="owned"</script>' in found.text
        assert "&lt;b&gt; $title ${main}" in found.text  # shown as it was written
        assert not set(found.text) & set("\u202e\x00")
        write_report(runs, tmp_path / "page.html")  # and it can be encoded
    policy = next(a["content"] for _, a in found.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")


def test_one_run_gives_one_page(several, tmp_path):
    pages = [write_report(several[:1], tmp_path / f"{n}.html").read_bytes() for n in range(2)]
    assert pages[0] == pages[1]


def test_the_command(several, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = run("report", several[0], "--out", "page.html").stdout
    assert out == "page.html\n"
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert run("report", *several[:2]).stdout == "report.html\n"
    assert "--out must be a file" in refused("report", several[0], "--out", tmp_path)
    told = refused("report", tmp_path, code=4)
    assert "RUN must be a directory with records.jsonl and perhaps config.json, or a file of records" in told
    assert f"got '{tmp_path}" in told
    (tmp_path / "records.jsonl").write_text("{}\n{}\n")
    assert "records.jsonl, line 1: the line must be a cycle record" in refused("report", tmp_path)
    (tmp_path / "records.jsonl").write_bytes(b"\xff\n")
    assert "can't decode byte" in refused("report", tmp_path)
    (tmp_path / "records.jsonl").write_text("\n")
    assert "one with a finished round" in refused("report", tmp_path)


def test_without_matplotlib_the_extra_is_named(several, tmp_path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    told = refused("report", several[0], "--out", tmp_path / "page.html", code=4)
    assert "matplotlib" in told
    assert "in a clone of flwr_mel: pip install '.[report]'" in told
    assert not (tmp_path / "page.html").exists()
    with pytest.raises(ImportError):
        write_report([several[0]], tmp_path / "page.html")
