"""Blocks, groups, repetitions and conditions: the expanded layers, and reports of wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netspec.errors import SpecError
from netspec.schema.language import expand
from netspec.schema.language.provenance import origin, resolved_yaml
from netspec.schema.load import load_net, load_train
from netspec.schema.specs.links import resolve_names
from tests.schema.catalogue import Add, Conv2D, Dense
from tests.schema.specs import TRAIN

HEAD = "netspec: 1\ninputs: {image: {shape: [1, 28, 28]}, label: {shape: [], dtype: int32}}\n"
DENSE = "blocks:\n  fully:\n    params: {units, activation: relu}\n    layers:\n"
DENSE += '      - {name: fc, type: Dense, units: "${units}", activation: "${activation}"}\n'
DENSE += "      - {type: Dropout, rate: 0.5}\n"


def links(text: str, *overrides: str) -> list[tuple[str, ...]]:
    """Return name and sources of every layer."""
    Path("net.yaml").write_text(HEAD + text, encoding="utf-8")
    return [(link.name, *link.sources) for link in resolve_names(load_net("net.yaml", overrides)).layers]


def complaint(text: str, *overrides: str) -> str:
    Path("net.yaml").write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_net("net.yaml", overrides)
    return caught.value.render() + "\n"


def test_a_call_is_the_layers_of_its_block(folder):
    calls = links(DENSE + "layers:\n  - {type: fully, name: one, units: 3}\n  - {type: fully, units: 4, from: image}\n")
    assert calls == [
        ("one/fc", "image"),
        ("one/dropout", "one/fc"),
        ("fully/fc", "image"),
        ("fully/dropout", "fully/fc"),
    ]
    net = load_net("net.yaml")
    first, third = net.layers[0], net.layers[2]
    assert isinstance(first, Dense)
    assert isinstance(third, Dense)
    assert (first.units, first.activation, third.units) == (3, "relu", 4)


def test_a_bare_name_calls_a_block_without_required_parameters(folder):
    text = "blocks: {twice: {layers: [{type: Dense, units: 3, repeat: 2}]}}\nlayers: [twice, twice]\n"
    names = [name for name, *_ in links(text)]
    assert names == ["twice/dense", "twice/dense_1", "twice_1/dense", "twice_1/dense_1"]


def test_blocks_in_blocks_see_their_own_parameters_and_the_variables(folder):
    text = """\
vars: {base: 8}
blocks:
  inner: {params: {units: "${base}", half: "${units // 2}"}, layers: [{type: Dense, units: "${half}"}]}
  outer: {params: {base}, layers: [{type: inner}, {type: inner, units: "${base * 2}"}]}
layers: [{type: outer, base: 100}]
"""
    assert links(text) == [
        ("outer/inner/dense", "image"),
        ("outer/inner_1/dense", "outer/inner/dense"),
    ]
    units = [layer.units for layer in load_net("net.yaml").layers if isinstance(layer, Dense)]
    assert units == [4, 100]
    first = load_net("net.yaml", ["vars.base=6"]).layers[0]
    assert isinstance(first, Dense)
    assert first.units == 3


def test_inputs_and_outputs_of_a_block_have_names(folder):
    text = """\
blocks:
  two:
    inputs: [left, right]
    layers:
      - {name: a, type: Flatten}
      - {name: b, type: Flatten, from: right}
      - {name: sum, type: Add, from: [left, b]}
    outputs: {total: sum, left: a}
layers:
  - {name: stem, type: Flatten}
  - {name: join, type: two, from: [stem, image]}
  - {name: after, type: Flatten}
  - {name: side, type: Flatten, from: join.left}
  - {name: deep, type: Flatten, from: join/b}
outputs: [side, join]
losses: [{type: SparseCategoricalCrossentropy, from: [join.total, label], from_logits: true}]
"""
    assert links(text) == [
        ("stem", "image"),
        ("join/a", "stem"),
        ("join/b", "image"),
        ("join/sum", "stem", "join/b"),
        ("after", "join/sum"),
        ("side", "join/a"),
        ("deep", "join/b"),
    ]
    names = resolve_names(load_net("net.yaml"))
    assert names.outputs == ("side", "join/sum")
    assert names.losses[0].sources == ("join/sum", "label")


def test_a_repetition_is_a_chain(folder):
    assert links(
        "layers: [{name: fc, type: Dense, units: 3, repeat: 3, from: image}, {type: Flatten, from: fc}]\n"
    ) == [
        ("fc/0", "image"),
        ("fc/1", "fc/0"),
        ("fc/2", "fc/1"),
        ("flatten", "fc/2"),
    ]
    assert links(
        'layers: [{name: "fc${index + 1}", type: Dense, units: 3, repeat: 2}, {type: Flatten, from: fc1}]\n'
    ) == [
        ("fc1", "image"),
        ("fc2", "fc1"),
        ("flatten", "fc1"),
    ]


def test_variables_of_a_repetition_go_through_their_values(folder):
    text = """\
