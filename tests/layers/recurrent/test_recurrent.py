"""SimpleRNN, LSTM and GRU: against their equations written out in NumPy, one step after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from netspec.errors import SpecError
from netspec.graph.value import ShapeMismatch
from netspec.schema.specs.kinds import LAYERS
from tests.layers.apply import Applied, layer

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(3, 5, 4))
UNITS = 2
STATE = np.zeros((3, UNITS))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def weights(gates: int, bias: tuple[int, ...] | None = None) -> dict[str, np.ndarray]:
    shapes = {
        "kernel": (4, gates * UNITS),
        "recurrent_kernel": (UNITS, gates * UNITS),
        "bias": bias or (gates * UNITS,),
    }
    return {name: RANDOM.normal(size=shape) for name, shape in shapes.items()}


def rnn_step(x: np.ndarray, h: np.ndarray, c: np.ndarray, kernel: Any, recurrent_kernel: Any, bias: Any) -> Any:
    return np.tanh(x @ kernel + h @ recurrent_kernel + bias), c


def lstm_step(x: np.ndarray, h: np.ndarray, c: np.ndarray, kernel: Any, recurrent_kernel: Any, bias: Any) -> Any:
    i, f, g, o = np.split(x @ kernel + h @ recurrent_kernel + bias, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(x: np.ndarray, h: np.ndarray, c: np.ndarray, kernel: Any, recurrent_kernel: Any, bias: Any) -> Any:
    a, b = np.split(x @ kernel + bias[0], 3, axis=1), np.split(h @ recurrent_kernel + bias[1], 3, axis=1)
    z, r = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
    return z * h + (1 - z) * np.tanh(a[2] + r * b[2]), c


def first_gru_step(x: np.ndarray, h: np.ndarray, c: np.ndarray, kernel: Any, recurrent_kernel: Any, bias: Any) -> Any:
    a, (u, v) = np.split(x @ kernel + bias, 3, axis=1), np.split(recurrent_kernel, [2 * UNITS], axis=1)
    b = np.split(h @ u, 2, axis=1)
    z, r = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
    return z * h + (1 - z) * np.tanh(a[2] + (r * h) @ v), c


CELLS: dict[str, tuple[dict[str, Any], Callable[..., Any], dict[str, Any]]] = {
    "SimpleRNN": ({"type": "SimpleRNN"}, rnn_step, weights(1)),
    "LSTM": ({"type": "LSTM"}, lstm_step, weights(4)),
    "GRU": ({"type": "GRU"}, gru_step, weights(3, (2, 3 * UNITS))),
    "GRU before": ({"type": "GRU", "reset_after": False}, first_gru_step, weights(3)),
}
every_cell = pytest.mark.parametrize("name", CELLS)


def expected(name: str, x: np.ndarray, mask: Any = 1.0) -> np.ndarray:
    """Return the outputs of all steps; the state is multiplied by the dropout mask before it is used in products."""
    _, step, parameters = CELLS[name]
    h, c, results = STATE, STATE, []
    for t in range(x.shape[1]):
        h, c = step(x[:, t], h * mask, c, **parameters)
        results.append(h)
    return np.stack(results, axis=1)


def made(name: str, x: np.ndarray = X, *, training: bool = False, **fields: Any) -> Applied:
    cell_fields, _, parameters = CELLS[name]
    return layer({**cell_fields, "units": UNITS, **fields}, x, training=training, **parameters)


@every_cell
def test_sequences_last_step_and_single_step_agree(name):
    y = expected(name, X)
    np.testing.assert_allclose(made(name, return_sequences=True).y, y, rtol=1e-12)
    np.testing.assert_allclose(made(name).y, y[:, -1], rtol=1e-12)
    np.testing.assert_allclose(made(name, X[:, :1]).y, expected(name, X[:, :1])[:, 0], rtol=1e-12)


@every_cell
def test_go_backwards_matches_a_flipped_sequence(name):
    y = expected(name, X[:, ::-1])
    np.testing.assert_allclose(made(name, return_sequences=True, go_backwards=True).y, y, rtol=1e-12)
    np.testing.assert_allclose(made(name, go_backwards=True).y, y[:, -1], rtol=1e-12)


def test_dropout_mask_is_shared_by_all_steps():
    y = made("SimpleRNN", training=True, dropout=0.5, return_sequences=True)
    mask = np.asarray(y.gradient(np.ones((3, 5, UNITS)))[0].any(axis=1)) * 2.0
    assert 0 < mask.mean() < 2
    np.testing.assert_allclose(y.y, expected("SimpleRNN", X * mask[:, None]), rtol=1e-12)
    np.testing.assert_allclose(made("SimpleRNN", dropout=0.5).y, expected("SimpleRNN", X)[:, -1], rtol=1e-12)


@pytest.mark.parametrize("name", ["SimpleRNN", "LSTM"])
def test_recurrent_dropout_mask_is_shared_by_all_steps(name):
    y = made(name, training=True, recurrent_dropout=0.5, return_sequences=True).y
    masks = [np.reshape(bits, (3, UNITS)) * 2.0 for bits in np.ndindex((2,) * (3 * UNITS))]
    assert sum(np.allclose(y, expected(name, X, mask), rtol=1e-12) for mask in masks) == 1
    plain = made(name, recurrent_dropout=0.5, return_sequences=True).y
    np.testing.assert_allclose(plain, expected(name, X), rtol=1e-12)


def test_forget_gate_bias_starts_at_1():
    bias = layer({"type": "LSTM", "units": 2}, X).feeds["it/bias"]
    np.testing.assert_array_equal(bias, [0, 0, 1, 1, 0, 0, 0, 0])
    assert not layer({"type": "LSTM", "units": 2, "unit_forget_bias": False}, X).feeds["it/bias"].any()


def test_recurrent_layers_require_a_sequence():
    with pytest.raises(ShapeMismatch, match="the input is not a sequence") as caught:
        layer({"type": "LSTM", "units": 2}, X[0])
    assert caught.value.hint == "put an Embedding before it to turn integers into vectors"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stateful": True}, "`stateful` is not available"),
        ({"recurrent_activation": "softmax"}, "`softmax` normalizes over all units at once"),
        ({"dropout": 1.0}, "less than 1"),
    ],
)
def test_unsupported_fields_are_rejected(fields, message):
    with pytest.raises((SpecError, ValueError), match=message):
        LAYERS.parse({"type": "LSTM", "name": "it", "units": 2, **fields})


@every_cell
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_initial_states_continue_a_sequence(name, backwards):
    first, second = (X[:, 2:], X[:, :2]) if backwards else (X[:, :2], X[:, 2:])
    options = {"return_state": True, "go_backwards": backwards}
    y, *states = made(name, **options).all
    half = made(name, first, **options).all[1:]
    cell_fields, _, parameters = CELLS[name]
    continued = layer({**cell_fields, "units": UNITS, **options}, second, *half, **parameters).all
    for actual, expected_ in zip(continued, [y, *states], strict=True):
        np.testing.assert_allclose(actual, expected_, rtol=1e-12)
    np.testing.assert_array_equal(y, states[0])


@every_cell
def test_masked_steps_are_skipped(name):
    """Masked steps may contain NaN; their output is the previous one, or at the start the initial state."""
    counts = np.array([[1, 0, 1, 1, 0], [0, 0, 1, 0, 1], [1, 1, 1, 1, 1]], bool)
    x = np.where(counts[:, :, None], X, np.nan)
    cell_fields, _, parameters = CELLS[name]
    net = {**cell_fields, "units": UNITS, "return_sequences": True, "return_state": True}
    first = [RANDOM.normal(size=(3, UNITS)) for _ in made(name, return_state=True).all[1:]]
    y, *states = layer(net, x, *first, mask=counts, **parameters).all
    for sample, own_counts in enumerate(counts):
        short, *last = (
            output[0]
            for output in layer(
                net, X[[sample]][:, own_counts], *(state[[sample]] for state in first), **parameters
            ).all
        )
        indices = np.cumsum(own_counts)
        np.testing.assert_allclose(y[sample], np.concatenate([first[0][[sample]], short])[indices], rtol=1e-12)
        np.testing.assert_allclose([state[sample] for state in states], last, rtol=1e-12)


def test_stacked_cells_match_stacked_layers():
    stack = {"type": "StackedRNNCells", "cells": [{"type": "LSTMCell", "units": 3}, {"type": "GRUCell", "units": 2}]}
    result = layer({"type": "RNN", "cell": stack, "return_sequences": True, "return_state": True}, X)
    assert result.spec.output_names() == ("output", "state_h_0", "state_c_0", "state_h_1")
    names = [name.removeprefix("it/stacked_rnn_cells/") for name in result.net.states]
    assert names == [
        f"{cell}/{weight}" for cell in ("lstm_cell", "gru_cell") for weight in ("kernel", "recurrent_kernel", "bias")
    ]
    values = [result.feeds[name] for name in result.net.states]
    weights_ = [dict(zip(("kernel", "recurrent_kernel", "bias"), values[k : k + 3], strict=True)) for k in (0, 3)]
    lower, h, c = layer(
        {"type": "LSTM", "units": 3, "return_sequences": True, "return_state": True}, X, **weights_[0]
    ).all
    upper, state = layer(
        {"type": "GRU", "units": 2, "return_sequences": True, "return_state": True}, lower, **weights_[1]
    ).all
    for actual, expected_ in zip(result.all, [upper, h, c, state], strict=True):
        np.testing.assert_allclose(actual, expected_, rtol=1e-12)


def projected(x: Any, states: Any, w: Any, mask: Any, steps: Any) -> tuple[np.ndarray, ...]:
    """Outputs and last states of an LSTM with a projection; masked steps change nothing."""
    h, c = states
    outputs = np.zeros((*x.shape[:2], h.shape[1]))
    for t in steps:
        i, f, g, o = np.split(x[:, t] @ w["kernel"] + h @ w["recurrent_kernel"] + w["bias"], 4, axis=1)
        new_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        new_h = sigmoid(o) * np.tanh(new_c) @ w["projection_kernel"]
        counts = mask[:, t : t + 1]
        h, c = np.where(counts, new_h, h), np.where(counts, new_c, c)
        outputs[:, t] = h
    return outputs, h, c


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("has_states", [False, True])
def test_projection_is_output_and_state(has_states, masked, reverse):
    random = np.random.default_rng(8)
    x, states = random.normal(size=(4, 5, 3)), [random.normal(size=(4, size)) for size in (2, 6)]
    shapes = {"kernel": (3, 24), "recurrent_kernel": (2, 24), "bias": (24,), "projection_kernel": (6, 2)}
    w: dict[str, Any] = {name: random.normal(size=shape) for name, shape in shapes.items()}
    mask = np.ones((4, 5), bool)
    if masked:
        mask = np.array([[0, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 0, 1, 0, 1], [0, 1, 1, 1, 1]], bool)
    fields = {"type": "LSTM", "units": 6, "projection_units": 2, "go_backwards": reverse, "return_state": True}
    fields |= {"return_sequences": True}
    actual = layer(fields, x, *(states if has_states else []), mask=mask if masked else None, **w).all
    steps = range(4, -1, -1) if reverse else range(5)
    first = states if has_states else [np.zeros_like(state) for state in states]
    y, h, c = projected(x, first, w, mask, steps)
    for array, expected in zip(actual, (y[:, ::-1] if reverse else y, h, c), strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-12)


def test_projection_in_cells_and_wrappers():
    cell = {"type": "LSTMCell", "units": 6, "projection_units": 2}
    x = np.random.default_rng(8).normal(size=(4, 5, 3))
    stack = {"type": "StackedRNNCells", "cells": [cell, {"type": "GRUCell", "units": 3}]}
    assert [output.shape for output in layer({"type": "RNN", "cell": stack, "return_state": True}, x).all] == [
        (4, 3), (4, 2), (4, 6), (4, 3),
    ]  # fmt: skip
    inner = {"type": "LSTM", "units": 6, "projection_units": 2}
    assert layer({"type": "Bidirectional", "layer": inner}, x).y.shape == (4, 4)
