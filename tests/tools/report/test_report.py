"""`netspec.report`: what the page contains, and what it may load."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64decode, b64encode
from hashlib import sha256
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import netspec
from netspec.tools.report.facts import run_facts
from netspec.tools.report.page import page as page_of
from netspec.tools.report.page import report
from netspec.tools.report.worst_samples import worst_samples
from tests.tools.report.conftest import EVIL
from tests.tools.serving.conftest import sales_run

SECTIONS = [
    "Results", "Curves", "Parameters over time", "Evaluation", "Worst samples", "Net", "Time and memory", "Messages",
    "Environment", "Reproduce", "Spec",
]  # fmt: skip


class Reader(HTMLParser):
    """Elements of a page with their attributes, and the text of each section and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._section = self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "section":
            self._section = dict(attrs)["aria-label"] or ""
        if tag in ("script", "style"):
            (self.scripts if tag == "script" else self.styles).append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            (self.scripts if self._inside == "script" else self.styles)[-1] += data
        elif self._section:
            self.texts[self._section] = f"{self.texts.get(self._section, '')} {data}"

    @property
    def data(self) -> dict[str, object]:
        content: dict[str, object] = json.loads(self.scripts[0])
        return content


@pytest.fixture(scope="module")
def page(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    path = report(run, output=tmp_path_factory.mktemp("report") / "report.html", device="reference")
    return Reader(path.read_text(encoding="utf-8"))


def test_every_section_has_its_facts(page: Reader, run: Path) -> None:
    assert list(page.texts) == SECTIONS
    assert not [text for text in page.texts.values() if "Not shown" in text]
    assert "confusion matrix" in page.texts["Evaluation"]
    assert "12 samples of the test data" in page.texts["Worst samples"]
    assert "block ×2" in page.texts["Net"]
    assert "training step of 6 samples on reference" in page.texts["Net"]
    assert "forward, ms" in page.texts["Time and memory"]
    assert "numpy version" in page.texts["Environment"]
    assert f"netspec train {run / 'spec.yaml'} --device reference --run-dir {run}-again" in page.texts["Reproduce"]
    assert "# train.yaml:2" in page.texts["Spec"].replace(f"{run.parents[1]}/", "")
    charts = page.data["charts"]
    assert isinstance(charts, dict)
    assert list(charts) == ["step", "epoch", "time"]
    assert [chart["title"] for chart in charts["epoch"]] == ["loss", "accuracy", "learning rate", "gradient norm"]
    assert charts["epoch"][0]["curves"][1]["x"] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("option", "file"), [("weights", "weights.h5"), ("resume", "checkpoints/step-00000006.h5")])
def test_the_command_to_reproduce_names_files_that_are_not_in_the_spec(
    run: Path, tmp_path: Path, option: str, file: str
) -> None:
    spec, source = run.parents[1] / "train.yaml", run / file
    options: dict[str, Any] = {"train.max_steps": 8, option: source}
    again = netspec.train(spec, run_dir=tmp_path / "run", device="reference", **options)
    text, _ = page_of(run_facts(again.run_dir, log_only=True))
    words = f"spec.yaml --{option} {source} --device reference --run-dir"
    assert words in Reader(text).texts["Reproduce"]


def test_no_text_of_a_user_becomes_an_element(page: Reader) -> None:
    assert EVIL in page.texts["Evaluation"]
    assert EVIL in page.texts["Worst samples"]
    assert {tag for tag, _ in page.elements} == {
        "html", "head", "meta", "link", "title", "style", "body", "header", "h1", "p", "span", "nav", "ul", "li", "a",
        "main", "section", "h2", "h3", "div", "table", "thead", "tbody", "tr", "th", "td", "caption", "form",
        "fieldset", "legend", "label", "input", "button", "select", "option", "output", "figure", "figcaption", "ol",
        "img", "dl", "dt", "dd", "svg", "rect", "polyline", "text", "pre", "script",
    }  # fmt: skip
    assert all(not name.startswith("on") and name != "style" for _, attributes in page.elements for name in attributes)
    assert len(page.scripts) == 4, "data, uPlot, charts, report"


def test_the_page_may_load_nothing(page: Reader) -> None:
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert allowed["default-src"] == "'none'"
    assert allowed["img-src"] == "data:"
    assert "connect-src" not in allowed
    assert allowed["script-src"].split() == [f"'sha256-{digest(script)}'" for script in page.scripts[1:]]
    assert allowed["style-src"] == f"'sha256-{digest(page.styles[0])}'"
    addresses = [a[name] for _, a in page.elements for name in ("src", "href") if name in a]
    assert all(re.match("data:|#section-", address or "") for address in addresses)