layers:
  - repeat: {units: [4, 5], k: 2}
    name: stage
    layers:
      - {name: a, type: Dense, units: "${units}", activation: "${'relu' if k else 'tanh'}"}
      - {type: Dense, units: "${10 * index + 1}"}
  - {name: out, type: Add, from: [stage/0/a, stage]}
"""
    assert links(text) == [
        ("stage/0/a", "image"),
        ("stage/0/dense", "stage/0/a"),
        ("stage/1/a", "stage/0/dense"),
        ("stage/1/dense", "stage/1/a"),
        ("out", "stage/0/a", "stage/1/dense"),
    ]
    dense = [layer for layer in load_net("net.yaml").layers if isinstance(layer, Dense)]
    assert [(layer.units, layer.activation) for layer in dense] == [(4, "tanh"), (1, None), (5, "relu"), (11, None)]


def test_computed_numbers_are_names_of_calls_groups_and_layers(folder):
    text = (
        DENSE
        + """\
layers:
  - {name: "${index}", type: fully, units: 3, repeat: 2}
  - {name: "${index + 2}", layers: [{name: "${1 + 1}", type: Dense, units: 3}], repeat: 1}
  - {name: "${index + 3}", type: Dense, units: 3, repeat: 1}
"""
    )
    names = [name for name, *_ in links(text)]
    assert names == ["0/fc", "0/dropout", "1/fc", "1/dropout", "2/2", "3"]


def test_a_layer_without_name_and_type_is_reported(folder):
    with pytest.raises(SpecError) as error:
        links(DENSE + "layers:\n  - {type: [1], units: 3}\n")
    assert error.value.problems[0].location is not None


def test_turns_that_read_the_same_stand_side_by_side(folder):
    text = """\
layers:
  - {name: stem, type: Flatten}
  - repeat: {size: [1, 3]}
    layers: [{name: "k${size}", type: Dense, units: "${size}", from: stem}]
  - {type: Add, from: [k1, k3]}
"""
    assert links(text)[1:] == [("k1", "stem"), ("k3", "stem"), ("add", "k1", "k3")]


def test_a_later_turn_keeps_the_other_things_that_are_read(folder):
    text = "layers: [{name: a, type: Flatten}, {name: s, type: Add, from: [a, image], repeat: 2}]\n"
    assert links(text)[1:] == [("s/0", "a", "image"), ("s/1", "s/0", "image")]


def test_no_turn_and_a_false_condition_leave_nothing(folder):
    text = """\
vars: {deep: false}
layers:
  - {name: a, type: Flatten}
  - {name: b, type: Dense, units: 3, if: "${deep}"}
  - {name: c, type: Dense, units: 3, repeat: 0}
  - {name: d, type: Dense, units: 4, repeat: 3, if: "${index != 1}"}
  - {name: e, type: Flatten, from: "${'b' if deep else 'd'}"}
"""
    assert links(text) == [("a", "image"), ("d/0", "a"), ("d/2", "d/0"), ("e", "d/2")]
    assert [name for name, *_ in links(text, "vars.deep=true")] == ["a", "b", "d/0", "d/2", "e"]


def test_a_block_without_layers_returns_its_input(folder):
    text = "blocks: {maybe: {params: {on}, layers: [{type: Flatten, if: '${on}'}]}}\n"
    text += (
        "layers: [{name: a, type: Flatten}, {name: m, type: maybe, on: false}, {name: b, type: Add, from: [a, m]}]\n"
    )
    assert links(text) == [("a", "image"), ("b", "a", "a")]


def test_default_names_keep_off_given_ones(folder):
    text = "blocks: {one: {layers: [Flatten]}}\n"
    text += "layers: [Flatten, {type: one}, Flatten, {name: flatten_1, type: Flatten}, {layers: [Flatten]}]\n"
    names = [name for name, *_ in links(text)]
    assert names == ["flatten", "one/flatten", "flatten_2", "flatten_1", "flatten_3"]


def test_lists_and_mappings_are_given_as_they_are(folder):
    text = """\
