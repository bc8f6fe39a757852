"""The model zoo: every model checks, its card and modelines are there, the schema files are those of this code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netspec.cli.preflight import preflight
from netspec.data.bundled import zoo_root
from netspec.schema.jsonschema import json_schema

SPECS = sorted(path for path in zoo_root().glob("*/*.yaml"))


@pytest.mark.parametrize("kind", ["net", "train"])
def test_the_schema_that_editors_read_is_that_of_this_code(kind: str) -> None:
    file = zoo_root() / "schema" / f"{kind}.json"
    now = json_schema("net" if kind == "net" else "train")
    assert json.loads(file.read_text()) == json.loads(json.dumps(now)), f"make it anew: netspec schema {kind} > {file}"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_spec_of_the_zoo_is_right_and_names_its_schema(path: Path) -> None:
    assert preflight(path).parameters > 0
    first = path.read_text().splitlines()[0]
    kind = "train" if path.name == "train.yaml" else "net"
    assert first == f"# yaml-language-server: $schema=../schema/{kind}.json"
    assert (path.parent / "../schema" / f"{kind}.json").resolve().is_file()


@pytest.mark.parametrize("folder", sorted({path.parent for path in SPECS}), ids=lambda folder: folder.name)
def test_every_model_has_a_card(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    assert "netspec train" in card
    assert "accuracy" in card or "loss" in card
