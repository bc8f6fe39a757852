"""Layers around layers: names and multipliers of parameters, masks, random numbers, and where errors are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.compile import build
from netspec.errors import SpecError
from netspec.schema.load import load_net
from tests.interpret import evaluate
from tests.layers.apply import layer

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(2, 4, 3))
GRU = {"type": "GRU", "units": 2, "return_sequences": True}


def test_bidirectional_runs_both_directions():
    result = layer({"type": "Bidirectional", "layer": GRU, "merge_mode": "sum"}, X)
    names = ("kernel", "recurrent_kernel", "bias")
    assert list(result.net.states) == [
        f"it/{direction}_gru/{name}" for direction in ("forward", "backward") for name in names
    ]
    directions = [
        {name: result.feeds[f"it/{direction}_gru/{name}"] for name in names} for direction in ("forward", "backward")
    ]
    y = layer(GRU, X, **directions[0]).y + layer(GRU, X[:, ::-1], **directions[1]).y[:, ::-1]
    np.testing.assert_allclose(result.y, y, rtol=1e-12)


def test_bidirectional_returns_and_accepts_states():
    fields = {"type": "Bidirectional", "layer": {**GRU, "type": "LSTM", "name": "memory", "return_state": True}}
    result = layer(fields, X)
    states = ["forward_state_h", "forward_state_c", "backward_state_h", "backward_state_c"]
    assert result.spec.output_names() == ("output", *states)
    assert {name.split("/")[1] for name in result.net.states} == {"forward_memory", "backward_memory"}
    continued = layer(fields, X, *result.all[1:])
    assert not np.allclose(continued.y, result.y)
    combined = layer({**fields, "merge_mode": None}, X).spec
    assert combined.output_names() == ("forward", "backward", *states)


@pytest.mark.parametrize("steps", [False, True])
def test_bidirectional_conv_lstm_concatenates_channels(steps: bool):
    films = RANDOM.normal(size=(2, 3, 2, 4, 4))
    inner = {"type": "ConvLSTM2D", "filters": 3, "kernel_size": 2, "padding": "same", "return_sequences": steps}
    combined = layer({"type": "Bidirectional", "layer": inner}, films).y
    separate = layer({"type": "Bidirectional", "layer": inner, "merge_mode": None}, films).all
    assert combined.shape == ((2, 3, 6, 4, 4) if steps else (2, 6, 4, 4))
    np.testing.assert_array_equal(combined, np.concatenate(separate, axis=2 if steps else 1))


def test_bidirectional_skips_masked_steps():
    counts = np.array([[1, 1, 0, 1], [0, 1, 1, 0]], bool)
    fields = {"type": "Bidirectional", "layer": {"type": "LSTM", "units": 2}}
    full = layer(fields, np.where(counts[:, :, None], X, np.nan), mask=counts).y
    for sample, steps in enumerate(counts):
        np.testing.assert_allclose(full[sample], layer(fields, X[[sample]][:, steps]).y[0], rtol=1e-12)


def test_time_distributed_applies_the_layer_to_each_step():
    images = RANDOM.normal(size=(2, 3, 2, 5, 4))
    inner = {"type": "Conv2D", "filters": 3, "kernel_size": 2, "activation": "relu"}
    result = layer({"type": "TimeDistributed", "layer": inner}, images)
    kernel, bias = (result.feeds[f"it/conv2d/{name}"] for name in ("kernel", "bias"))
    for t in range(3):
        np.testing.assert_allclose(result.y[:, t], layer(inner, images[:, t], kernel=kernel, bias=bias).y, rtol=1e-12)


def test_time_distributed_dropout_depends_on_the_global_sample():
    fields = {"type": "TimeDistributed", "layer": {"type": "Dropout", "rate": 0.5}}
    full = layer(fields, np.ones((4, 3, 5)), training=True, rng=(1, 1, 0)).y
    half = layer(fields, np.ones((2, 3, 5)), training=True, rng=(1, 1, 2)).y
    np.testing.assert_array_equal(half, full[2:])
    assert len({full[0, t].tobytes() for t in range(3)}) == 3


def net(*layers: dict[str, Any]) -> Any:
    return load_net({"netspec": 1, "inputs": {"x": {"shape": [4, 3]}}, "layers": list(layers)})


def test_multipliers_and_freezing_of_wrapper_and_inner_layer():
    inner = {**GRU, "learning_rate_multiplier": {"kernel": 2.0}}
    fields = {"name": "it", "type": "Bidirectional", "layer": inner,
              "learning_rate_multiplier": {"forward_gru/kernel": 3.0}}  # fmt: skip
    states = build(net(fields), 2, training=True).builder.states
    rates = {name: info.learning_rate_multiplier for name, info in states.items()}
    assert rates["it/forward_gru/kernel"] == 6
    assert rates["it/backward_gru/kernel"] == 2
    assert rates["it/forward_gru/bias"] == 1
    frozen = build(net({**fields, "layer": {**GRU, "trainable": False}}), 2, training=True).builder.states
    assert not any(info.trainable for info in frozen.values())


def test_wrapper_parameters_are_shared():
    fields = {"type": "TimeDistributed", "layer": {"type": "Dense", "units": 3}}
    built = build(net({"name": "one", **fields}, {"name": "two", "share": "one", **fields}), 2, training=False)
    assert list(built.builder.states) == ["one/dense/kernel", "one/dense/bias"]
    feeds = {
        name: RANDOM.normal(size=info.value.shape).astype("float32") for name, info in built.builder.states.items()
    }
    x = X.astype("float32")
    first, second = evaluate([built.values["one"], built.values["two"]], {"x": x, **feeds})
    np.testing.assert_allclose(
        second, first @ feeds["one/dense/kernel"] + feeds["one/dense/bias"], rtol=1e-4, atol=1e-5
    )


def test_bidirectional_passes_its_mask_on():
    counts: list[dict[str, Any]] = [{"name": "counted", "type": "Masking"}]
    counts.append({"name": "it", "type": "Bidirectional", "layer": GRU})
    (mask,) = evaluate([build(net(*counts), 2, training=False).masks["it"]], {"x": np.where(X > 5, X, 0).astype("f4")})
    assert not mask.any()
    only_end = {"name": "it", "type": "Bidirectional", "layer": {"type": "LSTM", "units": 2}}
    assert "it" not in build(net(counts[0], only_end), 2, training=False).masks


def test_errors_of_an_inner_layer_name_it(tmp_path):
    (tmp_path / "net.yaml").write_text(
        "netspec: 1\ninputs: {x: {shape: [4, 3]}}\nlayers:\n"
        "  - {name: it, type: TimeDistributed, layer: {type: Conv2D, filters: 2, kernel_size: 3}}\n"
    )
    with pytest.raises(SpecError) as caught:
        build(load_net(tmp_path / "net.yaml"), 2, training=False)
    (problem,) = caught.value.problems
    assert problem.message == "layer `it` (Conv2D): the input is not an image"
    assert problem.location is not None
    assert (problem.location.line, problem.location.column) == (4, 46)