blocks:
  conv:
    params: {size, init: {type: GlorotUniform}}
    layers: [{type: Conv2D, filters: 2, kernel_size: "${size}", kernel_initializer: "${init}"}]
layers: [{type: conv, size: [3, 5]}, {type: conv, size: 3, init: {type: GlorotUniform, scale: 2.0}}]
"""
    links(text)
    first, second = load_net("net.yaml").layers
    assert isinstance(first, Conv2D)
    assert isinstance(second, Conv2D)
    assert (first.kernel_size, second.kernel_size) == ((3, 5), 3)
    assert second.kernel_initializer.model_dump()["scale"] == 2.0


def test_a_call_may_share_and_freeze(folder):
    text = DENSE + "layers:\n  - {type: fully, name: left, units: 3}\n"
    text += "  - {type: fully, name: right, units: 3, from: image, share: left, trainable: false}\n"
    links(text)
    left, _, right, _ = load_net("net.yaml").layers
    assert (right.share, right.trainable, left.share, left.trainable) == ("left/fc", False, None, True)


def test_locations_name_the_definition_and_the_call(folder):
    links(DENSE + "layers:\n  - {type: fully, name: one, units: 3}\n")
    net = load_net("net.yaml")
    location = net.layers[0].where("units")
    assert str(location) == "net.yaml:7:40"
    assert location is not None
    assert [str(call) for call in location.calls] == ["in `one`, a call of the block `fully`, at net.yaml:10:5"]
    assert origin(net.layers[0], "units") == "net.yaml:7 ← net.yaml:10"


def test_the_resolved_spec_has_only_plain_layers_and_is_equal(folder):
    links(DENSE + "layers:\n  - {type: fully, name: one, units: 3, repeat: 2, if: true}\n")
    net = load_net("net.yaml")
    text = resolved_yaml(net)
    assert not any(word in text for word in ("blocks", "repeat", "if:", "include"))
    assert "one/1/fc" in text
    Path("again.yaml").write_text(text, encoding="utf-8")
    assert load_net("again.yaml") == net


def test_overrides_reach_calls_definitions_and_their_layers(folder):
    text = DENSE + "vars: {n: 3}\nlayers:\n  - {type: fully, name: one, units: 3}\n"
    changes = ("layers.one.units=5", "blocks.fully.params.activation=tanh", "layers.one/dropout.rate=${n / 30}")
    links(text, *changes)
    first, second = load_net("net.yaml", changes).layers
    assert isinstance(first, Dense)
    assert (first.units, first.activation) == (5, "tanh")
    assert second.model_dump()["rate"] == 0.1
    Path("train.yaml").write_text(TRAIN, encoding="utf-8")
    spec = load_train("train.yaml", ["net.layers.one/dropout.rate=0.25"])
    assert spec.net.layers[1].model_dump()["rate"] == 0.25


def test_an_override_of_a_layer_that_no_call_creates(folder):
    text = complaint(DENSE + "layers: [{type: fully, name: one, units: 3}]\n", "layers.one/dropuot.rate=0.1")
    assert "no item `one/dropuot` in `layers`" in text
    assert "did you mean `one/dropout`?" in text


def test_texts_of_definitions_are_evaluated_once(folder):
    text = "blocks: {b: {params: {n}, layers: [{name: '${n}', type: Flatten}]}}\nlayers: [{type: b, n: 'a$${x}'}]\n"
    assert "b/a${x}" in complaint(text)  # neither a name nor an expression


def test_mistake_in_a_block_is_reported_once_with_definition_and_call(folder):
    text = DENSE.replace("rate: 0.5", "rate: 1.5")
    assert (
        complaint(text + "layers:\n  - {type: fully, name: one, units: 3, repeat: 3}\n")
        == """\
net.yaml:8:31: error: `rate` is too large
  8 |       - {type: Dropout, rate: 1.5}
    |                               ^
  expected: less than 1
  got: 1.5
  in `one/0`, a call of the block `fully`, at net.yaml:10:5
  in repetition 1 of 3 (index = 0), at net.yaml:10:48
