"""`netspec runs`: the table of runs."""

from __future__ import annotations

import csv
import io


def test_runs_are_listed_with_results_and_differences(netspec, work):
    for seed in (1, 2):
        assert netspec("train", "train.yaml", f"train.seed={seed}").status == 0
    (work / "runs" / "torn").mkdir()
    (work / "runs" / "torn" / "log.jsonl").write_text('{"event": "sta')
    lines = netspec("runs").out.splitlines()
    assert lines[0].split()[:4] == ["run", "state", "train.seed", "last"]
    assert [line.split()[:3] for line in lines[1:3]] == [["blobs", "finished", "1"], ["blobs-2", "finished", "2"]]
    assert lines[-1].startswith("torn damaged: no such file: runs/torn/spec.yaml")
    first, *_ = netspec("runs", "--json", "--sort", "train.seed").json
    assert (first["monitor"], first["step"], first["settings"]) == ("test/loss", 12, {"train.seed": 1})
    assert first["best"] == first["metrics"]["test/loss"]
    rows = list(csv.DictReader(io.StringIO(netspec("runs", "--csv", "--sort", "best").out)))
    assert [row["train.seed"] for row in rows if row["state"] == "finished"] != []
    assert float(rows[0]["test/loss"]) <= float(rows[1]["test/loss"])


def test_a_run_itself_can_be_listed_and_a_folder_without_runs_is_named(netspec, trained):
    (run,) = netspec("runs", "run", "--json").json
    assert (run["name"], run["state"], run["settings"]) == ("run", "finished", {})
    (trained / "empty").mkdir()
    assert netspec("runs", "empty").out == "there are no runs in empty\n"
    assert netspec("runs", "elsewhere").status == 2
    assert netspec("runs", "run", "--csv", "--json").status == 2
