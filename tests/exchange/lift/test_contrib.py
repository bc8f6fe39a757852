"""Imported contrib operators (com.microsoft) give the results of onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.onnx.importing import import_onnx, read_model
from netspec.exchange.interface import ImportOptions
from netspec.exchange.lift.model import lift_model
from tests.exchange.integer_products import skip_if_they_saturate
from tests.exchange.lift.models.contrib import (
    FUSED,
    KEPT,
    KEYS,
    MODELS,
    POSITIONS,
    PROJECTIONS,
    QUERY,
    Arrays,
    contributed,
    drawn,
    heads,
    own,
    rotated,
    to_itself,
    whole,
)
from tests.exchange.lift.models.generic import imported, layers_of
from tests.exchange.lift.models.quantized import LSTMS, QUANTIZED


def results_of(proto: onnx.ModelProto, arrays: Arrays, folder: Path) -> tuple[list[np.ndarray], str]:
    """The results of the net of a model, and its YAML."""
    net, text = imported(proto, folder)
    lifted = lift_model(read_model(folder / "model.onnx"), ImportOptions(), "model")
    results = net.predict({endpoint.name: endpoint.to_net(arrays[name]) for name, endpoint in lifted.inputs.items()})
    return [endpoint.from_net(results[endpoint.name]) for endpoint in lifted.outputs.values()], text


def expected_of(proto: onnx.ModelProto, arrays: Arrays) -> list[np.ndarray]:
    """onnxruntime's results on one thread: several threads would quantize parts of a batch separately."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, dict(arrays))
    return results


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_the_same(name: str, tmp_path: Path) -> None:
    proto, arrays = MODELS[name]
    results, _ = results_of(proto, arrays, tmp_path)
    for have, expected in zip(results, expected_of(proto, arrays), strict=True):
        np.testing.assert_allclose(have, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", QUANTIZED)
def test_integers_are_equal(name: str, tmp_path: Path) -> None:
    skip_if_they_saturate()
    proto, arrays = QUANTIZED[name]
    have, expected = results_of(proto, arrays, tmp_path)[0][0], expected_of(proto, arrays)[0]
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(have, expected, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(have, expected)


@pytest.mark.parametrize("name", LSTMS)
def test_an_lstm_rounds_what_onnxruntime_rounds(name: str, tmp_path: Path) -> None:
    """A different rounding in a single step would cause a difference of 1e-3; the rest is from sigmoid and tanh."""
    skip_if_they_saturate()
    proto, arrays = LSTMS[name]
    results, _ = results_of(proto, arrays, tmp_path)
    for have, expected in zip(results, expected_of(proto, arrays), strict=True):
        np.testing.assert_allclose(have, expected, atol=2e-6)


def test_joint_quantization_of_states_is_noted(tmp_path: Path) -> None:
    for name, noted in (("several sequences", True), ("forward", False)):
        (tmp_path / "model.onnx").write_bytes(LSTMS[name][0].SerializeToString())
        notes = import_onnx(tmp_path / "model.onnx").notes
        assert any("quantizes the states of all 3 sequences together" in note for note in notes) == noted


def test_an_activation_becomes_a_field(tmp_path: Path) -> None:
    _, text = results_of(*FUSED["a convolution and relu"], tmp_path)
    assert layers_of(text) == ["{name: y, type: Conv2D, filters: 3, kernel_size: 3, activation: relu}"]


def test_layers_have_names_of_the_model(tmp_path: Path) -> None:
    _, text = results_of(*MODELS["rotated heads in part"], tmp_path)
    assert [line for line in layers_of(text) if "Split" in line] == [
        "{name: y/XToRotate, type: Split, sections: 2, axis: 3}",
        "{name: y/X1, type: Split, from: y/XToRotate.0, sections: 2, axis: 3}",
    ]


def test_packed_heads_equal_three_tensors(tmp_path: Path) -> None:
    """onnxruntime does not support the packed form on CPUs: compare with separate tensors."""
    query, key, value = (drawn(2, 5, 2, 4) for _ in range(3))
    flat = {name: array.reshape(2, 5, 8) for name, array in (("q", query), ("k", key), ("v", value))}
    separate, together, two = (
        results_of(proto, arrays, tmp_path)[0][0]
        for proto, arrays in (
            heads("q k v", flat),
            heads("q", {"q": np.stack([query, key, value], 3)}),
            heads("q k", {"q": flat["q"], "k": np.stack([key, value], 3)}),
        )
    )
    np.testing.assert_allclose(together, separate, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(two, separate, rtol=1e-5, atol=1e-6)


UNSUPPORTED = {
    "a state": (to_itself("  p", {"p": drawn(2, 2, 3, 4)}), "past or present keys and values"),
    "computed projections": (
        contributed([own("Attention", "x x", num_heads=2)], {"x": KEYS}), "its matrix of projections is computed"
    ),
    "an infinite scale": (
        contributed(
            [own("QLinearSigmoid", "x s z s z")], {"x": KEPT.astype("uint8")}, s=np.float32(np.inf), z=np.uint8(0)
        ),
        "its scale must be positive and finite, got inf",
    ),
    "an unknown activation": (
        contributed([own("FusedGemm", "x w", activation="Erf")], {"x": drawn(2, 6)}, w=drawn(6, 3)),
        "the activation Erf",
    ),
    "an unknown operator": (contributed([own("Sampling", "x")], {"x": QUERY}), "com.microsoft.Sampling"),
    "a mask of first keys": (to_itself(" m", weights={"m": whole(3, 5, 0, 0), **PROJECTIONS}), "start and end"),
    "late positions": (rotated(2, 3, 8, weights={"p": np.array([7])}), "positions 7 to 9 are not in cos_cache"),
    "fewer heads than the tables are for": (
        rotated(2, 3, 16, more=POSITIONS, num_heads=2), "must have 4 columns for 8 rotated features, got 2"
    ),
    "tables for more features than rotate": (
        rotated(2, 3, 8, more=POSITIONS, num_heads=2, rotary_embedding_dim=2), "must have 1 columns"
    ),
    "rotated in part without heads": (
        rotated(2, 3, 16, more=POSITIONS, rotary_embedding_dim=4), "`rotary_embedding_dim` without `num_heads`"
    ),
    "rotated vectors": (rotated(2, 8, more=POSITIONS), "x has 2 axes instead of 3 or 4"),
    "a computed position": (rotated(2, 3, 8, more={"p": np.array([1])}), "position of the first token is computed"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_nodes_are_reported(name: str, tmp_path: Path) -> None:
    (proto, _), message = UNSUPPORTED[name]
    with pytest.raises(InputError, match=message):
        imported(proto, tmp_path)
