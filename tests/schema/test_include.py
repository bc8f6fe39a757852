"""Included files: their definitions and origins, and reports of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from netspec.errors import InputError, SpecError
from netspec.schema.language.include import MAX_DEPTH
from netspec.schema.language.provenance import origin
from netspec.schema.load import load_net, load_train
from netspec.schema.specs.links import resolve_names
from tests.schema.catalogue import SGD, Dense
from tests.schema.specs import TRAIN

HEAD = "netspec: 1\ninputs: {image: {shape: [1, 28, 28]}, label: {shape: [], dtype: int32}}\n"


@pytest.fixture
def put(folder):
    """Write files: `put(**{"parts/a": "…"})`; all but `net` get a standard first line."""

    def write(**texts: str) -> None:
        for name, text in texts.items():
            file = folder / f"{name}.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text((HEAD if name == "net" else "netspec: 1\n") + text, encoding="utf-8")

    return write


def complaint(source: str = "net.yaml") -> str:
    with pytest.raises(InputError) as caught:
        (load_train if source == "train.yaml" else load_net)(source)
    return caught.value.render() + "\n"


def test_variables_and_blocks_are_as_if_they_stood_there(put):
    put(
        net="include: parts/blocks.yaml\nvars: {wide: 7}\nlayers: [{type: fully, units: '${wide + deep}'}]\n",
        **{
            "parts/blocks": "include: more.yaml\nvars: {wide: 1}\n"
            "blocks: {fully: {params: {units}, layers: [{type: Dense, units: '${units}'}]}}\n",
            "parts/more": "vars: {deep: 100}\n",
        },
    )
    net = load_net("net.yaml")
    (layer,) = net.layers
    assert isinstance(layer, Dense)
    assert layer.units == 107
    assert origin(layer, "units") == "parts/blocks.yaml:4 ← net.yaml:5"
    (layer,) = load_net("net.yaml", ["vars.deep=1"]).layers
    assert isinstance(layer, Dense)
    assert layer.units == 8
    assert net.vars == {"wide": 7, "deep": 100}


def test_layers_are_put_into_lists(put):
    put(
        net="layers:\n- include: stem.yaml\n- {name: g, repeat: 2, layers: [{include: stem.yaml}]}\n"
        "- {type: Add, from: [b, g]}\n",
        stem="vars: {n: 5}\nlayers: [{include: a.yaml}, {name: b, type: Dense, units: '${n}'}]\n",
        a="layers: [{name: a, type: Flatten}]\n",
    )
    links = resolve_names(load_net("net.yaml")).layers
    assert [(link.name, *link.sources) for link in links] == [
        ("a", "image"), ("b", "a"), ("g/0/a", "b"), ("g/0/b", "g/0/a"), ("g/1/a", "g/0/b"), ("g/1/b", "g/1/a"),
        ("add", "b", "g/1/b"),
    ]  # fmt: skip
    assert str(links[1].fields.where("units")) == "stem.yaml:3:59"


def test_one_file_by_two_ways_is_one(put):
    put(
        net="include: [a.yaml, b.yaml]\nlayers: [{type: fully}]\n",
        a="include: base.yaml\n",
        b="include: base.yaml\n",
        base="vars: {n: 3}\nblocks: {fully: {layers: [{type: Dense, units: '${n}'}]}}\n",
    )
    assert len(load_net("net.yaml").layers) == 1


def test_a_training_includes_variables(put):
    put(
        net="include: vars.yaml\nvars: {n: 1}\nlayers: [{type: Dense, units: '${n}'}]\n",
        vars="vars: {n: 3, rate: 0.5}\n",
    )
    Path("train.yaml").write_text(
        TRAIN.replace("net: net.yaml", "net: net.yaml\ninclude: vars.yaml").replace(
            "learning_rate: {type: ExponentialDecay, initial: 1e-2}", 'learning_rate: "${rate}"'
        ),
        encoding="utf-8",
    )
    spec = load_train("train.yaml")
    assert isinstance(spec.solver, SGD)
    assert spec.solver.learning_rate == 0.5
    (layer,) = spec.net.layers
    assert isinstance(layer, Dense)
    assert layer.units == 3  # variables of a training override those of its net


def test_python_data_includes_files_of_the_current_folder(put):
    put(blocks="blocks: {fully: {layers: [{type: Dense, units: 3}]}}\n")
    net = {"netspec": 1, "inputs": {"image": {"shape": [3]}}, "include": "blocks.yaml", "layers": ["fully"]}
    assert len(load_net(net).layers) == 1


def test_cycles_name_the_chain(put):
    put(net="include: a.yaml\nlayers: [Flatten]\n", a="include: b.yaml\n", b="include: a.yaml\n")
    assert (
        complaint()
        == """\
b.yaml:2:10: error: these files include each other
  2 | include: a.yaml
    |          ^
  got: a.yaml → b.yaml → a.yaml
  hint: remove one of the `include`