def test_names_in_a_log_end_no_script(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    evil = "</script><script>alert(3)</script><!--"
    with (tmp_path / "run" / "log.jsonl").open("a") as log:
        log.write(json.dumps({"event": "log", "step": 6, "loss": 1.0, "metrics": {evil: 1.0}, "elapsed": 1}) + "\n")
        log.write(json.dumps({"event": "warning", "message": evil, "step": 6}) + "\n")
        log.write(json.dumps({"event": "start", "name": evil, "versions": [evil], "threads": evil}) + "\n")
    page = Reader(report(tmp_path / "run", output=tmp_path / "report.html", log_only=True).read_text())
    assert len(page.scripts) == 4
    assert evil in str(page.data)
    assert evil in page.texts["Messages"]


def digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def test_worst_samples_are_those_with_the_highest_losses(run: Path, page: Reader) -> None:
    worst = worst_samples(run, "test", count=5, device="reference")
    every = worst_samples(run, "test", count=100, device="reference")
    assert [sample.loss for sample in every.samples] == sorted((sample.loss for sample in every.samples), reverse=True)
    assert worst.samples == every.samples[:5]
    assert (worst.compared, worst.total, len(every.samples)) == (12, 12, 12)
    evaluation = netspec.test(run, device="reference")
    assert sum(sample.loss for sample in every.samples) / 12 == pytest.approx(evaluation.loss, rel=1e-5)
    sample = worst.samples[0]
    assert sample.target in sample.name
    assert sample.prediction.startswith("class ")
    pictures = [a["src"] or "" for tag, a in page.elements if tag == "img"]
    with Image.open(BytesIO(b64decode(pictures[0].partition(",")[2]))) as shown, Image.open(sample.name) as original:
        np.testing.assert_array_equal(shown.convert("RGB"), original.convert("RGB"))
    few = worst_samples(run, "test", count=100, most=7, device="reference")
    assert (few.compared, few.total) == (7, 12)


def test_rows_and_texts_are_shown_as_such(table_run: Path, text_run: Path) -> None:
    (row, *_) = worst_samples(table_run, "train", device="reference").samples
    assert row.picture is None
    assert row.fields.keys() >= {"size", "color", "fruit"}
    assert row.target == row.fields["fruit"]
    (text, *_) = worst_samples(text_run, "train", device="reference").samples
    assert {"nice", "great", "awful", "poor"} & set(str(text.fields).replace("'", " ").split())


def test_histograms_of_stages_follow_each_other(run: Path, tmp_path: Path) -> None:
    stages = [{"max_steps": 4}, {"max_steps": 6, "learning_rate": 1e-5}]
    netspec.train(run.parents[1] / "train.yaml", run_dir=tmp_path / "run", device="reference", stages=stages)
    facts = run_facts(tmp_path / "run", log_only=True)
    assert list(facts.histograms) == [2, 4, 6, 8, 10]
    assert facts.charts["step"][0].curves[1].xs == [2, 4, 6, 8, 10]


def test_arrays_are_not_shown_as_text(tmp_path: Path) -> None:
    forecast = worst_samples(sales_run(tmp_path, "{sales: numeric}"), "train", count=1, device="reference").samples[0]
    assert re.fullmatch(r"[\d.]+, [\d.]+", forecast.target)
    assert forecast.fields.keys() == {"sales"}
    assert forecast.picture is None


def test_without_data_the_page_has_the_reasons(run: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    (moved / "histograms.jsonl").unlink()
    spec = (moved / "spec.yaml").read_text()
    (moved / "spec.yaml").write_text(re.sub(r"path: \S+images", "path: gone", spec))
    page = Reader(report(moved, output=tmp_path / "report.html", device="reference").read_text())
    for section in ("Evaluation", "Worst samples"):
        assert "Not shown: " in page.texts[section]
        assert "gone" in page.texts[section]
    assert "callbacks: [{type: Histograms}]" in page.texts["Parameters over time"]
    assert "forward, ms" in page.texts["Time and memory"]


def test_a_log_alone_is_enough(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("*.h5", "checkpoints"))
    facts = run_facts(tmp_path / "bare", log_only=True)
    assert (facts.evaluation, facts.worst, facts.timing) == (None, None, None)
    assert facts.costs is not None
    assert facts.missing.keys() == {"evaluation", "worst", "timing"}
    (tmp_path / "bare" / "spec.yaml").unlink()
    page = Reader(report(tmp_path / "bare", output=tmp_path / "report.html").read_text())
    assert "Not shown" in page.texts["Net"]
    assert "loss" in page.texts["Results"]


def test_a_split_that_does_not_exist_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(netspec.InputError, match="there is no such split"):
        report(run, output=tmp_path / "report.html", split="tset")
    with pytest.raises(netspec.InputError, match="is not a run directory"):
        report(tmp_path, output=tmp_path / "report.html")
