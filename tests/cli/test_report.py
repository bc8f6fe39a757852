"""`netspec report` as a command; what the page contains is in tests/tools/report."""

from __future__ import annotations


def test_the_page_is_written_next_to_the_run(netspec, trained):
    before = {path.relative_to(trained) for path in (trained / "run").rglob("*")}
    result = netspec("report", "run", "--log-only")
    assert (result.status, result.out, result.err) == (0, "report.html\n", "")
    text = (trained / "report.html").read_text()
    assert "Not shown: `" in text
    assert "report run` computes it" in text
    assert {path.relative_to(trained) for path in (trained / "run").rglob("*")} == before


def test_mistakes_are_reported_before_anything_is_computed(netspec, trained):
    wrong = netspec("report", "run", "--output", "report.pdf")
    assert (wrong.status, "the file is written as HTML" in wrong.err) == (2, True)
    wrong = netspec("report", "run", "--split", "tset")
    assert (wrong.status, "did you mean `test`?" in wrong.err) == (2, True)
