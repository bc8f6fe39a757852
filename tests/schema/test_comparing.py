"""Comparison of two specs: differences in meaning, and different ways to write the same."""

from __future__ import annotations

from typing import Any

from netspec.schema.load import load_net
from netspec.schema.specs.comparison import Change, LayerPair, compare_specs
from netspec.schema.specs.net import NetSpec


def net(*layers: dict[str, Any], **fields: Any) -> NetSpec:
    return load_net({"netspec": 1, "inputs": {"x": {"shape": [4]}}, "layers": list(layers), **fields})


DENSE = {"name": "a", "type": "Dense", "units": 3}
HEAD = {"name": "b", "type": "Dense", "units": 2}


def test_defaults_written_out_are_no_difference() -> None:
    written = {**DENSE, "trainable": True, "activation": None}
    assert not compare_specs(net(DENSE), net(written))


def test_fields_layers_and_settings() -> None:
    more = {"name": "c", "type": "Dropout", "rate": 0.5}
    comparison = compare_specs(net(DENSE, HEAD), net({**DENSE, "units": 5, "activation": "relu"}, more, name="other"))
    assert comparison.names == {"a": "a"}
    changed, gone, new = comparison.layers
    assert changed.before == changed.after == "a"
    assert set(changed.changes) >= {Change("units", "3", "5")}
    assert [change.path for change in changed.changes] == ["units", "activation"]
    assert (gone, new) == (LayerPair("b", None, "Dense"), LayerPair(None, "c", "Dropout"))
    assert comparison.others == ()  # `name` does not change the net


def test_a_layer_that_is_only_called_otherwise_is_the_same() -> None:
    reads = {"name": "sum", "type": "Add", "from": ["a", "b"]}
    other = {"name": "sum", "type": "Add", "from": ["first", "b"]}
    before = net(DENSE, {**HEAD, "units": 3}, reads, outputs=["a", "sum"])
    after = net({**DENSE, "name": "first"}, {**HEAD, "units": 3}, other, outputs=["first", "sum"])
    comparison = compare_specs(before, after)
    assert not comparison
    assert comparison.names == {"a": "first", "b": "b", "sum": "sum"}


def test_a_different_source_layer_is_a_difference() -> None:
    reads = {"name": "sum", "type": "Add", "from": ["a", "b"]}
    comparison = compare_specs(
        net(DENSE, {**HEAD, "units": 3}, reads), net(DENSE, {**HEAD, "units": 3}, {**reads, "from": ["a", "a"]})
    )
    (difference,) = comparison.layers
    assert [str(change) for change in difference.changes] == ["from.1: b → a"]


def test_layers_without_a_name_have_their_default_one() -> None:
    plain, named = {"type": "Dense", "units": 3}, {"type": "Dense", "units": 3, "name": "dense_1"}
    assert not compare_specs(net(plain, plain), net(plain, plain))
    assert not compare_specs(net(plain, plain), net({**plain, "name": "dense"}, named))
    (difference,) = compare_specs(net(plain, DENSE), net(plain, {**DENSE, "units": 5})).layers
    assert (difference.before, [str(change) for change in difference.changes]) == ("a", ["units: 3 → 5"])
    (added,) = compare_specs(net(plain), net(plain, plain)).layers
    assert (added.before, added.after) == (None, "dense_1")