"""
    )


CALL = "layers: [{type: fully, name: one, units: 3}]\n"
LISTED = "blocks: {{a: {{params: {{n}}, layers: [{{type: Dense, units: '{}'}}]}}}}\nlayers: [{{type: a, n: [1]}}]\n"
WRONG: dict[str, tuple[str, str]] = {
    "recursion": (
        "blocks: {a: {layers: [b]}, b: {layers: [{type: a}]}}\nlayers: [a]\n",
        "net.yaml:3:48: error: the block `a` contains itself",
    ),
    "unknown block": (DENSE + "layers: [{type: fuly, units: 3}]\n", "did you mean `fully`?"),
    "unknown parameter": (DENSE + "layers: [{type: fully, unit: 3}]\n", "the block `fully` has no parameter `unit`"),
    "missing parameter": (DENSE + "layers: [{type: fully}]\n", "the block `fully` needs `units`, which is missing"),
    "number of inputs": (DENSE + "layers: [{type: fully, units: 3, from: [image, label]}]\n", "takes 1 input, not 2"),
    "name of a layer": ("blocks: {Dense: {layers: [Flatten]}}\nlayers: [Flatten]\n", "that is the layer Dense"),
    "spelling of a layer": ("blocks: {flatten: {layers: [Add]}}\nlayers: [Flatten]\n", "that is the layer Flatten"),
    "capital": ("blocks: {My: {layers: [Add]}}\nlayers: [Flatten]\n", "a block cannot be called `My`"),
    "name outside": (DENSE.replace("rate: 0.5", "rate: 0.5, from: stem") + "layers: [{name: stem, type: Flatten}, "
                     "{type: fully, units: 3}]\n", "the block `fully` has no layer or input named `stem`"),
    "output": (DENSE + CALL.replace("]", ", {type: Flatten, from: one.fc}]"), "`one/dropout` has no"),
    "number of turns": ("layers: [{type: Flatten, repeat: -1}]\n", "`repeat` must be a number or lists of values"),
    "lengths of turns": ("layers: [{type: Flatten, repeat: {a: [1], b: 2}}]\n", "got: 1 for `a`, 2 for `b`"),
    "variable of turns": ("layers: [{type: Flatten, repeat: {a b: 2}}]\n", "`a b` cannot be the name of a variable"),
    "condition": ("layers: [{type: Flatten, if: 1}]\n", "`if` must be true or false"),
    "if is false": ("layers: [{name: a, type: Add, if: false}, {type: Flatten, from: a}]\n", "`a` is not in the net"),
    "field of a group": ("layers: [{layer: 3, layers: [Flatten]}]\n", "a group of layers has no field `layer`"),
    "group of nothing": ("layers: [{layers: Flatten}]\n", "`layers` must be a list"),
    "two inputs of a group": ("layers: [{from: [image, label], layers: [Flatten]}]\n", "a group of layers takes one"),
    "parameter's name": ("blocks: {a: {params: {from: 1}, layers: [Add]}}\nlayers: [Add]\n", "cannot be called `from`"),
    "inputs twice": ("blocks: {a: {inputs: [x, x], layers: [Add]}}\nlayers: [Add]\n", "two inputs are called `x`"),
    "outputs unknown": ("blocks: {a: {layers: [Add], outputs: sum}}\nlayers: [a]\n", "has no layer or input named"),
    "same names": ('layers: [{repeat: 2, layers: [{name: a, type: Flatten}]}]\n', "two layers are called `a`"),
    "calls of one name": (DENSE + CALL.replace("]", ", {type: fully, name: one, units: 4}]"),
                          "net.yaml:9:66: error: two layers or calls are called `one`"),
    "groups of one name": ("layers: [{name: g, layers: [Flatten]}, {name: g, layers: [ReLU]}]\n", "net.yaml:3:47"),
    "call with the name of an input": (DENSE + CALL.replace("one", "label"), "`label` is the name of an input"),
    "layer with the name of a repetition": (
        "layers: [{name: r, type: Flatten, repeat: 2}, {name: r, type: Flatten}]\n",
        "the first is at net.yaml:3:43",
    ),
    "turns beyond bounds": ("layers: [{type: Flatten, repeat: 1000000000}]\n", "expected: at most 100,000 repetitions"),
    "variable that could be the parameter": (
        DENSE + "layers: [{type: fully, repeat: {units: [1, 2]}}]\n",
        'hint: to pass on the variable `units`: `units: "${units}"`',
    ),
    "list in arithmetic": (LISTED.format("${n + 1}"), "`n` is a list, which cannot be used here"),
    "list in a text": (LISTED.format("x${n}"), "a list cannot be inserted into text"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_each_mistake_is_the_only_error_reported(folder, case):
    text, words = WRONG[case]
    message = complaint(text)
    assert words in message
    assert message.count("error: ") == 1, message


def test_unknown_variable_in_a_definition_causes_no_other_errors(folder):
    message = complaint(DENSE.replace("${units}", "${unit}") + CALL.replace("]", ", {type: Add, from: [one, image]}]"))
    assert message.count("error: ") == 1
    assert "in `one`, a call of the block `fully`, at net.yaml:9:10" in message


def test_a_net_that_grows_without_bounds_is_refused(folder, monkeypatch):
    monkeypatch.setattr(expand, "MAX_LAYERS", 1000)  # reached within milliseconds
    text = "blocks:\n" + "".join(f"  b{i}: {{layers: [b{i + 1}, b{i + 1}, b{i + 1}]}}\n" for i in range(20))
    assert "the net is too large" in complaint(text + "  b20: {layers: [Flatten]}\nlayers: [b0]\n")
    deep = "blocks:\n" + "".join(f"  b{i}: {{layers: [b{i + 1}]}}\n" for i in range(60))
    assert "nested too deeply" in complaint(deep + "  b60: {layers: [Flatten]}\nlayers: [b0]\n")


def test_layers_created_in_python_are_allowed_next_to_calls(folder):
    source: dict[str, Any] = {
        "netspec": 1,
        "inputs": {"image": {"shape": [4]}},
        "blocks": {"twice": {"layers": [{"type": "Dense", "units": 3, "repeat": 2}]}},
        "layers": [Dense(name="first", units=2), "twice", Add.model_validate({"from": ["first", "image"]})],
    }
    layer_links = [(link.name, *link.sources) for link in resolve_names(load_net(source)).layers]
    assert layer_links[0] == ("first", "image")
    assert layer_links[1][1] == "first"
    assert layer_links[-1] == ("add", "first", "image")
    with pytest.raises(ValueError, match="only supported in a spec"):
        Dense(units=2, repeat=3)


def test_expected_shape_of_a_call_applies_to_its_output_layer(folder):
    text = """\
