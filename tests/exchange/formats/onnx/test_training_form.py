"""The training form in ONNX: Dropout is active, moving averages are updated, losses and new states are outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml

from netspec.compile import build, training_form
from netspec.errors import InputError
from netspec.exchange.formats.onnx.exporting import Exported, export_verified, to_onnx
from netspec.exchange.formats.onnx.importing import import_onnx
from netspec.exchange.formats.onnx.messages import open_session
from netspec.graph.graph import Graph
from netspec.schema.load import load_net
from tests.exchange.nets import Arrays, Net, net_data
from tests.interpret import evaluate

LABELS = {"image": {"shape": [2, 8, 8]}, "label": {"shape": [], "dtype": "int32"}}
NORM = {"name": "bn", "type": "BatchNormalization", "momentum": 0.75, "from": "image"}


def graph_of(net: Net, size: int) -> Graph:
    return training_form(build(net.spec, size, training=True))


def undrawn_of(net: Net, size: int) -> Graph:
    return graph_of(net, size).deterministic_form()


def computed(net: Net, inputs: Mapping[str, Any]) -> Arrays:
    """Return the outputs of the net in training, without random values."""
    graph = undrawn_of(net, len(next(iter(inputs.values()))))
    return dict(zip(graph.outputs, evaluate(list(graph.outputs.values()), {**net.states, **inputs}), strict=True))


def exported(net: Net, **options: Any) -> Exported:
    return to_onnx(partial(graph_of, net), net.states, **options)


def nodes_of(model: onnx.ModelProto, kind: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == kind]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def test_losses_and_new_averages_are_outputs_and_computed_alike(tmp_path: Path) -> None:
    net = Net.of(
        net_data(
            NORM,
            {"name": "drop", "type": "Dropout", "rate": 0.5},
            {"name": "rows", "type": "BatchNormalization", "axis": 2, "epsilon": 0.1},
            {"name": "flat", "type": "Flatten"},
            {"name": "fc", "type": "Dense", "units": 3, "kernel_regularizer": {"type": "L2", "l2": 0.1}},
            inputs=LABELS,
            outputs=["fc"],
            losses=[{"type": "SparseCategoricalCrossentropy", "name": "nll", "from": ["fc", "label"],
                     "from_logits": True}],
        )
    )  # fmt: skip
    report = export_verified(
        partial(graph_of, net), net.states, tmp_path / "m", partial(computed, net),
        undrawn_for=partial(undrawn_of, net), domains=build(net.spec, 2, training=True).builder.domains,
    )  # fmt: skip
    states = [f"{layer}/{name}/new" for layer in ("bn", "rows") for name in ("moving_mean", "moving_variance")]
    assert report.comparison is not None
    assert list(report.comparison.max_abs) == ["fc", "loss", "loss/nll", "loss/regularization", *states]
    # float32 sums of up to 128 terms, and means of as many
    assert report.comparison.whole.scaled < 1e-5
    assert report.inputs == {"image": ("N", 2, 8, 8), "label": ("N",)}

    model = onnx.load(tmp_path / "m")
    first, second = nodes_of(model, "BatchNormalization")
    assert list(first.input) == ["image", "bn/gamma", "bn/beta", "bn/moving_mean", "bn/moving_variance"]
    assert list(first.output) == ["bn", "bn/moving_mean/new", "bn/moving_variance/new"]
    assert attributes(first) == {"training_mode": 1, "momentum": 0.75, "epsilon": pytest.approx(1e-3)}
    assert list(second.output)[1:] == ["rows/moving_mean/new", "rows/moving_variance/new"]
    assert [list(node.output) for node in nodes_of(model, "Dropout")] == [["drop"]]
    # ONNX's moving variance divides by the number of elements, not by one less.
    image = np.random.default_rng(1).standard_normal((4, 2, 8, 8)).astype(np.float32)
    results = open_session(tmp_path / "m").run(["bn/moving_variance/new"], {"image": image, "label": np.zeros(4, "i4")})
    old = net.states["bn/moving_variance"]
    np.testing.assert_allclose(results[0], old * 0.75 + image.var(axis=(0, 2, 3)) * 0.25, rtol=1e-5)


@pytest.mark.parametrize(
    ("layer", "together"),
    [
        ({"type": "Dropout", "rate": 0.25}, ()),
        ({"type": "SpatialDropout2D", "rate": 0.25}, (2, 3)),
        ({"type": "Dropout", "rate": 0.25, "noise_shape": [None, 1, None, None]}, (1,)),
    ],
    ids=str,
)
def test_numbers_are_dropped_as_often_and_as_much_as_in_training(layer: dict[str, Any], together: tuple[int]) -> None:
    exported_model = exported(Net.of(net_data({"name": "y", **layer}, {"name": "z", **layer})))
    # Without this option, onnxruntime removes Dropout nodes.
    session = onnxruntime.InferenceSession(
        exported_model.model.SerializeToString(),
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["EliminateDropout"],
    )
    (y,) = session.run(["z"], {"image": np.ones((500, 2, 8, 8), np.float32)})
    # (1 / 0.75)² if both layers keep the element, else 0
    assert set(np.unique(y.round(5))) == {0.0, np.float32(1.77778)}
    part = y[tuple(slice(None) if axis not in together else slice(1) for axis in range(4))]
    np.testing.assert_array_equal(y, np.broadcast_to(part, y.shape))
    # Both keep an element with probability 0.75² if they draw independently; within six standard deviations.
    assert abs((part > 0).mean() - 0.5625) < 6 * (0.5625 * 0.4375 / part.size) ** 0.5
    assert not (part == part.reshape(-1)[0]).all()
    seeds = {attributes(node)["seed"] for node in nodes_of(exported_model.model, "Dropout")}
    assert len(seeds) == 2


@pytest.mark.parametrize(
    "fields", [{}, {"axis": 1}, {"ignore_class": 2}, {"class_weight": {0: 3.0}, "reduction": "sum"}], ids=str
)
def test_cross_entropies_of_class_numbers(fields: dict[str, Any], tmp_path: Path) -> None:
    """For images and sequences, ONNX has the classes on axis 1, and class indices cannot be uint8."""
    sizes = [3, 4] if fields.get("axis") == 1 else [4, 3]
    inputs = {"image": {"shape": sizes}, "label": {"shape": [4], "dtype": "uint8"}}
    loss = {"type": "SparseCategoricalCrossentropy", "from": ["y", "label"], "from_logits": True, **fields}
    net = Net.of(net_data({"name": "y", "type": "ReLU", "from": "image"}, inputs=inputs, outputs=["y"], losses=[loss]))
    report = export_verified(
        partial(graph_of, net), net.states, tmp_path / "m", partial(computed, net),
        domains=build(net.spec, 2, training=True).builder.domains,
    )  # fmt: skip
    assert "loss" in report.outputs
    assert report.comparison is not None
    assert report.comparison.whole.scaled < 1e-5


def test_layers_without_a_training_form_are_reported() -> None:
    noisy = Net.of(
        net_data({"name": "noisy", "type": "GaussianNoise", "stddev": 1.0}, {"type": "Dropout", "rate": 0.1})
    )
    with pytest.raises(InputError) as error:
        exported(noisy)
    assert {problem.message for problem in error.value.problems} == {
        "layer `noisy` (GaussianNoise): RandomUniform has no ONNX form",
        "layer `noisy` (GaussianNoise): NormalQuantile has no ONNX form",
    }
    with pytest.raises(InputError) as error:
        exported(Net.of(net_data(NORM)), opset=13)
    (problem,) = error.value.problems
    assert problem.message == "layer `bn` (BatchNormalization) can't be written in ONNX opset 13"
    assert problem.got == "its BatchNormalization has no attribute training_mode"


def test_an_output_that_is_called_as_the_losses_are() -> None:
    data = net_data({"name": "loss", "type": "ReLU"}, losses=[{"type": "MeanSquaredError", "from": ["loss", "image"]}])
    with pytest.raises(InputError, match="an output has the name `loss`"):
        training_form(build(load_net(data), 2, training=True))


def test_it_is_read_as_the_net_that_it_is_of(tmp_path: Path) -> None:
    lines = [
        "{name: bn, type: BatchNormalization, momentum: 0.75}",
        "{name: drop, type: Dropout, rate: 0.5}",
        "{name: maps, type: SpatialDropout2D, rate: 0.25}",
        "{name: rows, type: Dropout, rate: 0.5, noise_shape: [null, 1, null, 1]}",
        "{name: kept, type: Conv2D, trainable: false, filters: 2, kernel_size: 3}",
        "{name: flat, type: Flatten}",
        "{name: fc, type: Dense, units: 3}",
    ]
    losses = [{"type": "SparseCategoricalCrossentropy", "name": "nll", "from": ["fc", "label"], "from_logits": True}]
    layers = [yaml.safe_load(line) for line in lines]
    net = Net.of(net_data(*layers, inputs=LABELS, outputs=["fc"], losses=losses))
    metadata = {
        "netspec_form": "training",
        "netspec_trainable": json.dumps(["bn/gamma", "bn/beta", "fc/kernel", "fc/bias"]),
    }
    onnx.save(exported(net, metadata=metadata).model, tmp_path / "m.onnx")
    imported = import_onnx(tmp_path / "m.onnx")
    assert [line.strip().removeprefix("- ") for line in imported.net.splitlines() if "type:" in line] == lines
    assert list(yaml.safe_load(imported.net)["inputs"]) == ["image"]
    reread = Net.of(yaml.safe_load(imported.net), imported.arrays)
    image = np.random.default_rng(2).normal(size=(3, 2, 8, 8)).astype("float32")
    np.testing.assert_allclose(reread.predict({"image": image})["fc"], net.predict({"image": image})["fc"], atol=1e-5)
