"""Attention layers against formulas in NumPy, and the effect of masks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from netspec.graph.value import ShapeMismatch
from tests.layers.apply import layer

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(2, 5, 6))
OTHER = RANDOM.normal(size=(2, 4, 6))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    probabilities: np.ndarray = e / e.sum(-1, keepdims=True)
    return probabilities


def weights(features: int = 6, heads: int = 2, size: int = 3) -> dict[str, Any]:
    shapes = dict.fromkeys(("query", "key", "value"), (features, heads, size))
    arrays = {f"{name}/kernel": RANDOM.normal(size=shape) for name, shape in shapes.items()}
    arrays |= {f"{name}/bias": RANDOM.normal(size=shape[1:]) for name, shape in shapes.items()}
    return arrays | {
        "attention_output/kernel": RANDOM.normal(size=(heads, size, features)),
        "attention_output/bias": RANDOM.normal(size=features),
    }


MULTI = {"type": "MultiHeadAttention", "num_heads": 2, "key_dim": 3}


def test_heads_attend_independently():
    w = weights()
    y = layer(MULTI, X, OTHER, **w).y
    q, k, v = (
        np.einsum("ntc,chd->nhtd", x, w[f"{name}/kernel"]) + w[f"{name}/bias"][:, None]
        for name, x in (("query", X), ("key", OTHER), ("value", OTHER))
    )
    heads = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(3)) @ v
    expected = np.einsum("nhtd,hdc->ntc", heads, w["attention_output/kernel"]) + w["attention_output/bias"]
    np.testing.assert_allclose(y, expected, rtol=1e-12)


def test_single_input_attends_to_itself():
    w = weights()
    np.testing.assert_array_equal(layer(MULTI, X, **w).y, layer(MULTI, X, X, X, **w).y)


def test_sliding_window_matches_a_mask():
    w = weights()
    away = np.arange(5)[:, None] - np.arange(4)
    for causal in (False, True):
        near = (abs(away) < 2) & ((away >= 0) | (not causal))
        mask = near.astype(np.int32)[None].repeat(2, 0)
        y = layer({**MULTI, "use_causal_mask": causal, "sliding_window": 2}, X, OTHER, **w).y
        np.testing.assert_array_equal(y, layer(MULTI, X, OTHER, OTHER, mask, **w).y)


def test_queries_without_keys_get_zeros():
    w = weights()
    y = layer({**MULTI, "sliding_window": 1}, X, OTHER, **w).y
    np.testing.assert_allclose(y[:, 4], np.broadcast_to(w["attention_output/bias"], (2, 6)))


def test_gate_scales_the_output_of_heads():
    w = weights()
    shut, wide = (w | {"gate/kernel": np.zeros((6, 2, 3)), "gate/bias": np.full((2, 3), b)} for b in (-1e3, 1e3))
    gated = {**MULTI, "use_gate": True}
    np.testing.assert_allclose(layer(gated, X, **wide).y, layer(MULTI, X, **w).y, rtol=1e-12)
    y = layer(gated, X, **shut).y
    np.testing.assert_allclose(y, np.broadcast_to(w["attention_output/bias"], y.shape), atol=1e-12)


def test_grouped_heads_share_keys_and_values():
    fields = {"type": "GroupQueryAttention", "head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}
    w = weights(heads=4)
    shared = {name: np.repeat(w[name][..., ::2, :], 2, axis=-2) for name in w if name.startswith(("key", "value"))}
    grouped = {**w, **{name: w[name][..., ::2, :] for name in shared}}
    mask = np.tri(5, 5, 2, dtype=np.int32)[None].repeat(2, 0)
    y = layer(fields, X, X, X, mask, **grouped).y
    expected = layer({**MULTI, "num_heads": 4}, X, X, X, mask, **{**w, **shared}).y
    np.testing.assert_allclose(y, expected, rtol=1e-12)


CAUSAL = [
    ({**MULTI, "use_causal_mask": True}, weights()),
    ({"type": "Attention", "use_causal_mask": True}, {}),
    ({"type": "Attention", "score_mode": "concat", "use_causal_mask": True}, {}),
    ({"type": "AdditiveAttention", "use_causal_mask": True}, {}),
]


@pytest.mark.parametrize(("fields", "states"), CAUSAL)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_causal_mask_hides_later_steps(fields, states, dtype):
    x = X.astype(dtype)
    changed = x.copy()
    changed[:, 3:] = 1e4
    before, after = (layer(fields, values, values, **states).y for values in (x, changed))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])  # bit-identical
    assert not np.allclose(before[:, 3:], after[:, 3:])
    dy = np.zeros_like(before)
    dy[:, 2] = 1
    query, value = layer(fields, x, x, **states).gradient(dy)
    assert np.any(value[:, :3])
    assert not np.any(value[:, 3:])
    assert not np.any(query[:, 3:])


def test_attention_mask_restricts_keys():
    w, mask = weights(), np.ones((2, 5, 4), np.int32)
    mask[0, :, 2:] = 0
    mask[1, 1] = 0
    y = layer(MULTI, X, OTHER, OTHER, mask, **w).y
    np.testing.assert_allclose(y[0], layer(MULTI, X[:1], OTHER[:1, :2], **w).y[0], rtol=1e-12)
    # A query without keys gets 0, so only the bias remains.
    np.testing.assert_array_equal(y[1, 1], w["attention_output/bias"])
    np.testing.assert_allclose(y[1, 0], layer(MULTI, X, OTHER, **w).y[1, 0], rtol=1e-12)
    for kind in (np.bool_, np.float64, np.uint8):
        np.testing.assert_array_equal(layer(MULTI, X, OTHER, OTHER, mask.astype(kind), **w).y, y)


def test_attention_mask_broadcasts_over_queries():
    w, mask = weights(), np.array([[[1, 0, 1, 1]], [[1, 1, 0, 0]]], np.int32)
    y = layer(MULTI, X, OTHER, OTHER, mask, **w).y
    np.testing.assert_array_equal(y, layer(MULTI, X, OTHER, OTHER, np.repeat(mask, 5, 1), **w).y)


def test_dropout_drops_weights_in_training_only():
    fields, w = {**MULTI, "dropout": 0.5}, weights()
    np.testing.assert_array_equal(layer(fields, X, **w).y, layer(MULTI, X, **w).y)
    assert not np.allclose(layer(fields, X, training=True, **w).y, layer(MULTI, X, **w).y)


def test_kernels_are_initialized_as_matrices():
    applied = layer({"type": "MultiHeadAttention", "num_heads": 8, "key_dim": 16}, RANDOM.normal(size=(1, 2, 64)))
    for name in ("query/kernel", "attention_output/kernel"):
        state = applied.net.states[f"it/{name}"]
        values = state.initial.sample(1, name, state.value.shape, "float64")
        limit = np.sqrt(6 / (64 + 8 * 16))  # as in Glorot and Bengio 2010, for a matrix of 64 × (8 · 16)
        assert 0.99 * limit < np.abs(values).max() <= limit


@pytest.mark.parametrize(
    ("fields", "shapes", "message"),
    [
        (MULTI, [(2, 6)], "the query is not a sequence"),
        (MULTI, [(2, 5, 6), (2, 4, 6), (2, 3, 6)], "keys and values have different numbers of steps"),
        (MULTI, [(2, 5, 6), (2, 4, 6), (2, 4, 6), (2, 4)], "the mask must have one entry for each pair"),
        (
            {"type": "GroupQueryAttention", "head_dim": 2, "num_query_heads": 3, "num_key_value_heads": 2},
            [(2, 5, 6)],
            "must be a multiple of `num_key_value_heads`",
        ),
        ("Attention", [(2, 5, 6), (2, 4, 3)], "query and key have vectors of different lengths"),
        ("AdditiveAttention", [(2, 5, 6), (2, 4, 6), (2, 4, 1)], "query and key have vectors of different lengths"),
        ({"type": "PositionEmbedding", "sequence_length": 4}, [(2, 5, 6)], "longer than `sequence_length`: 4"),
        ("SinePositionEncoding", [(2, 6)], "the input is not a sequence"),
        ("RotaryEmbedding", [(2, 4, 5)], "features are rotated in pairs"),
        ({"type": "RotaryEmbedding", "feature_axis": 1}, [(2, 4, 6)], "positions and features must be different axes"),
    ],
)
def test_attention_error_messages(fields, shapes, message):
    with pytest.raises(ShapeMismatch, match=message):
        layer(fields, *(np.zeros(shape) for shape in shapes))


def test_sine_position_encoding():
    y = layer({"type": "SinePositionEncoding"}, np.zeros((2, 7, 6))).y
    for position in range(7):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            np.testing.assert_allclose(y[:, position, 2 * i], np.sin(angle), atol=1e-15)
            np.testing.assert_allclose(y[:, position, 2 * i + 1], np.cos(angle), atol=1e-15)


def test_position_embedding_is_shared_by_samples():
    table = RANDOM.normal(size=(9, 6))
    applied = layer({"type": "PositionEmbedding", "sequence_length": 9}, X, embeddings=table)
    np.testing.assert_array_equal(applied.y, np.broadcast_to(table[:5], X.shape))
    dy = RANDOM.normal(size=X.shape)
    (gradient,) = applied.gradient(dy, "embeddings")
    np.testing.assert_allclose(gradient, np.concatenate([dy.sum(0), np.zeros((4, 6))]), rtol=1e-12)


def test_rotary_products_depend_on_distances():
    fields = {"type": "RotaryEmbedding", "max_wavelength": 50.0}
    q, k = (np.repeat(RANDOM.normal(size=(1, 1, 6)), 8, axis=1) for _ in range(2))
    products = np.einsum("nic,njc->nij", layer(fields, q).y, layer(fields, k).y)[0]
    for distance in range(-7, 8):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-12)
    assert len({round(products[0, j], 6) for j in range(8)}) == 8
    np.testing.assert_allclose(np.linalg.norm(layer(fields, X).y, axis=-1), np.linalg.norm(X, axis=-1), rtol=1e-12)


def test_rotary_embedding_along_other_axes():
    y = layer({"type": "RotaryEmbedding", "sequence_axis": 2, "feature_axis": 1}, X.swapaxes(1, 2)).y
    np.testing.assert_allclose(y.swapaxes(1, 2), layer("RotaryEmbedding", X).y, rtol=1e-12)


def test_rotary_scaling_factor_stretches_positions():
    spread = layer({"type": "RotaryEmbedding", "scaling_factor": 2.0}, np.repeat(X, 2, axis=1)).y
    np.testing.assert_allclose(spread[:, ::2], layer("RotaryEmbedding", X).y, rtol=1e-12)


def test_rotary_embedding_of_a_prefix():
    lengths = [2, 3, 5]
    encodings = [layer("SinePositionEncoding", np.zeros((1, length, 4))).y for length in lengths]
    for shorter, longer in pairwise(encodings):
        np.testing.assert_array_equal(longer[:, : shorter.shape[1]], shorter)
