"""The page in a browser: it fits, and nothing is out of sight."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flwr_mel.tools.report import write_report
from tests.tools.runs import deployment, hostile_run
from tests.waiting import PATIENCE_S

FLAGS = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
    "disable-component-update", "disable-sync", "hide-scrollbars", "enable-logging=stderr",
)  # fmt: skip
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


#: Tells the page around it how the page fits.
PROBE = """<script>addEventListener("load", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  const root = document.documentElement, wide = root.clientWidth;
  const all = [...document.querySelectorAll("main *")];
  const beyond = e => !e.closest("svg") && e.getBoundingClientRect().right > wide + 1;
  const seen = e => e.offsetParent && e.tagName != "SUB" && e.innerText?.trim();
  parent.postMessage({client: wide, scroll: root.scrollWidth, owned: document.title == "owned",
    beyond: all.filter(beyond).map(e => e.className || e.tagName),
    clipped: all.filter(e => e.closest("tbody") && e.clientWidth
      && e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML),
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("which", ["one", "several", "hostile", "measured", "tried"])
def test_browser_layout(which, several, tmp_path):
    measured, own = deployment(tmp_path / "planned", 60), deployment(tmp_path / "own", 60, observed=True)
    runs = {
        "one": several[:1],
        "several": several,
        "hostile": [hostile_run(tmp_path / "hostile")],
        "measured": [measured],
        "tried": [own, measured],
    }[which]
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
        assert not one["clipped"]
        assert one["smallest"] >= 11
        assert not one["owned"]
