"""Recurrent operators with time-major and batch-major data, both directions, and initial states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.onnx.messages import open_session
from tests.exchange.lift.models.generic import floats, imported, ints, layers_of, node, random
from tests.exchange.lift.models.single_sample import joined

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}


def weights(kind: str, direction_count: int = 1) -> dict[str, Any]:
    """Return the weights of 3 units for 2 features."""
    wide = 3 * GATES[kind]
    return {
        "w": floats(direction_count, wide, 2) - 0.5,
        "r": floats(direction_count, wide, 3) - 0.5,
        "b": floats(direction_count, 2 * wide) - 0.5,
    }


def same(proto: onnx.ModelProto, folder: Path, swapped: bool = True, **inputs: np.ndarray) -> str:
    """Check that the net agrees with ONNX Runtime; return its YAML. `inputs` have the batch axis of the model."""
    net, text = imported(proto, folder)
    expected = open_session(proto.SerializeToString()).run(None, inputs)
    results = net.predict({name: x.swapaxes(0, 1) if swapped else x for name, x in inputs.items()})
    for y, expected_y in zip(results.values(), expected, strict=True):
        in_order = y if y.shape == expected_y.shape else y.swapaxes(0, 1)
        np.testing.assert_allclose(in_order, expected_y, rtol=1e-5, atol=1e-5)
    return text


def of_sequences(
    kind: str, more: list[onnx.NodeProto], results: str = "a", outputs: str = "y", **attributes: Any
) -> Any:
    """Return a model of sequences (T, N, 2) without initial states."""
    direction_count = 2 if attributes.get("direction") == "bidirectional" else 1
    nodes = [node(kind, "x w r b", results, hidden_size=3, **attributes), *more]
    constants: dict[str, Any] = {"zero": ints(0), "one": ints(1), "last": np.int64(-1), "flat": ints(0, 0, -1)}
    return joined(nodes, {"x": [4, "N", 2]}, outputs, **weights(kind, direction_count), **constants)


@pytest.mark.parametrize("kind", GATES)
def test_both_directions_are_stacked(kind: str, tmp_path: Path) -> None:
    more = [node("Transpose", "a", "t", perm=[0, 2, 1, 3]), node("Reshape", "t flat")]
    proto = of_sequences(kind, more, direction="bidirectional")
    text = same(proto, tmp_path, x=random.normal(size=(4, 5, 2)).astype("float32"))
    assert "type: Bidirectional" in text


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_all_steps_and_the_state_in_the_end(kind: str, direction: str, tmp_path: Path) -> None:
    more = [node("Squeeze", "a one", "y"), node("Gather", "h last", "z", axis=0)]
    proto = of_sequences(kind, more, "a, h", "y z", direction=direction)
    text = same(proto, tmp_path, x=random.normal(size=(4, 5, 2)).astype("float32"))
    assert "return_sequences: true" in text
    assert "return_state: true" in text


def test_states_of_several_layers_in_front_of_the_samples(tmp_path: Path) -> None:
    second: dict[str, Any] = dict(zip("vsc", (floats(1, 9, 3), floats(1, 9, 3), floats(1, 18)), strict=True))
    nodes = [
        node("GRU", "x w r b", "a, h", hidden_size=3, linear_before_reset=1), node("Squeeze", "a one", "f"),
        node("GRU", "f v s c", ", g", hidden_size=3), node("Concat", "h g", "k", axis=0),
        node("Gather", "k last", axis=0),
    ]  # fmt: skip
    proto = joined(nodes, {"x": [4, "N", 2]}, one=ints(1), last=np.int64(-1), **weights("GRU"), **second)
    text = same(proto, tmp_path, x=random.normal(size=(4, 5, 2)).astype("float32"))
    assert "reset_after: false" in text


@pytest.mark.parametrize("kind", GATES)
def test_initial_states_are_inputs(kind: str, tmp_path: Path) -> None:
    names = ["h", "c"][: STATES[kind]]
    results = ", ".join(["a", *(f"{name}2" for name in names)])
    nodes = [node(kind, " ".join(["x w r b ", *names]), results, hidden_size=3), node("Squeeze", "a one")]
    inputs: dict[str, list[int | str]] = {"x": [4, "N", 2], **{name: [1, "N", 3] for name in names}}
    proto = joined(nodes, inputs, " ".join(["y", *(f"{name}2" for name in names)]), one=ints(1), **weights(kind))
    fed: dict[str, Any] = {name: random.normal(size=(1, 5, 3)).astype("float32") for name in names}
    same(proto, tmp_path, x=random.normal(size=(4, 5, 2)).astype("float32"), **fed)


def test_batch_major_data_and_constant_initial_states(tmp_path: Path) -> None:
    nodes = [node("RNN", "x w r   h", "a, k", hidden_size=3, layout=1, activations=["Relu"]), node("Squeeze", "a two")]
    constants: dict[str, Any] = {
        "w": weights("RNN")["w"],
        "r": weights("RNN")["r"],
        "h": np.ones((1, 1, 3), "float32"),
        "two": ints(2),
    }
    net, text = imported(joined(nodes, {"x": [1, 4, 2]}, "y", **constants), tmp_path)
    assert "activation: relu" in text
    x, state = random.normal(size=(1, 4, 2)).astype("float32"), np.ones(3)
    for step in range(4):
        state = np.maximum(constants["w"][0] @ x[0, step] + constants["r"][0] @ state, 0)
        np.testing.assert_allclose(net.predict({"x": x})["y"][0, step], state, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("LSTM", {"clip": 0.3, "direction": "bidirectional"}), ("GRU", {"clip": 0.3, "direction": "reverse"}),
        ("GRU", {"clip": 0.3, "linear_before_reset": 1}), ("RNN", {"clip": 0.5}), ("LSTM", {"input_forget": 1}),
        ("LSTM", {"activations": ["HardSigmoid", "Affine", "ScaledTanh"], "activation_alpha": [0.3, 1.1, 1.2],
                  "activation_beta": [0.4, 0.1, 0.7]}),
    ],
)  # fmt: skip
def test_recurrences_without_a_layer_are_unrolled(kind: str, attributes: dict[str, Any], tmp_path: Path) -> None:
    direction_count = 2 if attributes.get("direction") == "bidirectional" else 1
    nodes = [node(kind, "x w r b", "a, h", hidden_size=3, **attributes), node("Transpose", "a", perm=[0, 2, 1, 3])]
    proto = joined([*nodes, node("Identity", "h", "z")], {"x": [3, "N", 2]}, "y z", **weights(kind, direction_count))
    text = same(proto, tmp_path, x=random.normal(size=(3, 4, 2)).astype("float32") * 3)
    assert f"type: {kind}" not in text


def test_gates_that_see_the_cell_and_sequences_of_several_lengths(tmp_path: Path) -> None:
    nodes = [node("LSTM", "x w r b n   p", "a, h, c", hidden_size=3), node("Squeeze", "a one")]
    proto = joined(nodes, {"x": [4, "N", 2]}, "y h c", one=ints(1), p=floats(1, 9) - 0.5, **weights("LSTM"))
    proto.graph.input.append(onnx.helper.make_tensor_value_info("n", onnx.TensorProto.INT32, ["N"]))
    net, _ = imported(proto, tmp_path)
    x, n = random.normal(size=(4, 3, 2)).astype("float32"), np.array([2, 4, 1], "int32")
    expected = open_session(proto.SerializeToString()).run(None, {"x": x, "n": n})
    results = net.predict({"x": x.swapaxes(0, 1), "n": n})
    for y, expected_y in zip(results.values(), expected, strict=True):
        np.testing.assert_allclose(y.swapaxes(0, 1).reshape(expected_y.shape), expected_y, rtol=1e-5, atol=1e-5)


def test_recurrences_that_cannot_be_unrolled_are_reported(tmp_path: Path) -> None:
    proto = of_sequences("LSTM", [node("Squeeze", "a one")], activations=["Sigmoid", "Tanh", "Sinus"])
    with pytest.raises(InputError, match="the activation Sinus"):
        imported(proto, tmp_path)


def test_a_sequence_for_each_step_of_a_single_sample(tmp_path: Path) -> None:
    nodes = [node("LSTM", "x w r b", "a", hidden_size=3), node("ReduceSum", "a axes", keepdims=0)]
    proto = joined(nodes, {"x": [4, 3, 2]}, axes=ints(1, 2), **weights("LSTM"))
    net, text = imported(proto, tmp_path)
    assert any("TimeDistributed" in line for line in layers_of(text))
    x = random.normal(size=(4, 3, 2)).astype("float32")
    (expected,) = open_session(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(net.predict({"x": x[None]})["y"][0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_initial_states_of_several_sequences_of_a_single_sample(kind: str, tmp_path: Path) -> None:
    sizes = {"x": (4, 2, 2), "h": (1, 2, 3), **({"c": (1, 2, 3)} if kind == "LSTM" else {})}
    parts = ["x", "w", "r", "b", "", *list(sizes)[1:]]
    lstm = onnx.helper.make_node(kind, parts, ["y"], hidden_size=3)
    proto = joined([lstm], {name: [*size] for name, size in sizes.items()}, **weights(kind))
    net, _ = imported(proto, tmp_path)
    arrays = {name: random.normal(size=size).astype("float32") for name, size in sizes.items()}
    (expected,) = open_session(proto.SerializeToString()).run(None, arrays)
    y = net.predict({name: array[None] for name, array in arrays.items()})["y"]
    np.testing.assert_allclose(y[0], expected, rtol=1e-5, atol=1e-5)


def test_a_function_of_the_last_state_is_a_separate_layer(tmp_path: Path) -> None:
    nodes = [node("GRU", "x w r b", ", h", hidden_size=3), node("Tanh", "h", "t"), node("Squeeze", "t zero")]
    proto = joined(nodes, {"x": [4, "N", 2]}, zero=ints(0), **weights("GRU"))
    same(proto, tmp_path, x=random.normal(size=(4, 5, 2)).astype("float32"))
