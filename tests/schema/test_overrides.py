"""`key=value` on the command line and mappings from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.errors import SpecError
from netspec.schema.language.overrides import apply_overrides, overrides_from_mapping, parse_overrides
from netspec.schema.load import load_train
from netspec.schema.specs.annotations import optional_blocks
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.reader import parse_yaml
from netspec.schema.yaml.scalars import MAX_INT
from netspec.schema.yaml.tree import Map, locate
from tests.schema.catalogue import SGD, Conv2D, Dense
from tests.schema.specs import NET, write

BLOCKS = ("vars", "parallel")
DOCUMENT = """\
vars: {width: 1}
solver: {type: SGD, learning_rate: {type: A, initial: 1}}
train: {max_steps: 5, "log.every": 1}
layers:
  - {name: conv1, filters: 1}
  - {name: fc.1, units: 2}
  - {type: Flatten}
  - {name: "2", units: 3}
"""


def changed(*arguments: str) -> Map:
    tree = parse_yaml(DOCUMENT, "t")
    assert apply_overrides(tree, arguments) == []
    return tree


CHANGES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("vars.width=64", ("vars", "width"), 64),
    ("solver.learning_rate=1e-4", ("solver", "learning_rate"), 1e-4),
    ("solver.learning_rate={type: B, rate: [1, 2]}", ("solver", "learning_rate"), {"type": "B", "rate": [1, 2]}),
    ("solver.learning_rate.initial=no", ("solver", "learning_rate", "initial"), "no"),
    ("solver.nesterov=true", ("solver", "nesterov"), True),
    ("layers.conv1.filters=3", ("layers", 0, "filters"), 3),
    ("layers.0.filters=3", ("layers", 0, "filters"), 3),
    ("layers.fc.1.units=3", ("layers", 1, "units"), 3),
    ("layers.2.units=9", ("layers", 3, "units"), 9),  # a name takes precedence over a position
    ("layers.conv1={name: x}", ("layers", 0), {"name": "x"}),
    ("train.log.every=7", ("train", "log.every"), 7),
    ("train.note=Note: this", ("train", "note"), "Note: this"),
    ("train.note=- a", ("train", "note"), "- a"),
    ("train.note=", ("train", "note"), None),
    ("train.note='5'", ("train", "note"), "5"),
    ("train.note=a=b", ("train", "note"), "a=b"),
    ("train.note=${width * 2}", ("train", "note"), "${width * 2}"),
    ("extra=1", ("extra",), 1),
]


@pytest.mark.parametrize(("argument", "path", "value"), CHANGES, ids=[case[0] for case in CHANGES])
def test_an_override_has_a_path_a_value_and_a_location(argument, path, value):
    tree = changed(argument)
    location, walked = locate(tree, path)
    item: Any = tree
    for step in path:
        item = item[step]
    assert walked == path
    assert item == value
    assert location is not None
    assert (location.file, location.line, location.text) == ("<command line>", 1, argument)
    assert argument[: location.column - 1].endswith("=")


def test_removal():
    assert "max_steps" not in changed("~train.max_steps")["train"]
    assert [layer.get("name") for layer in changed("~layers.fc.1")["layers"]] == ["conv1", None, "2"]


def test_later_ones_win_and_are_numbered():
    tree = changed("vars.width=2", "vars.width=3")
    assert tree["vars"]["width"] == 3
    assert str(tree["vars"].value_at["width"]) == "<command line>:2:12"


def test_locations_inside_a_value():
    tree = changed("solver={type: SGD, rate: 3}")
    assert str(tree["solver"].value_at["rate"]) == "<command line>:1:26"


MISTAKES = [
    ("foo", "invalid override `foo`", None),
    ("=3", "invalid override `=3`", None),
    ("a..b=3", "invalid override `a..b=3`", None),
    ("~train.max_steps=3", "invalid override `~train.max_steps=3`", "write `~train.max_steps`, without a value"),
    (
        "train.max_steps.x=3",
        "`train.max_steps` has no keys: it is the value 5",
        "replace the value: `train.max_steps={x: …}`",
    ),
    ("trian.max_steps=3", "no key `trian`", "did you mean `train`?"),
    ("other.thing=3", "no key `other`", "a new mapping is set as a whole: `other={…}`"),
    ("layers.conv2.filters=3", "no item `conv2` in `layers`", "did you mean `conv1`?"),
    ("layers.9.filters=3", "no item `9` in `layers`", None),
    ("~train.max_step", "no key `max_step` in `train`", "did you mean `max_steps`?"),
    ("solver={type: SGD", "this mapping is not closed", "is a `,` or `}` missing?"),
    ("solver={a: 1, a: 2}", "the key `a` is given twice", None),
]


@pytest.mark.parametrize(("argument", "message", "hint"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_mistakes(argument, message, hint):
    tree = parse_yaml(DOCUMENT, "t")
    try:
        problems = apply_overrides(tree, [argument])
    except SpecError as error:
        problems = list(error.problems)
    (problem,) = problems
    assert problem.message == message
    assert problem.location is not None
    assert (problem.location.file, problem.location.text) == ("<command line>", argument)
    if hint:
        assert problem.hint == hint


def test_all_mistakes_of_a_command_line():
    with pytest.raises(SpecError) as caught:
        parse_overrides(["a", "b=[", "c=1"])
    assert [str(problem.location) for problem in caught.value.problems] == ["<command line>:1:1", "<command line>:2:4"]


def test_python_mappings_merge_unless_they_name_a_type():
    tree = parse_yaml(DOCUMENT, "t")
    changes = overrides_from_mapping(
        {"solver": {"momentum": 0.9, "learning_rate": {"type": "C"}}, "train.max_steps": 7, "layers.conv1.filters": 4}
    )
    assert apply_overrides(tree, changes) == []
    assert tree["solver"] == {"type": "SGD", "momentum": 0.9, "learning_rate": {"type": "C"}}
    assert (tree["train"]["max_steps"], tree["layers"][0]["filters"]) == (7, 4)
    assert tree["train"].value_at["max_steps"].text == "train.max_steps=7"
    assert str(tree["train"].value_at["max_steps"]) == "<python>:3:17"


def test_loading_with_overrides(folder):
    write(folder, wide=NET.replace("width: 20", "width: 40"))
    spec = load_train("train.yaml", ["net.layers.conv1.filters=${width + 1}", "vars.width=8", "solver.momentum=0.5"])
    first, last = spec.net.layers[0], spec.net.layers[3]
    assert isinstance(first, Conv2D)
    assert isinstance(last, Dense)
    assert (first.filters, last.units) == (9, 200)
    assert isinstance(spec.solver, SGD)
    assert spec.solver.momentum == 0.5
    spec = load_train("train.yaml", {"net": "wide.yaml", "solver": {"momentum": 0.25}})
    assert spec.net.vars == {"width": 40}
    assert isinstance(spec.solver, SGD)
    assert spec.solver.momentum == 0.25


def test_an_undeclared_variable_would_change_nothing(folder):
    write(folder)
    with pytest.raises(SpecError) as caught:
        load_train("train.yaml", ["vars.widht=64"])
    (problem,) = caught.value.problems
    assert (problem.message, problem.hint) == ("no variable `widht` is declared", "did you mean `width`?")


def test_a_variable_of_the_net_that_the_training_file_replaces_is_overridden_there(folder):
    write(folder)
    text = Path("train.yaml").read_text().replace("net: net.yaml\n", "net: net.yaml\nvars: {width: 8}\n", 1)
    Path("train.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_train("train.yaml", ["net.vars.width=64"])
    (problem,) = caught.value.problems
    assert problem.message == "`net.vars.width` has no effect: `vars.width` of the training file replaces it"
    assert load_train("train.yaml", ["vars.width=64"]).net.vars == {"width": 64}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-MAX_INT, MAX_INT) | st.text(max_size=5),
        lambda below: st.lists(below, max_size=3),
    )
)
def test_json_values_arrive_as_they_are(value):
    argument = f"train.x={json.dumps(value, ensure_ascii=True)}"
    assert changed(argument)["train"]["x"] == value


@given(st.text("~ab.=0{}[]:$ lyers", max_size=20))
def test_any_argument_is_taken_or_refused(argument):
    tree = parse_yaml(DOCUMENT.replace("layers", "l"), "t")
    problems: list[Any] = []
    try:
        problems += apply_overrides(tree, [argument])
    except SpecError as error:
        problems += error.problems
    assert all(problem.location.file == "<command line>" for problem in problems)


def test_a_block_that_the_document_leaves_out_is_made():
    tree = parse_yaml(DOCUMENT, "t")
    assert apply_overrides(tree, ["parallel.strategy=all_reduce", "parallel.heartbeat=3"], BLOCKS) == []
    assert tree["parallel"] == {"strategy": "all_reduce", "heartbeat": 3}
    null = parse_yaml("parallel: null", "t")  # as written in a resolved spec
    assert apply_overrides(null, ["parallel.strategy=all_reduce"], BLOCKS) == []
    assert null["parallel"] == {"strategy": "all_reduce"}
    changes = overrides_from_mapping({"parallel": {"strategy": "model", "layers": {"fc1": "columns"}}})
    assert apply_overrides(null, changes, BLOCKS) == []
    assert null["parallel"] == {"strategy": "model", "layers": {"fc1": "columns"}}
    (problem,) = apply_overrides(parse_yaml(DOCUMENT, "t"), ["paralel.heartbeat=3"], BLOCKS)
    assert (problem.expected, problem.hint) == (
        "one of layers, parallel, solver, train, vars", "did you mean `parallel`?"
    )  # fmt: skip
    (problem,) = apply_overrides(parse_yaml(DOCUMENT, "t"), ["~parallel.heartbeat"], BLOCKS)
    assert problem.message == "no key `parallel`"
    assert problem.expected == "one of layers, solver, train, vars"


def test_which_blocks_may_be_left_out():
    assert optional_blocks(TrainSpec) == ["vars", "init_from", "expect", "parallel", "compile", "search"]
    assert optional_blocks(NetSpec) == ["vars", "blocks", "expect"]
