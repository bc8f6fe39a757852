"""Runs and models in notebooks: HTML of their parts, and the progress of a training."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import netspec

SPEC: dict[str, Any] = {
    "netspec": 1,
    "net": {
        "netspec": 1,
        "name": "tiny",
        "inputs": {"x": {"shape": [4]}, "label": {"shape": [], "dtype": "int32"}},
        "layers": [{"name": "hidden", "type": "Dense", "units": 8}, {"name": "logits", "type": "Dense", "units": 3}],
        "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
        "metrics": [{"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": ["logits", "label"]}],
    },
    "data": {name: {"source": "python", "batch_size": 6} for name in ("train", "test")},
    "solver": {"type": "SGD", "learning_rate": 0.1},
    "train": {"max_steps": 4, "seed": 1, "log_every": 1, "test_every": 2},
}


def samples() -> dict[str, np.ndarray]:
    """Return twelve samples of three classes."""
    x = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
    return {"x": x, "label": np.arange(12, dtype=np.int32) % 3}


def train(folder: Path) -> netspec.Run:
    """Train on twelve samples for four steps."""
    data = samples()
    return netspec.train(SPEC, run_dir=folder / "run", samples={"train": data, "test": data}, device="reference")


def elements(html: str, tag: str) -> list[ET.Element]:
    """Return the elements of HTML with a tag; the HTML must be well-formed."""
    return list(ET.fromstring(f"<div>{html.replace('xmlns=', 'data-ns=')}</div>").iter(tag))


def rows(html: str) -> list[list[str]]:
    """Return the texts of the cells of all tables in HTML."""
    return [["".join(cell.itertext()) for cell in row] for row in elements(html, "tr")]


def test_model_shows_its_layers() -> None:
    html = netspec.load(SPEC["net"], device="reference")._repr_html_()
    assert "Model tiny: 67 parameters on reference" in html
    assert rows(html) == [
        ["layer", "type", "output", "parameters"],
        ["hidden", "Dense", "[8]", "40"],
        ["logits", "Dense", "[3]", "27"],
    ]


def test_run_shows_results_and_curves(tmp_path: Path) -> None:
    run = train(tmp_path)
    html = run._repr_html_()
    assert run.test is not None
    assert rows(html) == [
        ["data", "loss", "accuracy"],
        ["test", f"{run.test.loss:.5g}", f"{run.test.metrics['accuracy']:.5g}"],
    ]
    lines = elements(html, "polyline")
    assert [len(line.attrib["points"].split()) for line in lines][:2] == [4, 2]  # the loss of training, then of test
    assert "best at step" in html


def test_run_without_its_log_shows_results(tmp_path: Path) -> None:
    run = train(tmp_path)
    run.log.unlink()
    html = run._repr_html_()
    assert "its log is missing" in html
    assert rows(html)[0] == ["data", "loss", "accuracy"]
    with pytest.raises(netspec.InputError, match="cannot read the log"):
        _ = run.history


class Display:
    """Output of a cell: what it shows now, and how often that changed."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: SimpleNamespace) -> None:
        """Replace the output."""
        self.shown.append(html.data)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Display:
    """Make this process look like a Jupyter kernel to the progress display."""
    output = Display()

    def display(html: SimpleNamespace, *, display_id: bool) -> Display:
        assert display_id
        output.update(html)
        return output

    ipython, notebook = ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython)["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    vars(notebook).update(HTML=lambda data: SimpleNamespace(data=data), display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    return output


def test_training_shows_its_progress_in_a_notebook(tmp_path: Path, kernel: Display) -> None:
    train(tmp_path)
    first, last = kernel.shown[0], kernel.shown[-1]
    assert "12 samples" in first
    assert any('<progress value="4" max="4">' in html for html in kernel.shown)
    assert "done: 4 steps" in last
    assert "<progress" not in last
    assert [row[:2] for row in rows(last)] == [["step", "data"], ["2", "test"], ["4", "test"]]


def test_training_shows_nothing_outside_notebooks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path)
    assert capsys.readouterr().out == ""
