"""Results are measured, stored and printed even if others fail."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import alternate, render
from benchmarks.alternate import BenchmarkError, Worker, Workers
from benchmarks.results import Results


def options(**values: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"threads": 2, "passive": False, "json": False, "output": None, **values})


def trained(net: str, ours: float, eager: float, **also: float) -> dict[str, Any]:
    seconds = {"netspec": ours, "eager": eager, **also}
    return {
        "net": net, "batch_size": 8, "seconds": seconds, "flops": 10**9, "share_of_peak": 0.5, "leanest": "eager",
        "memory": dict.fromkeys(seconds, 2e6), "compile_seconds": {"netspec": 0.1}, "memory_ratio": 1.0,
        "ratio": eager / ours, "ratio_of_fastest": eager / ours, "failed": {},
    }  # fmt: skip


def test_results_are_kept_as_they_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "folder" / "training.json"
    results = Results("training", options(output=str(file)), "numpy")
    results.add(trained("mlp", 0.001, 0.004, jax=0.002))
    assert [result["net"] for result in json.loads(file.read_text())["found"]] == ["mlp"]
    results.fail(BenchmarkError("netspec ended with status 1"), net="lenet")
    result = trained("vgg_a", 1.0, 1.0)
    results.add(result | {"failed": {"compile": "compile did not answer for 300 s"}})
    assert results.end() == 1
    again = json.loads(file.read_text())
    assert again["failed"] == [
        {"net": "lenet", "why": "netspec ended with status 1"},
        {"net": "vgg_a", "batch_size": 8, "subject": "compile", "why": "compile did not answer for 300 s"},
    ]
    assert list(file.parent.iterdir()) == [file]
    assert render.text(again) + "\n" == capsys.readouterr().out


def test_table_of_convnets() -> None:
    data = Results("convnets", options(), "numpy").data
    data["found"] = [
        {
            "net": "alexnet", "batch_size": 8,
            "forward": {"netspec": 0.01, "eager": 0.02}, "gradients": {"netspec": 0.03, "eager": 0.07},
            "step": {"netspec": 0.04, "eager": 0.08}, "processor": {"netspec": 0.06, "eager": 0.1},
        }
    ]  # fmt: skip
    data["published"] = {"alexnet": [128, {"Caffe": [121, 203]}]}
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in render.text(data).splitlines()]
    assert ["alexnet (8)", "netspec", "10.0", "20.0", "40.0", "200.0", "2.00", "0.06"] in rows
    assert ["alexnet (8)", "eager", "20.0", "50.0", "80.0", "100.0", "", "0.10"] in rows
    assert ["alexnet (128)", "Caffe", "121", "203", "395"] in rows


def test_tables() -> None:
    data = Results("training", options(), "numpy").data
    data["found"] = [trained("mlp", 0.001, 0.004, jax=0.002), trained("vgg_a", 1.0, 1.0)]
    data["failed"] = [{"net": "lenet", "why": "no memory"}]
    lines = render.text(data).splitlines()
    assert lines[3].split(" | ")[:6] == ["| net (batch)", "netspec ms", "eager ms", "jax ms", "ratio", "by fastest"]
    assert [cell.strip(" |") for cell in lines[5].split(" | ")] == [
        "mlp (8)", "1.00", "4.00", "2.00", "4.00", "4.00", "2", "2", "1.00", "0.10", "1000", "50%"
    ]  # fmt: skip
    assert lines[6].split(" | ")[3].strip() == render.NOTHING  # jax has no VGG
    assert "Geometric means against the best of PyTorch: 2.00 (least 1.00); " in lines[8]
    assert lines[9:] == ["Against jax: 2.00 over 1 net.", "", "- failed: lenet: no memory"]


def test_a_table_replaces_the_text_between_its_marks() -> None:
    document = "a\n<!-- benchmark mnist -->\nold\n<!-- end -->\nb\n<!-- benchmark training -->\n<!-- end -->\n"
    page = render.put_into(render.put_into(document, "mnist", r"new \1"), "training", "newer")
    assert page == document.replace("old", r"new \1").replace("training -->\n", "training -->\nnewer\n")
    with pytest.raises(ValueError, match="no lines `<!-- benchmark inference -->`"):
        render.put_into(document, "inference", "")


def test_the_marks_of_the_document_are_there() -> None:
    document = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    for name in ("training", "training_bfloat16", "inference", "mnist"):
        assert render.put_into(document, name, "table") != document


class FakeSubject:
    """A subject whose behavior the test sets."""

    def __init__(self, name: str, fails_at: int = 99) -> None:
        self.name, self.asked, self.fails_at, self.closed = name, 0, fails_at, False

    def ask(self, subject: str, **details: Any) -> dict[str, Any]:
        assert details["what"] == "forward"
        self.asked += 1
        if self.asked == self.fails_at:
            raise BenchmarkError(f"{self.name} ended with status 9")
        return {"times": [float(self.asked)], "processor": 2.0 * self.asked}

    def close(self) -> None:
        self.closed = True


def test_a_subject_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternate, "PAUSE", 0)
    ours, theirs = FakeSubject("netspec"), FakeSubject("eager", fails_at=2)
    with Workers() as workers:
        workers.by_name |= {"netspec": ours, "eager": theirs}  # type: ignore[dict-item]  # stand-ins, no processes
        times = alternate.alternate(workers, rounds=3, seconds=0, least=1, what="forward")
        assert {name: time.seconds for name, time in times.items()} == {"netspec": [1.0, 2.0, 3.0]}
        assert times["netspec"].processor == [2.0, 4.0, 6.0]
        assert workers.failed == {"eager": "eager ended with status 9"}
        assert theirs.closed
    assert ours.closed


@pytest.mark.parametrize(
    ("script", "message"),
    [("import sys; sys.exit(3)", "slow ended with status 3"), ("import time; time.sleep(60)", "slow did not answer")],
)
def test_a_process_that_ends_or_hangs_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, message: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{script}"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    workers = Workers()
    workers.try_start(1, limit=1.0, subject="slow")
    assert workers.failed["slow"].startswith(message)
    with pytest.raises(BenchmarkError, match=message):
        Worker(1, limit=1.0, subject="slow")
