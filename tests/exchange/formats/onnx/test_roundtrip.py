"""Net → ONNX → net gives the same net, for every layer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.onnx.exporting import Exported, to_onnx
from netspec.exchange.formats.onnx.importing import import_onnx
from netspec.exchange.formats.onnx.messages import open_session
from netspec.layers.base import LayerSpec
from netspec.schema.load import load_net
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.yaml.reader import parse_yaml
from netspec.tools.verification.cases import SampleCase, cases
from tests.exchange.nets import LENET, Net
from tests.exchange.samples import Ranges, inputs_of, one_layer
from tests.registry.fast_samples import first_is_fast


def again(net: Net, folder: Path) -> tuple[Net, str]:
    """Return the net after a round trip, and its YAML."""
    return read_again(to_onnx(net.graph, net.states, name=net.spec.name), folder)


def read_again(exported: Exported, folder: Path) -> tuple[Net, str]:
    """Return the net in an exported model, and its YAML."""
    exported.save(folder / "model.onnx")
    imported = import_onnx(folder / "model.onnx")
    (folder / "net.yaml").write_text(imported.net)
    return Net(load_net(folder / "net.yaml"), imported.arrays), imported.net


def agree(before: Net, after: Net, ranges: Ranges = ()) -> None:
    """Check that both nets agree except for the order of sums, since constants may be folded."""
    inputs = inputs_of(before, ranges)
    expected = read_as(before, after, before.predict(inputs))
    actual = after.predict(
        {name: array for name, array in read_as(before, after, inputs).items() if name in after.spec.inputs}
    )
    assert list(actual) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-5, atol=1e-6)


def read_as(before: Net, after: Net, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays as the second net takes them: with an additional axis if its sample is a whole batch of one."""
    inputs = after.spec.inputs
    single_sample = any(
        len(inputs[name].shape) > len(declared.shape) for name, declared in before.spec.inputs.items() if name in inputs
    )
    return {name: array[:, None] for name, array in arrays.items()} if single_sample else arrays


def computes_in_onnx(before: Net, after: Net, ranges: Ranges = ()) -> None:
    """Export the imported net again, and check that this model gives the results of the first net."""
    session = open_session(to_onnx(after.graph, after.states).model.SerializeToString())
    own_inputs = inputs_of(before, ranges)
    inputs, expected = (read_as(before, after, arrays) for arrays in (own_inputs, before.predict(own_inputs)))
    names = [value.name for value in session.get_outputs()]
    results = session.run(names, {value.name: inputs[value.name] for value in session.get_inputs()})
    for name, actual in zip(names, results, strict=True):
        np.testing.assert_allclose(actual, expected[name], rtol=1e-5, atol=1e-5)  # some hundred terms


def has_no_roundtrip(case: SampleCase) -> bool:
    cls = LAYERS[case.type]
    assert issubclass(cls, LayerSpec)
    return cls.onnx_roundtrip_blocker is not None or case.sample.no_onnx_roundtrip


@pytest.mark.parametrize("case", first_is_fast(c for c in cases("layer") if has_no_roundtrip(c)))
def test_layers_without_a_roundtrip_are_refused_or_compute_the_same(case: SampleCase, tmp_path: Path) -> None:
    before = one_layer(case)
    try:
        after, _ = again(before, tmp_path)
    except InputError as refused:
        assert re.search(r"netspec has no layer for the operator|can't be imported", str(refused))  # noqa: PT017  # one of two outcomes
    else:
        agree(before, after, case.sample.ranges)
        computes_in_onnx(before, after, case.sample.ranges)


@pytest.mark.parametrize("case", first_is_fast(c for c in cases("layer") if not has_no_roundtrip(c)))
def test_every_layer_round_trips(case: SampleCase, tmp_path: Path) -> None:
    before = one_layer(case)
    exported = to_onnx(before.graph, before.states, name=before.spec.name)
    after, text = read_again(exported, tmp_path)
    agree(before, after, case.sample.ranges)
    computes_in_onnx(before, after, case.sample.ranges)
    types = {layer.name: getattr(layer, "type", "") for layer in after.spec.layers}
    if "sample" in exported.graph.tensors:  # if the layer does nothing in inference, such as Dropout, there is no node
        cls = LAYERS[case.type]
        assert issubclass(cls, LayerSpec)
        hint = "name the layers in `onnx_equivalents`, or give the reason in `onnx_roundtrip_blocker`"
        assert types["sample"] in (case.type, *cls.onnx_equivalents), f"{hint}\n{text}"


def test_a_net_round_trips_unchanged(tmp_path: Path) -> None:
    before = Net.of(LENET)
    after, text = again(before, tmp_path)
    agree(before, after)
    assert text.partition("\n")[2] == LENET.read_text()
    assert after.states.keys() == before.states.keys()
    for name, array in before.states.items():
        np.testing.assert_array_equal(after.states[name], array)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("momentum", [0.99, 0.9, 0.5])
def test_the_momentum_of_moving_averages_round_trips(momentum: float, axis: int, tmp_path: Path) -> None:
    """The momentum has no effect in inference, but a training may continue with the imported net."""
    spec = {"name": "y", "type": "BatchNormalization", "momentum": momentum, "axis": axis}
    before = Net(load_net(parse_yaml(f"netspec: 1\ninputs: {{x: {{shape: [3, 4]}}}}\nlayers: [{spec}]\n", "net.yaml")))
    after, _ = again(before, tmp_path)
    momenta = [getattr(layer, "momentum", None) for layer in after.spec.layers]
    assert [value for value in momenta if value is not None] == [momentum]


def test_a_large_position_embedding_round_trips(tmp_path: Path) -> None:
    """With a dynamic batch, the model repeats the table for each sample, but the net stores it once."""
    layers = [{"type": "PositionEmbedding", "name": "p", "sequence_length": 131}, {"type": "Add", "from": ["x", "p"]}]
    before = Net(load_net({"netspec": 1, "inputs": {"x": {"shape": [131, 130]}}, "layers": layers}))
    after, _ = again(before, tmp_path)
    agree(before, after)
