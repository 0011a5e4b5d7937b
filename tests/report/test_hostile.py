"""Names come from the network: they cannot become markup."""

from flwr_mel.report import write_report
from tests.report.helpers import hostile_run, page


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
