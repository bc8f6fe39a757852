"""Random changes to the files of a net: the files are valid, or every problem has a location inside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from netspec.errors import InputError, Problem
from netspec.tools.checking.check import check as check_spec
from tests.bad_specs.mutations import changed_text, changed_tree

ZOO = Path(__file__).parents[2] / "model_zoo" / "lenet_mnist"
FILES = {name: (ZOO / name).read_text(encoding="utf-8") for name in ("net.yaml", "train.yaml")}
TREES = {name: yaml.safe_load(text) for name, text in FILES.items()}
CHANGES = {"tree": lambda name: changed_tree(TREES[name]), "text": lambda name: changed_text(FILES[name])}

BLOCKS = """\
netspec: 1
vars: {width: 4}
inputs: {image: {shape: [8]}, label: {shape: [], dtype: int32}}
blocks:
  fully:
    params: {units, rate: "${width / 8}"}
    inputs: [x]
    layers: [{name: fc, type: Dense, units: "${units}"}, {type: Dropout, rate: "${rate}", if: "${units > 2}"}]
    outputs: {all: fc, some: fc}
  twice: {layers: [{type: fully, units: 3, repeat: 2}, {type: Add, from: [input, input]}]}
layers:
  - {name: group, repeat: {units: [2, 3], k: 2}, layers: [{type: fully, units: "${units + k}"}]}
  - {type: twice}
  - {name: logits, type: Dense, units: 3, from: group}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label]}]
"""
BLOCKS_TREE = yaml.safe_load(BLOCKS)

_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # line breaks of YAML 1.1 and of the reader


def check(folder: Path, files: dict[str, str]) -> None:
    """Check the training in `files`; its problems must have a location inside them, and a message."""
    for name, text in files.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    lines = {str(folder / name): _BREAK.split(text.removeprefix("\ufeff")) for name, text in files.items()}
    for problem in _problems(folder / list(files)[-1]):
        location = problem.location
        assert location is not None, problem
        file_lines = lines[location.file]
        assert 1 <= location.line <= len(file_lines), problem
        assert 1 <= location.column <= len(file_lines[location.line - 1]) + 1, problem
        assert problem.message
        assert problem.render()


def _problems(file: Path) -> tuple[Problem, ...]:
    try:
        check_spec(file)
    except InputError as error:
        return error.problems
    return ()


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("name", FILES)
@settings(max_examples=120)
@given(data=st.data())
def test_a_typing_mistake_is_reported_at_its_location(name, kind, data, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    check(folder, {**FILES, name: data.draw(CHANGES[kind](name))})


@settings(max_examples=60)
@given(data=st.data())
def test_slips_in_both_files(data, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    check(folder, {name: data.draw(changed_tree(tree)) for name, tree in TREES.items()})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tree", "text"])
@settings(max_examples=120)
@given(data=st.data())
def test_slips_in_a_net_of_blocks(kind, data, tmp_path_factory):
    changed = changed_tree(BLOCKS_TREE) if kind == "tree" else changed_text(BLOCKS)
    check(tmp_path_factory.getbasetemp(), {"blocks.yaml": data.draw(changed)})
