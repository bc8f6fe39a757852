"""Two specs side by side: what differs in meaning, and what is only written otherwise."""

from __future__ import annotations

from typing import Any

from netspec.schema.comparing import Change, LayerPair, compare_specs
from netspec.schema.load import load_net
from netspec.schema.net import NetSpec


def net(*layers: dict[str, Any], **fields: Any) -> NetSpec:
    return load_net({"netspec": 1, "inputs": {"x": {"shape": [4]}}, "layers": list(layers), **fields})


DENSE = {"name": "a", "type": "Dense", "units": 3}
HEAD = {"name": "b", "type": "Dense", "units": 2}


def test_defaults_written_out_are_no_difference() -> None:
    written = {**DENSE, "trainable": True, "activation": None}
    assert not compare_specs(net(DENSE), net(written))


def test_fields_layers_and_settings() -> None:
    more = {"name": "c", "type": "Dropout", "rate": 0.5}
    found = compare_specs(net(DENSE, HEAD), net({**DENSE, "units": 5, "activation": "relu"}, more, name="other"))
    assert found.names == {"a": "a"}
    changed, gone, new = found.layers
    assert changed.before == changed.after == "a"
    assert set(changed.changes) >= {Change("units", "3", "5")}
    assert [change.path for change in changed.changes] == ["units", "activation"]
    assert (gone, new) == (LayerPair("b", None, "Dense"), LayerPair(None, "c", "Dropout"))
    assert found.others == ()  # `name` says nothing of what the net is


def test_a_layer_that_is_only_called_otherwise_is_the_same() -> None:
    reads = {"name": "sum", "type": "Add", "from": ["a", "b"]}
    other = {"name": "sum", "type": "Add", "from": ["first", "b"]}
    before = net(DENSE, {**HEAD, "units": 3}, reads, outputs=["a", "sum"])
    after = net({**DENSE, "name": "first"}, {**HEAD, "units": 3}, other, outputs=["first", "sum"])
    found = compare_specs(before, after)
    assert not found
    assert found.names == {"a": "first", "b": "b", "sum": "sum"}


def test_what_is_read_from_elsewhere_is_a_difference() -> None:
    reads = {"name": "sum", "type": "Add", "from": ["a", "b"]}
    found = compare_specs(
        net(DENSE, {**HEAD, "units": 3}, reads), net(DENSE, {**HEAD, "units": 3}, {**reads, "from": ["a", "a"]})
    )
    (pair,) = found.layers
    assert [str(change) for change in pair.changes] == ["from.1: b → a"]