"""
    )
    put(net="include: net.yaml\nlayers: [Flatten]\n")
    assert "a file includes itself" in complaint()


def test_bounds(put):
    chain = {f"f{i}": f"include: f{i + 1}.yaml\n" for i in range(MAX_DEPTH + 1)}
    put(net="include: f0.yaml\nlayers: [Flatten]\n", **chain)
    assert "too many files are included" in complaint()


def test_missing_file_is_the_only_error_reported(put):
    put(net="include: block.yaml\nlayers: [{type: fully}]\n", blocks="vars: {}\n")
    message = complaint()
    assert message.startswith("net.yaml:3:10: error: no such file: block.yaml")
    assert message.count("error: ") == 1


def test_errors_in_a_file_and_its_net_are_reported_together(put):
    put(
        net="include: a.yaml\nlayers: [{type: Flatten, nam: x}]\n",
        a="inputs: {}\nvars: {n: }\nblocks: {b: {layers: []}}\n",
    )
    message = complaint()
    assert "a.yaml:2:1: error: this has no field `inputs`" in message or "has no field `inputs`" in message
    assert "a.yaml:3:11: error: " in message
    assert "a.yaml:4:22: error: " in message
    assert "net.yaml:4:26: error: `Flatten` has no field `nam`" in message


def test_names_that_clash(put):
    put(
        net="include: [a.yaml, b.yaml]\nblocks: {one: {layers: [Flatten]}}\nlayers: [Flatten]\n",
        a="vars: {n: 1}\nblocks: {one: {layers: [Add]}}\n",
        b="vars: {n: 2}\n",
    )
    message = complaint()
    assert "net.yaml:4:10: error: two blocks are called `one`" in message
    assert "the other is at a.yaml:3:10" in message
    assert "a.yaml:2:8: error: two variables are called `n`" in message


def test_forbidden_paths(put):
    put(net="layers: [{include: a.yaml, repeat: 2}, {include: 3}]\n", a="layers: [Flatten]\n")
    message = complaint()
    assert "net.yaml:3:28: error: `repeat` cannot be used with `include`" in message
    assert "net.yaml:3:50: error: `include` needs the path of a file" in message
    put(net="include: a.yaml\nlayers: [Flatten]\n")
    assert "a file included at the top level cannot contain `layers`" in complaint()
    put(net="include: {a: 1}\nlayers: [Flatten]\n")
    assert "`include` has an invalid value" in complaint()


def test_a_training_takes_no_layers(put):
    put(net="layers: [Flatten]\n", a="blocks: {one: {layers: [Flatten]}}\n")
    Path("train.yaml").write_text(TRAIN.replace("net: net.yaml", "net: net.yaml\ninclude: a.yaml"), encoding="utf-8")
    with pytest.raises(SpecError, match="a training file has no `blocks`, and includes none"):
        load_train("train.yaml")


FEATURES = """\
name: features
vars: {wide: 3}
inputs: {pixels: {shape: [1, 28, 28]}, label: {shape: [], dtype: int32}}
blocks: {fully: {params: {units}, layers: [{type: Dense, units: '${units}'}]}}
layers:
  - {type: Flatten}
  - {name: hidden, type: fully, units: "${wide}"}
  - {name: logits, type: Dense, units: 2}
outputs: [hidden]
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
"""


def test_a_net_is_a_block(put):
    put(
        net="blocks: {trunk: {net: parts/features.yaml}}\n"
        "layers: [{type: trunk, name: trunk, wide: 5, trainable: false}, {type: Dense, units: 4}]\n",
        **{"parts/features": FEATURES},
    )
    net = load_net("net.yaml")
    links = resolve_names(net)
    assert [layer.name for layer in links.layers] == ["trunk/flatten", "trunk/hidden/dense", "trunk/logits", "dense"]
    assert [layer.sources for layer in links.layers] == [
        ("image",), ("trunk/flatten",), ("trunk/hidden/dense",), ("trunk/hidden/dense",),
    ]  # fmt: skip
    assert [layer.trainable for layer in net.layers] == [False, False, False, True]
    hidden = net.layers[1]
    assert isinstance(hidden, Dense)
    assert hidden.units == 5
    assert origin(net.layers[2], "units").startswith("parts/features.yaml:9 ← net.yaml:4")
    assert not net.losses
    hidden = load_net("net.yaml", ["blocks.trunk.layers.hidden.units=6"]).layers[1]
    assert isinstance(hidden, Dense)
    assert hidden.units == 6


def test_a_training_reads_nets_as_blocks_too(put, folder):
    put(
        net="blocks: {trunk: {net: features.yaml}}\nlayers: [{type: trunk}, {name: logits, type: Dense, units: 10}]\n"
        "losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]\n",
        features=FEATURES,
        train="\n".join(line for line in TRAIN.splitlines() if not line.startswith("netspec")),
    )
    spec = load_train("train.yaml", {"init_from": {"file": "x.h5", "freeze": "trunk"}})
    assert [layer.trainable for layer in spec.net.layers] == [False, False, False, True]


def test_mistakes_with_nets_as_blocks(put):
    layers = "layers: [{type: trunk}]\n"
    put(net=f"blocks: {{trunk: {{net: feature.yaml}}}}\n{layers}", features=FEATURES)
    assert "net.yaml:3:23: error: no such file: feature.yaml" in complaint()
    assert "did you mean `features.yaml`?" in complaint()
    put(net=f"blocks: {{trunk: {{net: features.yaml, layers: [], params: {{}}}}}}\n{layers}", features=FEATURES)
    assert "`layers` cannot be used with `net`" in complaint()
    assert "`params` cannot be used with `net`" in complaint()
    put(net=f"blocks: {{trunk: {{net: train.yaml}}}}\n{layers}", train="net: net.yaml\n")
    assert "train.yaml is not a net file" in complaint()
    put(net=f"blocks: {{trunk: {{net: net.yaml}}}}\n{layers}")
    assert "a file includes itself" in complaint()
    put(net=f"blocks: {{trunk: {{net: }}}}\n{layers}")
    assert "a block needs `layers`" in complaint()
    put(net=f"blocks: {{trunk: {{net: features.yaml}}}}\n{layers}", features=FEATURES.replace("units: 2", "units: -2"))
    assert "features.yaml:9:40" in complaint()
