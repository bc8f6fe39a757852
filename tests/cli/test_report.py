"""`netspec report` as a command; what the page contains is in tests/tools/report."""

from __future__ import annotations


def test_the_page_is_written_to_the_folder_of_the_run(netspec, trained):
    before = {path.relative_to(trained) for path in (trained / "run").rglob("*")}
    result = netspec("report", "run", "--log-only")
    assert (result.status, result.out, result.err) == (0, "run/report.html\n", "")
    page = trained / "run" / "report.html"
    text = page.read_text()
    assert "Not shown: `" in text
    assert "report run` computes it" in text
    assert {path.relative_to(trained) for path in (trained / "run").rglob("*")} == {*before, page.relative_to(trained)}
    assert netspec("report", "run", "--log-only", "--output", "other.html").out == "other.html\n"
    missing = netspec("report", "runs/none")
    assert (missing.status, "runs/none" in missing.err, "folder of" in missing.err) == (2, True, False)


def test_mistakes_are_reported_before_anything_is_computed(netspec, trained):
    wrong = netspec("report", "run", "--output", "report.pdf")
    assert (wrong.status, "the file is written as HTML" in wrong.err) == (2, True)
    wrong = netspec("report", "run", "--split", "tset")
    assert (wrong.status, "did you mean `test`?" in wrong.err) == (2, True)
