"""The pages of the reference: every class is on a page, links resolve, outdated pages are removed."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest

from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.kinds import REGISTRIES
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools import reference
from netspec.tools.reference import write_pages
from tests.tools.reference.generated import generated


@pytest.mark.slow
def test_every_class_has_a_heading_on_one_page():
    headings = [line for text in generated().values() for line in text.splitlines() if line.startswith("## ")]
    for registry in REGISTRIES.values():
        for cls in registry:
            if cls.__module__.startswith("netspec."):
                assert f"## {cls.model_fields[registry.tag].default}" in headings


def test_descriptions_of_fields_are_sentences():
    """Each begins with a capital letter, a digit or code, and ends with a full stop."""
    assert generated()  # imports the classes
    classes: list[type] = [
        cls for registry in REGISTRIES.values() for cls in registry if cls.__module__.startswith("netspec.")
    ]
    descriptions = {
        " ".join(text.split()): f"{cls.__name__}.{name}"
        for cls in (NetSpec, TrainSpec, *classes)
        for name, text in field_docs(cls).items()
    }
    assert len(descriptions) > 500
    assert {
        text: location for text, location in descriptions.items() if not re.fullmatch(r"[A-Z\d`].*\.\)?", text)
    } == {}


def test_links_lead_to_pages_and_headings():
    for path, text in generated().items():
        for address in re.findall(r"\]\(([^)]*)\)", text):
            page, _, heading = address.partition("#")
            target = PurePosixPath(path).parent / page
            name = "/".join(part for part in _resolved(target))
            if name.startswith("guide/"):
                continue
            assert name in generated(), f"{path}: {address}"
            anchors = {line[3:].lower() for line in generated()[name].splitlines() if line.startswith("## ")}
            assert not heading or heading in anchors, f"{path}: {address}"


def _resolved(path: PurePosixPath) -> list[str]:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != "..":
            parts.append(part)
    return parts


@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("README.md", "- [`train.yaml`](train.md): A training file: the net, the data, and how to train."),
        ("layers/core.md", "| `units: 4` | (3, 5) | (3, 4) | `kernel` (5, 4), `bias` (4) |"),
        ("layers/core.md", "  - {name: example, type: Dense, units: 4}"),
        ("layers/shape.md", "| `sections: [1, 4], axis: -1` | (2, 2, 5) | `0` (2, 2, 1), `1` (2, 2, 4) |"),
        ("layers/core.md", "ONNX operators: `Identity`."),
        ("regularizers.md", "  - {type: Dense, units: 4, kernel_regularizer: L2}"),
        ("solvers.md", "solver: {type: SGD, learning_rate: 0.1, weight_decay: 0.01}"),
        ("train.md", "## `train`"),
    ],
)  # fmt: skip
def test_pages_contain(page: str, line: str):
    assert line in generated()[page].splitlines()


@pytest.mark.slow
def test_outdated_pages_are_removed_and_other_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reference, "pages", generated)
    old, own_page = tmp_path / "layers" / "gone.md", tmp_path / "own.md"
    old.parent.mkdir()
    old.write_text(generated()["solvers.md"], encoding="utf-8")
    own_page.write_text("# Mine\n", encoding="utf-8")
    count = write_pages(tmp_path)
    assert not old.exists()
    assert own_page.exists()
    assert len(list(tmp_path.rglob("*.md"))) == count + 1
    assert (tmp_path / "solvers.md").read_text(encoding="utf-8") == generated()["solvers.md"]
