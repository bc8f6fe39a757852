"""`netspec runs`: the table of runs."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest

from netspec.cli.fitted_table import FittedColumn


def test_runs_are_listed_with_results_and_differences(netspec, work):
    for seed in (1, 2):
        netspec.ok("train", "train.yaml", f"train.seed={seed}")
    (work / "runs" / "torn").mkdir()
    (work / "runs" / "torn" / "log.jsonl").write_text('{"event": "sta')
    lines = netspec("runs").out.splitlines()
    assert lines[0].split()[:9] == ["run", "state", "best", "test/loss", "at", "step", "last", "time", "train.seed"]
    assert [line.split()[:2] for line in lines[1:3]] == [["blobs", "finished"], ["blobs-2", "finished"]]
    assert [line.split()[7] for line in lines[1:3]] == ["1", "2"]
    assert lines[-1].startswith("torn damaged: no such file: runs/torn/spec.yaml")
    first, *_ = netspec("runs", "--json", "--sort", "train.seed").json
    assert (first["monitor"], first["step"], first["settings"]) == ("test/loss", 12, {"train.seed": 1})
    assert first["best"] == first["metrics"]["test/loss"]
    rows = list(csv.DictReader(io.StringIO(netspec("runs", "--csv", "--sort", "best").out)))
    assert [row["train.seed"] for row in rows if row["state"] == "finished"] != []
    assert float(rows[0]["test/loss"]) <= float(rows[1]["test/loss"])


def test_long_settings_come_last(netspec, work):
    for number in (1, 2):
        limit = ["data.train.limit=30"] if number == 2 else []
        name = "a-description-of-some-length" + "-" * number
        (work / f"{name}.npz").write_bytes((work / "blobs.npz").read_bytes())
        netspec.ok("train", "train.yaml", f"data.train.path={name}.npz", *limit)
    header = netspec("runs").out.splitlines()[0].split()
    assert header.index("data.train.limit") < header.index("steps") < header.index("started")
    assert header[-1] == "data.train.path"


def test_the_duration_is_that_of_the_last_line_of_the_training(netspec, work):
    printed = netspec("train", "train.yaml", "--run-dir", "run").out
    (done,) = [line for line in printed.splitlines() if line.startswith("done: ")]
    (run,) = netspec("runs", "run", "--json").json
    assert f" in {run['seconds']:.1f} s" in done
    log = [json.loads(line) for line in (work / "run" / "log.jsonl").read_text().splitlines()]
    assert run["seconds"] == pytest.approx(log[-1]["seconds"], abs=0.05)
    netspec.ok("train", "run/spec.yaml", "--resume", "train.max_steps=16")
    again = [json.loads(line) for line in (work / "run" / "log.jsonl").read_text().splitlines()]
    assert again[-1]["seconds"] > log[-1]["seconds"]
    assert again[-1]["seconds"] == pytest.approx(again[-1]["elapsed"], abs=0.05)


def test_a_table_fits_the_terminal_and_names_what_it_leaves_out(netspec, work, monkeypatch):
    for seed in (1, 2):
        netspec.ok("train", "train.yaml", f"train.seed={seed}", "train.max_steps=2")
    piped = netspec("runs").out
    assert "not shown" not in piped
    monkeypatch.setenv("COLUMNS", "66")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = re.sub(r"\x1b\[\d*m", "", netspec("runs").out).splitlines()
    assert max(map(len, lines[:-1])) <= 66
    header = " ".join(
        " ".join(line.split()) for line in lines[: next(n for n, line in enumerate(lines) if "─" in line)]
    )
    assert {"run", "state", "best", "seed", "last"} <= set(header.split())
    assert sum(" finished " in line for line in lines) == 2
    assert lines[-1].startswith("columns not shown: ")
    assert "train/accuracy" in lines[-1]
    assert lines[-1].endswith("; use --csv or --json for all")


def test_a_folded_header_has_all_characters_of_the_name():
    name = "net.layers._res2a__bn.units"
    assert FittedColumn(name, ["1"]).header.replace("\n", "") == name


def test_each_net_has_a_table_with_its_own_differences(netspec, work):
    for net, rate in (("blobs", 0.1), ("blobs", 0.2), ("others", 0.3)):
        words = f"solver.learning_rate={rate} net.name={net} train.max_steps=2 --run-dir runs/{net}-{rate}".split()
        netspec.ok("train", "train.yaml", *words)
    blobs, others = netspec("runs").out.split("\n\n")
    assert blobs.splitlines()[0] == "net blobs:"
    assert "solver.learning_rate.initial" in blobs
    assert others.splitlines()[0] == "net others:"
    assert "solver.learning_rate.initial" not in others
    assert {run["net"]: run["settings"]["solver.learning_rate.initial"] for run in netspec("runs", "--json").json} == {
        "blobs": 0.2, "others": 0.3,
    }  # fmt: skip


def test_a_run_itself_can_be_listed_and_a_folder_without_runs_is_named(netspec, trained):
    (run,) = netspec("runs", "run", "--json").json
    assert (run["name"], run["state"], run["settings"]) == ("run", "finished", {})
    (trained / "empty").mkdir()
    assert netspec("runs", "empty").out == "there are no runs in empty\n"
    assert netspec("runs", "elsewhere").status == 2
    assert netspec("runs", "run", "--csv", "--json").status == 2


def test_commands_note_a_newer_finished_run_of_the_same_name(netspec, work):
    for _ in range(3):
        netspec.ok("train", "train.yaml")
    first, second, third = sorted(Path("runs").iterdir())
    assert [folder.name for folder in (second, third)] == [f"{first.name}-2", f"{first.name}-3"]

    def notes(run: Path) -> list[str]:
        err = netspec("test", str(run)).err
        return [line for line in err.splitlines() if "newer run" in line]

    assert notes(first) == notes(second) == [f"note: {third} is a newer run of the same name"]
    assert notes(third) == []
    assert notes(first.absolute()) == [f"note: {third.absolute()} is a newer run of the same name"]
    log = third / "log.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if '"done"' not in line))
    assert notes(first) == [f"note: {second} is a newer run of the same name"]
    first.rename("runs/other-1")
    assert notes(second) == [], "without the first run, the numbers need not count runs"
