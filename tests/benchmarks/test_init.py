"""The comparison of `netspec init` with scikit-learn: its parts that need no dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_init, render
from benchmarks.bench_init import Case, divided, read_csv, verdict


def test_a_dataset_without_test_data_is_divided_once() -> None:
    train, test = divided(range(103))
    assert (len(train), len(test)) == (82, 21)
    assert sorted([*train, *test]) == list(range(103))
    assert divided(range(103)) == (train, test)


def test_row_numbers_and_blank_lines_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text('"rownames","a","b"\n"1",2, x\n\n"2",3,y\n')
    assert read_csv(file) == (["a", "b"], [["2", "x"], ["3", "y"]])


@pytest.mark.parametrize(
    ("case", "values", "goal", "reached"),
    [
        (Case("f", "classes"), {"netspec": 0.86, "boosting": 0.87, "linear": 0.80}, 0.85, True),
        (Case("f", "classes"), {"netspec": 0.84, "boosting": 0.87, "linear": 0.80}, 0.85, False),
        (Case("f", "images", goal=0.9), {"netspec": 0.91, "perceptron": 0.95}, 0.9, True),
        (Case("f", "numbers"), {"netspec": 104.0, "boosting": 100.0, "linear": 130.0}, 105.0, True),
        (Case("f", "series"), {"netspec": 106.0, "ridge": 100.0}, 105.0, False),
    ],
)
def test_goal(case: Case, values: dict[str, float], goal: float, reached: bool) -> None:
    least, is_reached = verdict(case, values)
    assert least == pytest.approx(goal)
    assert is_reached is reached


def test_windows_of_test_data_forecast_the_last_rows_only(tmp_path: Path) -> None:
    spec = tmp_path / "train.yaml"
    spec.write_text("data: {train: {windows: {length: 3, horizon: 2}, split: {test: 0.2}}}")
    (past, future), (test, truth) = bench_init._windows(spec, np.arange(20))
    assert (past[0].tolist(), future[0].tolist()) == ([0, 1, 2], [3, 4])
    assert future.max() == 15
    assert (test[0].tolist(), truth.tolist()) == ([13, 14, 15], [[16, 17], [17, 18], [18, 19]])


def test_table_marks_missed_goals() -> None:
    result = {"processor": {"netspec": 11.2, "boosting": 0.4}, "reached": False}
    found = [
        {**result, "case": "adult", "measure": "accuracy", "values": {"netspec": 0.8586, "boosting": 0.871},
         "goal": 0.85, "reached": True},
        {**result, "case": "ames", "measure": "error", "values": {"netspec": 18120.0, "boosting": 15468.0},
         "goal": 16241.0},
    ]  # fmt: skip
    lines = render._init({"found": found}).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]] == [
        ["adult", "accuracy", "85.9 %", "boosting 87.1 %", "≥ 85.0 %", "11 / 0"],
        ["ames", "error", "18,120", "boosting 15,468", "**≤ 16,241**", "11 / 0"],
    ]
