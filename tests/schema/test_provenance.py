"""The resolved spec is complete, can be loaded again, and names the origin of each line."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from netspec.schema.language.interpolation import escaped
from netspec.schema.language.provenance import origin, resolved_yaml
from netspec.schema.load import load_net, load_spec, load_train
from netspec.schema.specs.paths import resolve_path
from tests.schema.catalogue import SGD, Csv
from tests.schema.specs import NET, TRAIN, write


def test_each_line_names_its_origin(folder):
    write(folder, train=TRAIN + "vars: {width: 30}\n")
    spec = load_train("train.yaml", ["solver.momentum=0.5"])
    lines = dict(re.split(r" +# (?=[^#]*$)", line) for line in resolved_yaml(spec).splitlines())
    assert lines["  momentum: 0.5"] == "command line"
    assert lines["    width: 30"] == "train.yaml:8"
    assert lines["      filters: 30"] == "net.yaml:8"
    assert lines["      use_bias: true"] == "default"
    assert lines["      kernel_size: [5, 5]"] == "net.yaml:9"
    assert lines["net:"] == "net.yaml:1"
    assert lines["        scale: 0.00390625"] == "train.yaml:4"
    assert lines[f"    path: {folder}/data/test.csv"] == "train.yaml:5"
    assert lines["  seed: 1"] == "default"
    assert lines["        type: GlorotUniform"] == "net.yaml:9"
    assert len(lines) > 40


def test_origin_of_a_field(folder):
    write(folder)
    spec = load_train("train.yaml", ["train.seed=7", "solver.momentum=0.1"])
    assert origin(spec.train, "seed") == "command line"
    assert origin(spec.train, "log_every") == "default"
    assert origin(spec.net.metrics[0], "from") == "net.yaml:14"
    assert origin(SGD(momentum=0.5), "momentum") == "python"
    assert origin(SGD(momentum=0.5), "learning_rate") == "default"


def test_the_resolved_spec_reads_back_as_an_equal_one_from_anywhere(folder):
    write(folder, train=TRAIN + "vars: {width: 30}\n")
    spec = load_train("train.yaml")
    (folder / "runs" / "1").mkdir(parents=True)
    resolved = folder / "runs" / "1" / "resolved.yaml"
    resolved.write_text(resolved_yaml(spec))
    again = load_train(resolved)
    assert spec.data.test is not None
    assert again.data.test is not None
    assert resolve_path(again.data.test, "path") == resolve_path(spec.data.test, "path")
    assert isinstance(again.data.test, Csv)
    assert again.net == spec.net
    assert (again.solver, again.train, again.data.train) == (spec.solver, spec.train, spec.data.train)
    assert resolved_yaml(again).count("default") == 0
    assert load_train(resolved) == again


NAMES = st.text("abcxyz_", min_size=1, max_size=6)
TEXTS = st.text(max_size=20) | st.sampled_from(
    ["no", "5", "1e3", "a: b", "# x", "${x}", "$${", "- a", "~", "null", " ", "😀", "\u2028"]
)
FLOATS = st.floats(0, 1e30, allow_nan=False, exclude_min=True)
LAYERS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("Conv2D"), "filters": st.integers(1, 9), "kernel_size": st.integers(1, 3) | st.just([1, 2])},
        optional={
            "padding": st.sampled_from(["valid", "same"]),
            "kernel_initializer": st.just("glorot_uniform")
            | st.builds(lambda x: {"type": "GlorotUniform", "scale": x}, FLOATS),
            "learning_rate_multiplier": FLOATS | st.dictionaries(TEXTS.map(escaped), FLOATS, min_size=1, max_size=2),
            "trainable": st.booleans(),
        },
    ),
    st.fixed_dictionaries({"type": st.just("Dense"), "units": st.integers(1, 9)}, optional={"activation": st.none()}),
    st.just("Flatten"),
)
NETS = st.fixed_dictionaries(
    {
        "netspec": st.just(1),
        "inputs": st.dictionaries(
            NAMES, st.fixed_dictionaries({"shape": st.lists(st.integers(1, 5), max_size=3)}), min_size=1, max_size=3
        ),
        "layers": st.lists(LAYERS, min_size=1, max_size=4),
    },
    optional={
        "description": TEXTS.map(escaped),
        "vars": st.dictionaries(NAMES.map("v_".__add__), TEXTS.map(escaped) | FLOATS | st.booleans(), max_size=3),
    },
)


@given(NETS)
def test_any_resolved_net_reads_back_as_an_equal_one(tmp_path_factory, net: dict[str, Any]):
    spec = load_net(net)
    text = resolved_yaml(spec)
    path = tmp_path_factory.getbasetemp() / "resolved.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_spec(path) == spec
    assert all("  # " in line for line in text.split("\n")[:-1])


def test_texts_that_need_quotes(folder):
    texts = ["5", "true", "a: b", "#", "${1}", "x\ny", '"', "\x85", "é", "a b", "", "~", "a #b", "trailing "]
    write(folder, net=NET + f"description: {json.dumps(escaped('|'.join(texts)))}\n")
    assert load_net("net.yaml").description == "|".join(texts)
    for text in texts:
        spec = load_net({**load_plain(), "description": escaped(text)})
        (folder / "again.yaml").write_text(resolved_yaml(spec), encoding="utf-8")
        assert load_net("again.yaml").description == text


def load_plain() -> dict[str, Any]:
    return {"netspec": 1, "inputs": {"x": {"shape": []}}, "layers": ["Flatten"]}