blocks: {b: {params: {n}, outputs: {out: top, low: a}, layers: [{name: a, type: Dense, units: "${n}"},
  {name: top, type: Dense, units: 2}]}}
layers: [{name: one, type: b, n: "${m}", repeat: {m: [3, 4]}}, {name: last, type: Flatten}]
expect: {outputs: {one: [2], one.low: [4], one/0.low: [3], last: [2]}}
"""
    Path("net.yaml").write_text(HEAD + text, encoding="utf-8")
    expect = load_net("net.yaml").expect
    assert expect is not None
    assert expect.outputs == {"one/1/top": (2,), "one/1/a": (4,), "one/0/a": (3,), "last": (2,)}
    assert str(expect.where("outputs", "one/0/a", key=True)).startswith("net.yaml:6:44")
    message = complaint(text.replace("last: [2]", "one.out: [2]"))
    assert "`one.out` is `one/1/top`, which has an expected shape already" in message


def test_freezing_a_call_or_a_group_freezes_its_layers(folder):
    text = DENSE + "layers: [{name: a, type: fully, units: 3, repeat: 2}, {name: g, layers: [{name: d, type: Add}]}, d]"
    Path("net.yaml").write_text(HEAD + text.replace(", d]", ", {name: e, type: Flatten}]"), encoding="utf-8")
    Path("train.yaml").write_text(TRAIN, encoding="utf-8")
    for frozen, layers in (("a", {"a/0/fc", "a/0/dropout", "a/1/fc", "a/1/dropout"}), ("g", {"g/d"}), ("e", {"e"})):
        overrides = [f"init_from={{file: w.h5, freeze: {frozen}}}"]
        net = load_train("train.yaml", overrides).net
        assert {layer.name for layer in net.layers if not layer.trainable} == layers
    with pytest.raises(SpecError) as caught:
        load_train("train.yaml", ["init_from={file: w.h5, freeze: oops}", "net.layers.e.typ=3"])
    assert "`oops` matches no layer" in str(caught.value)
    Path("net.yaml").write_text(HEAD + text.replace("units: 3", "unit: 3"), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_train("train.yaml", ["init_from={file: w.h5, freeze: a}"])
    assert "matches no layer" not in str(caught.value), "the layer may be one that could not be created"
