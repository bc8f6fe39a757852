"""Net → Caffe files → net gives the same results for every layer that Caffe can express; the others give a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.caffe.reading import read_prototxt
from netspec.exchange.formats.caffe.writing.files import write_caffe
from netspec.exchange.interface import ImportOptions
from netspec.schema.load import load_net
from netspec.schema.specs.links import resolve_names
from netspec.tools.verification.cases import SampleCase, cases
from tests.exchange.formats.caffe.catalogue import excluded, exportable, reason
from tests.exchange.nets import Net, net_data
from tests.exchange.samples import inputs_of, one_layer
from tests.registry.fast_samples import first_is_fast


def again(net: Net, folder: Path, weights: str = "model.caffemodel") -> tuple[Net, tuple[str, ...]]:
    """Return the net after a round trip, and the notes of the export."""
    notes = write_caffe(folder / weights, exportable(net))
    imported = read_prototxt(folder / "model.prototxt", ImportOptions(weights=folder / weights))
    (folder / "net.yaml").write_text(imported.net)
    return Net(load_net(folder / "net.yaml"), imported.arrays), notes


def agree(before: Net, after: Net, ranges: Any = ()) -> None:
    inputs = inputs_of(before, ranges)
    expected = before.predict(inputs)
    cast_inputs = {name: inputs[name].astype(declared.dtype) for name, declared in after.spec.inputs.items()}
    actual = after.predict(cast_inputs)
    assert len(actual) == len(expected)
    for ours, array in zip(actual.values(), expected.values(), strict=True):
        assert ours.shape == array.shape
        np.testing.assert_allclose(ours, array, rtol=1e-5, atol=1e-5)  # constants are folded, sums reordered


NO_FORM = excluded()
"""Why samples have no form in Caffe; all others come back."""


@pytest.mark.parametrize("case", first_is_fast(cases("layer")))
def test_every_layer_round_trips_or_is_rejected_with_its_reason(case: SampleCase, tmp_path: Path) -> None:
    before = one_layer(case)
    try:
        after, _ = again(before, tmp_path)
    except InputError as refused:
        assert reason(refused) == NO_FORM.get(case.id), "python -m tests.exchange.formats.caffe.catalogue"  # noqa: PT017  # one of two outcomes
        assert not any(tmp_path.iterdir())
    else:
        assert case.id not in NO_FORM, "python -m tests.exchange.formats.caffe.catalogue"
        agree(before, after, case.sample.ranges)


def test_a_mask_of_an_earlier_layer_is_refused(tmp_path: Path) -> None:
    words = {"type": "Embedding", "input_dim": 4, "output_dim": 3, "mask_zero": True}
    layers = [words, {"name": "h", "type": "LSTM", "units": 2}]
    net = Net.of(net_data(*layers, inputs={"words": {"shape": [5], "dtype": "int32"}}))
    with pytest.raises(InputError, match=r"`h` cannot be written for Caffe: it uses a mask"):
        write_caffe(tmp_path / "m.prototxt", exportable(net))


def test_scale_by_a_second_input_with_bias_is_refused(tmp_path: Path) -> None:
    inputs = {"x": {"shape": [3, 4]}, "factors": {"shape": [3]}}
    scale = {"name": "s", "type": "Scale", "from": ["x", "factors"], "axis": 1, "use_bias": True}
    with pytest.raises(InputError, match=r"`s` \(Scale\) cannot be written for Caffe: .* second input has no bias"):
        write_caffe(tmp_path / "m.prototxt", exportable(Net.of(net_data(scale, inputs=inputs))))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("field", "number"), [("shift: 0.5 power: 2", 0.25), ("power: -1", None), ("shift: -8 power: 0.5", None)]
)
def test_a_power_whose_scale_is_0_is_a_number(field: str, number: float | None, tmp_path: Path) -> None:
    path = tmp_path / "m.prototxt"
    path.write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }\n'
        f'layer {{ name: "y" type: "Power" bottom: "x" top: "y" power_param {{ scale: 0 {field} }} }}\n'
    )
    if number is None:
        with pytest.raises(InputError, match="must be a finite number"):
            read_prototxt(path, ImportOptions())
        return
    (tmp_path / "net.yaml").write_text(read_prototxt(path, ImportOptions()).net)
    (output,) = Net(load_net(tmp_path / "net.yaml"), {}).predict({"x": np.array([[3.0, np.inf]], np.float32)}).values()
    np.testing.assert_array_equal(output, [[number, number]])


NETS: dict[str, list[dict[str, Any]]] = {
    "functions in place": [
        {"type": "Conv2D", "filters": 4, "kernel_size": 3, "padding": "same", "activation": function}
        for function in ("relu", "sigmoid", "softplus", "relu6", "silu", "elu", "tanh", "softmax")
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
        {"type": "Conv2D", "filters": 3, "kernel_size": 3, "strides": 2, "padding": 1},
        {"type": "DepthwiseConv2D", "kernel_size": 3, "padding": "same"},
        {"type": "MaxPooling2D", "pool_size": 2, "strides": 2},
    ],
    "parts": [
        {"name": "parts", "type": "Split", "sections": 2},
        {"type": "Concatenate", "from": ["parts.1", "parts.0", "parts.1"], "axis": 1},
    ],
}


@pytest.mark.parametrize("weights", ["model.caffemodel", "model.caffemodel.h5"])
@pytest.mark.parametrize("name", NETS)
def test_nets_round_trip(name: str, weights: str, tmp_path: Path) -> None:
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


def test_a_net_of_common_layers_round_trips_unchanged(tmp_path: Path) -> None:
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
def test_outputs_that_layers_read_round_trip(outputs: list[str], tmp_path: Path) -> None:
    before = Net.of(net_data(*HIDDEN, outputs=outputs))
    after, _ = again(before, tmp_path)
    agree(before, after)
    assert resolve_names(after.spec).outputs == tuple(outputs)


def test_all_layers_that_caffe_lacks_are_reported_at_once(tmp_path: Path) -> None:
    net = Net.of(
        net_data(
            {"name": "turn", "type": "Permute", "dims": [2, 1, 3]},
            {"name": "g", "type": "Activation", "activation": "gelu"},
            {"name": "c", "type": "Conv2D", "from": "turn", "filters": 2, "kernel_size": 2, "padding": "same"},
            {"name": "s", "type": "UpSampling2D", "size": 2},
            outputs=["g", "s"],
        )
    )
    with pytest.raises(InputError) as error:
        write_caffe(tmp_path / "m.prototxt", exportable(net))
    assert [problem.message for problem in error.value.problems] == [
        "`turn` (Permute) cannot be written for Caffe: Caffe has no layer of type Permute",
        "`g` (Activation) cannot be written for Caffe: Caffe has no layer for the function gelu",
        "`c` (Conv2D) cannot be written for Caffe: Caffe pads both sides of an axis by the same amount, got 0 and 1",
        "`s` (UpSampling2D) cannot be written for Caffe: Caffe has no layer of type UpSampling2D",
    ]
    assert [problem.hint for problem in error.value.problems] == [
        "export to ONNX instead: `--output NAME.onnx`",
        "export to ONNX instead: `--output NAME.onnx`",
        "give `padding` as a number, or choose sizes for which both sides are equal",
        "use Conv2DTranspose",
    ]
    assert not any(tmp_path.iterdir())


def test_windows_that_are_rounded_down_are_noted(tmp_path: Path) -> None:
    net = Net.of(net_data({"name": "pool", "type": "MaxPooling2D", "pool_size": 2}, inputs={"x": {"shape": [2, 5, 5]}}))
    (note,) = write_caffe(tmp_path / "m.prototxt", exportable(net))
    assert note == "`pool` has `round_mode: FLOOR`, which needs Caffe of 2018 or later"
    agree(net, again(net, tmp_path)[0])
