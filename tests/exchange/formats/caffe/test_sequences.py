"""Recurrent layers of Caffe, whose sequences are (T, N, …), against formulas in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.errors import InputError
from tests.exchange.formats.caffe.prototxt import answers, drafted, lines, spec_of
from tests.exchange.nets import Net

T, N, D, H = 5, 3, 4, 2
HEAD = f"""
layer {{ name: "in" type: "Input" top: "x" top: "cont"
  input_param {{ shape {{ dim: {T} dim: {N} dim: {D} }} shape {{ dim: {T} dim: {N} }} }} }}
"""
RECURRENT = """
layer {{ name: "r" type: "{}" bottom: "x" bottom: "cont" top: "r"
  recurrent_param {{ num_output: 2 weight_filler {{ type: "uniform" }} {} }} }}
"""
TAIL = """
layer { name: "y" type: "InnerProduct" bottom: "r" top: "y" inner_product_param { num_output: 3 axis: 2 } }
layer { name: "p" type: "Softmax" bottom: "y" top: "p" softmax_param { axis: 2 } }
"""


def drawn(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def test_lstm_equals_caffe():
    w, b, u, x = drawn((4 * H, D), (4 * H,), (4 * H, H), (T, N, D))
    net_draft = drafted(HEAD + RECURRENT.format("LSTM", ""), {"r": [w, b, u]})
    assert net_draft.draft.inputs == {"x": {"shape": [T, D]}}
    assert net_draft.notes == [
        "`r`: every sequence starts from zero states; the sequence continuation indicators `cont` are left out"
    ]
    h, c, expected = np.zeros((N, H)), np.zeros((N, H)), []
    for step in x:  # lstm_unit_layer.cpp has the gates in the order i, f, o, g
        i, f, o, g = np.split(step @ w.T + b + h @ u.T, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        expected.append(h)
    (computed,) = answers(net_draft, x.swapaxes(0, 1))
    np.testing.assert_allclose(computed, np.stack(expected, 1), rtol=1e-4, atol=1e-6)  # float32, five steps


def test_rnn_equals_caffe():
    w, b, u, out, bias, x = drawn((H, D), (H,), (H, H), (H, H), (H,), (T, N, D))
    net_draft = drafted(HEAD + RECURRENT.format("RNN", ""), {"r": [w, b, u, out, bias]})
    h, expected = np.zeros((N, H)), []
    for step in x:
        h = np.tanh(step @ w.T + b + h @ u.T)
        expected.append(np.tanh(h @ out.T + bias))
    (computed,) = answers(net_draft, x.swapaxes(0, 1))
    np.testing.assert_allclose(computed, np.stack(expected, 1), rtol=1e-4, atol=1e-6)  # float32, five steps
    assert lines(net_draft)[1] == "{name: r_output, type: Dense, units: 2, activation: tanh}"
    fresh = drafted(HEAD + RECURRENT.format("RNN", ""))  # without weights, the net file has initializers
    assert "kernel_initializer: {type: RandomUniform, minval: 0.0, maxval: 1.0}" in lines(fresh)[1]


def test_single_step_equals_caffe():
    head = """layer { name: "in" type: "Input" top: "c" top: "x" top: "cont"
      input_param { shape { dim: 1 dim: 3 dim: 2 } shape { dim: 1 dim: 3 dim: 8 } shape { dim: 1 dim: 3 } } }
    layer { name: "u" type: "LSTMUnit" bottom: "c" bottom: "x" bottom: "cont" top: "c2" top: "h" }
    """
    net_draft = drafted(head)
    before, x = drawn((N, 1, H), (N, 1, 4 * H))
    goes_on = np.array([[0], [1], [1]], np.float32)
    i, f, o, g = np.split(x, 4, axis=-1)
    cell = goes_on[:, None] * sigmoid(f) * before + sigmoid(i) * np.tanh(g)
    outputs = Net(spec_of(net_draft)).predict({"c": before, "x": x, "cont": goes_on})
    for array, expected in zip(outputs.values(), (cell, sigmoid(o) * np.tanh(cell)), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)  # float32


def test_axes_of_sequences():
    net_draft = drafted(HEAD + RECURRENT.format("LSTM", "") + TAIL)
    assert lines(net_draft)[1:] == ["{name: y, type: Dense, units: 3}", "{name: p, type: Softmax}"]
    loss = 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" softmax_param { axis: 2 } }\n'
    data = 'layer { name: "d" type: "HDF5Data" top: "label" top: "words" }\n'
    embed = 'layer { name: "x" type: "Embed" bottom: "words" top: "x" embed_param { input_dim: 9 num_output: 4 } }\n'
    cont = 'layer { name: "c" type: "DummyData" top: "cont" dummy_data_param { shape { dim: 5 dim: 3 } } }\n'
    net_draft = drafted(data + cont + embed + RECURRENT.format("LSTM", "") + TAIL + loss, shapes={"words": (T,)})
    assert net_draft.draft.inputs == {
        "words": {"shape": [T], "dtype": "int32"},
        "label": {"shape": [T], "dtype": "int32"},
    }
    spec_of(net_draft)
    joined = 'layer { name: "j" type: "Concat" bottom: "r" bottom: "x" top: "j" concat_param { axis: 0 } }\n'
    text = HEAD.replace(f"dim: {D}", f"dim: {H}") + RECURRENT.format("LSTM", "") + joined
    assert lines(drafted(text))[1] == "{name: j, type: Concatenate, from: [r, x]}"  # concatenates steps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RECURRENT.format("LSTM", "expose_hidden: true"), "initial and final states as bottoms"),
        (RECURRENT.format("RNN", "").replace("num_output: 2", ""), "`num_output` is missing"),
        (RECURRENT.format("RNN", "").replace('top: "r"', 'bottom: "x" top: "r"'), "a third bottom"),
        (RECURRENT.format("LSTM", "") + TAIL.replace("axis: 2", ""), "it operates along axis 1, the batch"),
        (RECURRENT.format("LSTM", "") + 'layer { type: "Reshape" bottom: "r" top: "s" }', "cannot be reshaped"),
    ],
)  # fmt: skip
def test_unsupported_recurrent_layers_are_reported(text, expected):
    with pytest.raises(InputError) as caught:
        drafted(HEAD + text)
    assert expected in caught.value.render()
