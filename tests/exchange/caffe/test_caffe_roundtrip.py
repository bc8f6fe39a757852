"""Net → Caffe's files → net computes the same, for every layer that has a form in Caffe; the others say why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.caffe.reading import read_prototxt
from netspec.exchange.caffe.writing.files import write_caffe
from netspec.exchange.imported import ImportOptions
from netspec.schema.links import resolve_names
from netspec.schema.load import load_net
from tests.exchange.caffe.catalogue import excluded, exportable, reason
from tests.exchange.nets import Net, net_data
from tests.exchange.samples import inputs_of, one_layer
from tests.registry.cases import Case, cases


def again(net: Net, folder: Path, weights: str = "model.caffemodel") -> tuple[Net, tuple[str, ...]]:
    """The net after a round trip, and what was told of it."""
    notes = write_caffe(folder / weights, exportable(net))
    found = read_prototxt(folder / "model.prototxt", ImportOptions(weights=folder / weights))
    (folder / "net.yaml").write_text(found.net)
    return Net(load_net(folder / "net.yaml"), found.arrays), notes


def agree(before: Net, after: Net, ranges: Any = ()) -> None:
    inputs = inputs_of(before, ranges)
    expected = before.predict(inputs)
    given = {name: inputs[name].astype(one.dtype) for name, one in after.spec.inputs.items()}
    got = after.predict(given)
    assert len(got) == len(expected)
    for ours, array in zip(got.values(), expected.values(), strict=True):
        assert ours.shape == array.shape
        np.testing.assert_allclose(ours, array, rtol=1e-5, atol=1e-5)  # constants are folded, sums reordered


NO_FORM = excluded()
"""Why samples have no form in Caffe; all others come back."""


@pytest.mark.parametrize("case", cases("layer"), ids=lambda case: case.id)
def test_every_layer_comes_back_or_says_why_it_has_no_form(case: Case, tmp_path: Path) -> None:
    before = one_layer(case)
    try:
        after, _ = again(before, tmp_path)
    except InputError as refused:
        assert reason(refused) == NO_FORM.get(case.id), "python -m tests.exchange.caffe.catalogue"  # noqa: PT017  # one of two outcomes
        assert not any(tmp_path.iterdir())
    else:
        assert case.id not in NO_FORM, "python -m tests.exchange.caffe.catalogue"
        agree(before, after, case.sample.ranges)


SEQUENCE = {"words": {"shape": [5], "dtype": "int32"}}
TIMED: dict[str, list[dict[str, Any]]] = {
    "an LSTM over words, and a class": [
        {"name": "vectors", "type": "Embedding", "input_dim": 2, "output_dim": 3},
        {"name": "all", "type": "LSTM", "units": 4, "return_sequences": True},
        {"name": "more", "type": "LSTM", "units": 3, "use_bias": False},
        {"name": "y", "type": "Dense", "units": 2, "activation": "softmax"},
    ],
    "a class at each step": [
        {"name": "vectors", "type": "Embedding", "input_dim": 2, "output_dim": 3},
        {"name": "h", "type": "SimpleRNN", "units": 4, "return_sequences": True},
        {"name": "out", "type": "Dense", "units": 4, "activation": "tanh"},
        {"name": "both", "type": "Concatenate", "from": ["vectors", "out"], "axis": -1},
        {"name": "y", "type": "Dense", "units": 2, "activation": "softmax"},
    ],
    "an RNN's last step of a part": [
        {"name": "vectors", "type": "Embedding", "input_dim": 2, "output_dim": 3},
        {"name": "cut", "type": "Slice", "axis": 1, "start": 1, "stop": 4},
        {"name": "h", "type": "SimpleRNN", "units": 4},
        {"name": "y", "type": "Dense", "units": 4, "activation": "tanh"},
    ],
    "a class at each step, by a layer around": [
        {"name": "vectors", "type": "Embedding", "input_dim": 2, "output_dim": 3},
        {"name": "h", "type": "LSTM", "units": 4, "return_sequences": True},
        {"name": "y", "type": "TimeDistributed", "layer": {"type": "Dense", "units": 2, "activation": "softmax"}},
    ],
    "a single step": [
        {"name": "vectors", "type": "Embedding", "input_dim": 2, "output_dim": 3},
        {"name": "cut", "type": "Slice", "axis": 1, "start": 1, "stop": 2},
        {"name": "h", "type": "LSTM", "units": 4},
    ],
}


@pytest.mark.parametrize("weights", ["model.caffemodel", "model.caffemodel.h5"])
@pytest.mark.parametrize("name", TIMED)
def test_sequences_come_back(name: str, weights: str, tmp_path: Path) -> None:
    before = Net.of(net_data(*TIMED[name], inputs=SEQUENCE))
    after, notes = again(before, tmp_path, weights)
    agree(before, after)
    assert notes == ("`words` is (T, N, …) in Caffe: its steps before its samples",)
    kinds = [getattr(layer, "type", "") for layer in after.spec.layers]
    assert not {"Reduction", "Power"} & set(kinds)  # what says where sequences go on


UNROLLED: dict[str, list[dict[str, Any]]] = {
    "an LSTM that Caffe's is not, behind one that it is": [
        {"type": "LSTM", "units": 2, "return_sequences": True},
        {"type": "LSTM", "units": 2, "go_backwards": True, "activation": "relu"},
    ],
    "a SimpleRNN with nothing behind it": [{"type": "SimpleRNN", "units": 2}],
    "an LSTM beside what is no layer of single steps": [
        {"type": "LSTM", "units": 2, "return_sequences": True}, {"type": "Flatten"}, {"type": "Dense", "units": 3},
    ],
    "a state that goes on in another layer": [
        {"name": "a", "type": "GRU", "units": 2, "return_state": True},
        {"name": "b", "type": "GRU", "units": 2, "from": ["x", "a.state_h"], "share": "a"},
    ],
    "both ways, normalized, at each step": [
        {"type": "Bidirectional", "layer": {"type": "LSTM", "units": 2, "return_sequences": True}},
        {"type": "LayerNormalization"}, {"type": "GlobalAveragePooling1D"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("weights", ["model.caffemodel", "model.caffemodel.h5"])
@pytest.mark.parametrize("name", UNROLLED)
def test_recurrent_layers_that_caffe_has_not_come_back_step_by_step(name: str, weights: str, tmp_path: Path) -> None:
    before = Net.of(net_data(*UNROLLED[name], inputs={"x": {"shape": [3, 2]}}))
    after, notes = again(before, tmp_path, weights)
    agree(before, after)
    assert notes == ()  # (N, T, …) in Caffe, too
    assert "LSTM" not in {getattr(layer, "type", "") for layer in after.spec.layers}


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_a_mask_of_an_earlier_layer_has_no_form(layer: str, tmp_path: Path) -> None:
    words = {"type": "Embedding", "input_dim": 4, "output_dim": 3, "mask_zero": True}
    net = Net.of(net_data(words, {"name": "h", "type": layer, "units": 2}, inputs=SEQUENCE))
    with pytest.raises(InputError, match=r"`h` .* it computes with a mask of an earlier layer"):
        write_caffe(tmp_path / "m.prototxt", exportable(net))


def test_a_sequence_of_many_steps_is_not_written_step_by_step(tmp_path: Path) -> None:
    net = Net.of(net_data({"type": "GRU", "units": 1}, inputs={"x": {"shape": [201, 1]}}))
    with pytest.raises(InputError, match="step by step its 201 steps are more than the 200 that are written"):
        write_caffe(tmp_path / "m.prototxt", exportable(net))


@pytest.mark.parametrize(
    ("field", "told"), [("shift: 0.5 power: 2", 0.25), ("power: -1", None), ("shift: -8 power: 0.5", None)]
)
def test_a_power_whose_scale_is_0_is_a_number(field: str, told: float | None, tmp_path: Path) -> None:
    path = tmp_path / "m.prototxt"
    path.write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }\n'
        f'layer {{ name: "y" type: "Power" bottom: "x" top: "y" power_param {{ scale: 0 {field} }} }}\n'
    )
    if told is None:
        with pytest.raises(InputError, match="what it gives is no number"):
            read_prototxt(path, ImportOptions())
        return
    (tmp_path / "net.yaml").write_text(read_prototxt(path, ImportOptions()).net)
    (made,) = Net(load_net(tmp_path / "net.yaml"), {}).predict({"x": np.array([[3.0, np.inf]], np.float32)}).values()
    np.testing.assert_array_equal(made, [[told, told]])


NETS: dict[str, list[dict[str, Any]]] = {
    "functions in place": [
        {"type": "Conv2D", "filters": 4, "kernel_size": 3, "padding": "same", "activation": function}
        for function in ("relu", "sigmoid", "softplus", "hard_sigmoid", "selu", "mish", "softsign")
    ],
    "factors and terms of channels": [
        {"name": "conv", "type": "Conv2D", "filters": 4, "kernel_size": 3},
        {"name": "mean", "type": "GlobalAveragePooling2D", "keepdims": True},
        {"name": "gate", "type": "Conv2D", "filters": 4, "kernel_size": 1, "activation": "sigmoid"},
        {"name": "gated", "type": "Multiply", "from": ["conv", "gate"]},
        {"type": "Add", "from": ["mean", "gated"]},
    ],
    "a factor of an image": [
        {"name": "conv", "type": "Conv2D", "filters": 1, "kernel_size": 3},
        {"name": "mean", "type": "GlobalAveragePooling2D", "keepdims": True},
        {"type": "Multiply", "from": ["conv", "mean"]},
    ],
    "a difference of sizes": [
        {"name": "conv", "type": "Conv2D", "filters": 4, "kernel_size": 3},
        {"name": "mean", "type": "GlobalAveragePooling2D", "keepdims": True},
        {"name": "apart", "type": "Subtract", "from": ["mean", "conv"]},
        {"type": "Minimum", "from": ["apart", "conv", "mean"]},
    ],
    "a softmax over channels": [{"type": "Conv2D", "filters": 4, "kernel_size": 3, "activation": "softmax"}],
    "shared weights": [
        {"name": "a", "type": "Conv2D", "filters": 2, "kernel_size": 3, "padding": "same"},
        {"name": "b", "type": "Conv2D", "filters": 2, "kernel_size": 3, "padding": "same", "share": "a"},
    ],
    "a flattened image that two read": [
        {"name": "flat", "type": "Flatten"},
        {"name": "one", "type": "Dense", "units": 3, "from": "flat"},
        {"name": "two", "type": "Dense", "units": 3, "from": "flat"},
        {"type": "Add", "from": ["one", "two"]},
    ],
    "a flattened image that others read": [
        {"name": "flat", "type": "Flatten"},
        {"name": "one", "type": "Dense", "units": 128, "from": "flat"},
        {"type": "Multiply", "from": ["one", "flat"]},
    ],
    "same padding and strides": [
        {"type": "Conv2D", "filters": 3, "kernel_size": 3, "strides": 2, "padding": "same"},
        {"type": "DepthwiseConv2D", "kernel_size": 2, "padding": "same"},
        {"type": "SeparableConv2D", "filters": 4, "kernel_size": 2, "padding": "same", "activation": "relu"},
        {"type": "MaxPooling2D", "pool_size": 3, "strides": 2},
    ],
    "paddings of kernels with gaps": [
        {
            "type": "Conv2D",
            "filters": 3,
            "kernel_size": 2,
            "strides": 2,
            "dilation_rate": 2,
            "padding": [[0, 3], [3, 1]],
            "activation": "softplus",
        },
        {"type": "SeparableConv2D", "filters": 4, "kernel_size": 2, "dilation_rate": 3, "padding": [[0, 3], [3, 0]]},
    ],
    "parts": [
        {"name": "parts", "type": "Split", "sections": 2},
        {"type": "Concatenate", "from": ["parts.1", "parts.0", "parts.1"], "axis": 1},
    ],
}


@pytest.mark.parametrize("weights", ["model.caffemodel", "model.caffemodel.h5"])
@pytest.mark.parametrize("name", NETS)
def test_nets_come_back(name: str, weights: str, tmp_path: Path) -> None:
    before = Net.of(net_data(*NETS[name]))
    after, _ = again(before, tmp_path, weights)
    agree(before, after)


LENET: list[dict[str, Any]] = [
    {"name": "conv1", "type": "Conv2D", "filters": 4, "kernel_size": 3, "padding": 1},
    {"name": "bn1", "type": "BatchNormalization", "epsilon": 1e-5, "momentum": 0.999},
    {"name": "relu1", "type": "ReLU"},
    {"name": "pool1", "type": "MaxPooling2D", "pool_size": 2, "ceil_mode": True},
    {"name": "ip1_flatten", "type": "Flatten"},
    {"name": "ip1", "type": "Dense", "units": 6, "activation": "relu"},
    {"name": "drop1", "type": "Dropout", "rate": 0.5},
    {"name": "ip2", "type": "Dense", "units": 3},
    {"name": "prob", "type": "Softmax"},
]


def test_a_net_of_usual_layers_comes_back_as_it_was(tmp_path: Path) -> None:
    before = Net.of(net_data(*LENET))
    after, notes = again(before, tmp_path)
    agree(before, after)
    assert notes == ()
    assert after.states.keys() == before.states.keys()
    for name, array in before.states.items():
        np.testing.assert_array_equal(after.states[name], array)
    kinds = [(layer.name, getattr(layer, "type", "")) for layer in after.spec.layers]
    assert kinds == [(layer["name"], layer["type"]) for layer in LENET]


HIDDEN: list[dict[str, Any]] = [
    {"name": "flat", "type": "Flatten"},
    {"name": "h", "type": "Dense", "units": 3, "activation": "relu"},
    {"name": "drop", "type": "Dropout", "rate": 0.5},
    {"name": "y", "type": "Dense", "units": 2},
]


@pytest.mark.parametrize("outputs", [["h", "y"], ["drop", "y"], ["h", "drop", "y"], ["h", "drop"]])
def test_outputs_that_layers_read_come_back(outputs: list[str], tmp_path: Path) -> None:
    before = Net.of(net_data(*HIDDEN, outputs=outputs))
    after, _ = again(before, tmp_path)
    agree(before, after)
    assert resolve_names(after.spec).outputs == tuple(outputs)


def test_everything_without_a_form_is_told_at_once(tmp_path: Path) -> None:
    net = Net.of(
        net_data(
            {"name": "turn", "type": "Permute", "dims": [2, 1, 3]},
            {"name": "g", "type": "Activation", "activation": "gelu"},
            {"name": "s", "type": "Activation", "activation": "sparsemax"},
            outputs=["g", "s"],
        )
    )
    with pytest.raises(InputError) as error:
        write_caffe(tmp_path / "m.prototxt", exportable(net))
    turn, *others = error.value.problems
    assert "BVLC's Caffe has no Permute: it turns no axes; the Permute of other versions (SSD's)" in turn.message
    assert [one.message for one in others] == [
        "`g` (Activation) has no form in Caffe: Caffe has no error function",
        "`s` (Activation) has no form in Caffe: Caffe has no layer that computes `sparsemax`",
    ]
    assert others[0].hint == "`{type: gelu, approximate: true}` is made of what it has"
    assert not any(tmp_path.iterdir())


def test_zeros_in_kernels_and_rows_cut_off_are_told_of(tmp_path: Path) -> None:
    net = Net.of(net_data(*NETS["same padding and strides"]))
    notes = write_caffe(tmp_path / "m.prototxt", exportable(net))
    assert [note.split(":")[0] for note in notes] == ["conv2d", "depthwise_conv2d", "separable_conv2d"]
    text = (tmp_path / "m.prototxt").read_text()
    assert "round_mode" not in text
    assert 'type: "Silence"' in text
