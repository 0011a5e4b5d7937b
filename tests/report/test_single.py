"""The report on one run: its numbers are the records'."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from flwr_mel.report import load_run, render, write_report
from flwr_mel.report.ledger import class_name
from flwr_mel.report.numerals import JOULES, SECONDS, measure, percent, used
from flwr_mel.report.style import CSS
from tests.report.helpers import lines, page


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


def test_one_cycle_is_drawn_as_it_passes(paper):
    records, found = lines(paper), page(paper)
    bars = [a["aria-label"] for tag, a in found.elements if a.get("class") == "bar" and "aria-label" in a]
    assert len(bars) == 20
    for row in records[-1]["learners"]:
        receive, send = row["receive_s"], row["send_s"]
        compute = row["time_s"] - receive - send
        assert min(receive, send, compute) > 0
        said = [f"{word} {measure(s, SECONDS, 3)}" for word, s in
                (("receives", receive), ("computes", compute), ("sends", send))]  # fmt: skip
        assert f"{row['learner']}: {', '.join(said)}" in bars
    assert "Cycle 12 by the cost model; the last report comes after" in found.text


def test_records_without_the_parts_of_time_are_drawn_whole(paper, tmp_path):
    with (tmp_path / "records.jsonl").open("w") as file:
        for record in lines(paper):
            for row in record["learners"]:
                del row["receive_s"], row["send_s"]
            file.write(json.dumps(record) + "\n")
    assert "How the learners' time splits is not on record" in page(tmp_path).text


def test_accuracy_stands_against_cycles_time_and_energy_with_its_costs(paper):
    records, text = lines(paper), page(paper).text
    for name in ("cycles", "virtual time", "energy"):
        assert f"Accuracy against {name}" in text
    first = next(r for r in records if r["metrics"]["accuracy"] >= 0.95)
    spent = f"{measure(first['clock_s'], SECONDS)} {measure(first['total_energy_j'], JOULES)}"
    assert f"95%, the target {first['cycle']} {' '.join(spent.split())}" in text


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
    with pytest.raises(ValueError, match=r"a file that can be written, got .*report\.html'\. No space left"):
        write_report([paper], out)
    assert out.read_bytes() == first
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]
