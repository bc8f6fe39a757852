"""The page about a search: its best trial, its drawing and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netspec
from netspec import InputError
from netspec.tools.report.parallel_coordinates import AXIS_DISTANCE, HEAD, HEIGHT, MARGIN, parallel_coordinates
from netspec.tools.report.search_page import search_page
from netspec.tools.search import SearchResult, Trial
from netspec.training.plotting.drawing import Polyline, Text


def trial(number: int, value: float | None, state: str = "complete", **fields: Any) -> Trial:
    message = None if value is not None else "the loss is <not> finite"
    return Trial(number, state, fields, value, 1.5, Path(f"runs/s/trial-{number:04d}"), message)


TRIALS = (
    trial(0, 0.5, rate=0.1, solver={"type": "SGD"}),
    trial(1, 0.9, rate=0.001, solver={"type": "<b>"}, momentum=0.9),
    trial(2, 0.4, "pruned", rate=0.01, solver={"type": "SGD"}),
    trial(3, None, "failed", rate=1.0, solver={"type": "SGD"}),
)


def test_the_page_names_the_best_trial_and_lists_all() -> None:
    text, policy = search_page(SearchResult(Path("runs/s"), "test/accuracy", "max", TRIALS, {"rate": 0.75}))
    assert "default-src 'none'" in policy
    assert "4 trials (2 complete, 1 pruned, 1 failed), 6.0 s of training" in text
    assert "Trial 1, in runs/s/trial-0001" in text
    assert "<td>75%</td>" in text
    assert "is optimistic" in text, "the test data chose the trial"
    assert "the loss is &lt;not&gt; finite" in text
    assert "<b>" not in text, "values are escaped"


def test_a_search_without_a_result_lists_its_failures() -> None:
    text, _ = search_page(SearchResult(Path("runs/s"), "validation/loss", "min", TRIALS[3:]))
    assert "Best trial" not in text
    assert "trial-0003" not in text
    assert "&lt;not&gt; finite" in text


def test_lines_pass_the_values_on_linear_logarithmic_and_named_axes() -> None:
    rows: list[dict[str, Any]] = [
        {"rate": 0.1, "name": "b", "loss": 0.1},
        {"rate": 0.01, "name": "a", "loss": 0.2},
        {"rate": 0.001, "loss": 0.3},
    ]
    shapes = parallel_coordinates(rows, "loss").shapes
    worst, middle, best = (list(shape.points) for shape in shapes if isinstance(shape, Polyline))
    at = [MARGIN + AXIS_DISTANCE * number for number in range(3)]
    bottom, center, top = HEAD + HEIGHT, HEAD + HEIGHT / 2, HEAD
    assert best == [(at[0], top), (at[1], bottom), (at[2], bottom)]
    assert middle == [pytest.approx(point) for point in [(at[0], center), (at[1], top), (at[2], center)]]
    assert worst == [(at[0], bottom), (at[2], top)], "it has no value on the second axis"
    texts = [shape.text for shape in shapes if isinstance(shape, Text)]
    assert texts.count("logarithmic") == 1
    assert {"rate", "name", "loss", "a", "b", "0.001", "0.1", "0.3"} <= set(texts)


def test_long_choices_with_the_same_end_are_told_apart() -> None:
    rows = [{"solver": f"{{'type': '{name}', 'learning_rate': 0.1}}", "loss": 0.1} for name in ("SGD", "Adam")]
    lines = [shape for shape in parallel_coordinates(rows, "loss").shapes if isinstance(shape, Polyline)]
    assert lines[0].points[0] != lines[1].points[0]


def test_a_damaged_study_is_reported(tmp_path: Path) -> None:
    (tmp_path / "study.log").write_text("{not json\n")
    with pytest.raises(InputError, match="cannot be read"):
        netspec.report(tmp_path, output=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
