"""Origin, propagation and effects of masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.compile import NetGraph, build
from netspec.schema.load import load_net
from tests.interpret import evaluate
from tests.layers.apply import layer

RANDOM = np.random.default_rng(5)
TEXT = np.array([[3, 1, 0, 0], [2, 2, 1, 3], [1, 0, 4, 0]], np.int32)
EMBEDDING = {"name": "words", "type": "Embedding", "input_dim": 5, "output_dim": 6, "mask_zero": True}


def built(*layers: dict[str, Any]) -> NetGraph:
    inputs = {"text": {"shape": [4], "dtype": "int32"}, "valid": {"shape": [4], "dtype": "int32"}}
    spec = load_net({"netspec": 1, "inputs": inputs, "layers": [EMBEDDING, *layers]})
    return build(spec, 3, training=False)


def masks(*layers: dict[str, Any]) -> dict[str, np.ndarray]:
    net = built(*layers)
    actual = evaluate(list(net.masks.values()), {"text": TEXT, "valid": (TEXT > 1).astype(np.int32)})
    return dict(zip(net.masks, actual, strict=True))


PASSING: list[dict[str, Any]] = [
    {"type": "Dense", "units": 3, "activation": "relu"},
    {"type": "Dropout", "rate": 0.5},
    {"type": "Identity"},
    {"type": "LayerNormalization"},
    {"type": "ActivityRegularization", "l2": 0.1},
    {"type": "SinePositionEncoding"},
    {"type": "MultiHeadAttention", "num_heads": 2, "key_dim": 2},
    {"type": "Attention", "from": ["words", "words"]},
    # The mask is not reversed, as in Keras.
    {"type": "GRU", "units": 2, "return_sequences": True, "go_backwards": True},
]
STOPPING: list[dict[str, Any]] = [
    {"type": "Flatten"},
    {"type": "Conv1D", "filters": 2, "kernel_size": 1},
    {"type": "GlobalAveragePooling1D"},
]


@pytest.mark.parametrize("fields", PASSING, ids=lambda fields: fields["type"])
def test_layers_that_pass_a_mask_on(fields: dict[str, Any]) -> None:
    np.testing.assert_array_equal(masks({"name": "it", **fields})["it"], TEXT != 0)


@pytest.mark.parametrize("fields", STOPPING, ids=lambda fields: fields["type"])
def test_layers_that_drop_a_mask(fields: dict[str, Any]) -> None:
    assert masks({"name": "it", **fields}).keys() == {"words"}


def test_mask_of_a_value_shared_by_two_layers() -> None:
    net = built({"name": "same", "type": "Identity"}, {"name": "shaped", "type": "Reshape", "target_shape": [4, 6]})
    assert net.values["shaped"] is net.values["same"] is net.values["words"]
    assert net.masks.keys() == {"words", "same"}


def test_mask_input_replaces_the_computed_mask() -> None:
    actual = masks({"name": "it", "type": "Masking", "from": ["words", "valid"]})
    np.testing.assert_array_equal(actual["it"], TEXT > 1)


def test_mask_of_a_sum_is_the_union_of_masks() -> None:
    other = {"name": "other", "type": "Masking", "from": ["words", "valid"]}
    plain = {"name": "plain", "type": "Embedding", "input_dim": 5, "output_dim": 6, "from": "text"}
    actual = masks(other, plain, {"name": "sum", "type": "Add", "from": ["words", "other"]},
                  {"name": "more", "type": "Add", "from": ["words", "plain"]})  # fmt: skip
    np.testing.assert_array_equal(actual["sum"], TEXT != 0)
    assert "more" not in actual


def test_concatenated_sequences_concatenate_masks() -> None:
    plain = {"name": "plain", "type": "Embedding", "input_dim": 5, "output_dim": 6, "from": "text"}
    actual = masks(plain, {"name": "long", "type": "Concatenate", "from": ["words", "plain"]},
                  {"name": "wide", "type": "Concatenate", "axis": -1, "from": ["words", "words"]})  # fmt: skip
    np.testing.assert_array_equal(actual["long"], np.concatenate([TEXT != 0, np.ones((3, 4), bool)], axis=1))
    np.testing.assert_array_equal(actual["wide"], TEXT != 0)


@pytest.mark.parametrize("value", [0.0, -1.5])
def test_masking_masks_steps_equal_to_the_mask_value(value: float) -> None:
    x = RANDOM.normal(size=(2, 3, 2))
    x[0, 1], x[1, 2, 0] = value, value
    x[1, 0] = np.nan  # NaN differs from the mask value, so the step counts and NaN remains visible
    result = layer({"type": "Masking", "mask_value": value}, x)
    np.testing.assert_array_equal(result.y, np.where((x == value).all(-1, keepdims=True), 0, x))
    (mask,) = evaluate([result.spec.mask(result.net, *result.inputs)], result.feeds)
    np.testing.assert_array_equal(mask, [[True, False, True], [True, True, True]])


ATTENTIONS: list[dict[str, Any]] = [
    {"type": "MultiHeadAttention", "num_heads": 2, "key_dim": 2},
    {"type": "MultiHeadAttention", "num_heads": 2, "key_dim": 2, "use_causal_mask": True},
    {"type": "GroupQueryAttention", "head_dim": 3, "num_query_heads": 2, "num_key_value_heads": 1},
    {"type": "Attention", "from": ["words", "words"]},
    {"type": "Attention", "from": ["words", "words", "words"], "score_mode": "concat", "use_causal_mask": True},
    {"type": "AdditiveAttention", "from": ["words", "words"]},
]


@pytest.mark.parametrize("fields", ATTENTIONS, ids=lambda fields: "-".join(map(str, fields.values())))
def test_attention_ignores_masked_steps(fields: dict[str, Any]) -> None:
    net = built({"name": "it", **fields})
    states = {name: RANDOM.normal(size=info.value.shape).astype("float32") for name, info in net.builder.states.items()}
    (before,) = evaluate([net.values["it"]], {"text": TEXT, **states})
    states["words/embeddings"][0] = 1e4
    (after,) = evaluate([net.values["it"]], {"text": TEXT, **states})
    np.testing.assert_array_equal(after[TEXT != 0], before[TEXT != 0])


def test_causal_mask_with_all_earlier_steps_masked() -> None:
    x = RANDOM.normal(size=(1, 3, 4))
    valid = np.array([[[0, 0, 1]]], np.int32)  # only the last step is valid, which the first two must not see
    fields = {"type": "MultiHeadAttention", "num_heads": 1, "key_dim": 2, "use_causal_mask": True, "use_bias": False}
    y = layer(fields, x, x, x, valid).y
    np.testing.assert_array_equal(y[:, :2], 0)
    assert np.any(y[:, 2])


def test_activity_penalty_is_a_mean_over_samples() -> None:
    x = RANDOM.normal(size=(4, 3))
    fields = {"type": "Dense", "units": 2, "activity_regularizer": {"type": "L1L2", "l1": 0.1, "l2": 0.2}}
    result = layer(fields, x, training=True)
    (penalty,) = evaluate(result.net.penalties, result.feeds)
    assert penalty == pytest.approx((0.1 * np.abs(result.y).sum() + 0.2 * (result.y**2).sum()) / 4, rel=1e-12)
    assert layer(fields, x).net.penalties == []


def test_reversible_embedding_shares_its_table() -> None:
    fields = {"type": "ReversibleEmbedding", "input_dim": 5, "output_dim": 6}
    net = built(
        {"name": "table", **fields, "from": "text"}, {"name": "scores", **fields, "share": "table", "reverse": True}
    )
    assert {name for name in net.builder.states if name.startswith(("table", "scores"))} == {"table/embeddings"}
    table = RANDOM.normal(size=(5, 6)).astype("float32")
    vectors, scores = evaluate([net.values["table"], net.values["scores"]], {"text": TEXT, "table/embeddings": table})
    np.testing.assert_allclose(scores, vectors @ table.T, rtol=1e-5)


def test_padding_does_not_change_losses_and_metrics() -> None:
    layers = [
        {**EMBEDDING, "from": "text"},
        {"name": "memory", "type": "Bidirectional", "layer": {"type": "GRU", "units": 3, "return_sequences": True}},
        {"name": "logits", "type": "Dense", "units": 5},
    ]
    inputs = {name: {"shape": [4], "dtype": "int32"} for name in ("text", "next")}
    judged: dict[str, Any] = {
        "losses": [{"type": "SparseCategoricalCrossentropy", "from_logits": True}],
        "metrics": [{"type": "SparseCategoricalAccuracy"}],
    }
    net = build(load_net({"netspec": 1, "inputs": inputs, "layers": layers, **judged}), 3, training=True)
    states = {name: RANDOM.normal(size=info.value.shape).astype("float32") for name, info in net.builder.states.items()}
    quantities = [*net.losses.values(), *(total for _, totals in net.metrics.values() for total in totals)]
    next_words = RANDOM.integers(0, 5, TEXT.shape).astype(np.int32)
    before = evaluate(quantities, {"text": TEXT, "next": next_words, **states})
    after = evaluate(quantities, {"text": TEXT, "next": np.where(TEXT != 0, next_words, 1).astype(np.int32), **states})
    np.testing.assert_array_equal(before, after)
    assert before[-1] == (TEXT != 0).sum()
