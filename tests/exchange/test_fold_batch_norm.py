"""BatchNormalization is folded into the layer before it with equal results, and kept if that is impossible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.exchange.fold_batch_norm import fold_batch_norm
from netspec.exchange.net_yaml_writer import Draft, DraftLayer
from netspec.schema.load import load_net
from netspec.schema.yaml.reader import parse_yaml
from tests.exchange.nets import Net

NORM = {"type": "BatchNormalization"}
IMAGE = (4, 6, 5)
TAKES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "a convolution without bias": ({"type": "Conv2D", "filters": 3, "kernel_size": 3, "use_bias": False}, {}, IMAGE),
    "a grouped convolution": ({"type": "Conv2D", "filters": 6, "kernel_size": 2, "groups": 2}, {"scale": False}, IMAGE),
    "a transposed convolution": (
        {"type": "Conv2DTranspose", "filters": 6, "kernel_size": 2, "strides": 2, "groups": 2}, {"axis": -3}, IMAGE,
    ),
    "a depthwise convolution": ({"type": "DepthwiseConv2D", "kernel_size": 2, "depth_multiplier": 2}, {}, IMAGE),
    "a separable convolution": ({"type": "SeparableConv2D", "filters": 3, "kernel_size": 2}, {"center": False}, IMAGE),
    "a convolution of a sequence": ({"type": "Conv1D", "filters": 3, "kernel_size": 3}, {"epsilon": 0.1}, (4, 6)),
    "a Dense": ({"type": "Dense", "units": 3}, {}, (4,)),
    "a Dense of a sequence": ({"type": "Dense", "units": 3, "activation": "linear"}, {"axis": -1}, (5, 4)),
}  # fmt: skip
KEPT: dict[str, list[dict[str, Any]]] = {
    "a function in between": [{"type": "Conv2D", "filters": 3, "kernel_size": 3, "activation": "relu"}, NORM],
    "channels of a Dense's steps": [{"name": "r", "type": "Reshape", "target_shape": [6, 20]},
                                    {"type": "Dense", "units": 20}, NORM],
    "two readers": [
        {"name": "c", "type": "Conv2D", "filters": 3, "kernel_size": 3}, {"name": "n", **NORM},
        {"name": "y", "type": "Add", "from": ["c", "n"]},
    ],
    "shared weights": [
        {"name": "c", "type": "Conv2D", "filters": 4, "kernel_size": 3, "padding": "same"}, {"name": "n", **NORM},
        {"name": "d", "type": "Conv2D", "filters": 4, "kernel_size": 3, "padding": "same", "share": "c"},
    ],
    "nothing before": [NORM],
}  # fmt: skip


def draft_of(shape: tuple[int, ...], *layers: dict[str, Any], **more: Any) -> tuple[Draft, Net]:
    """Return a draft with random weights, and its net."""
    draft, above = Draft("net", inputs={"x": {"shape": list(shape)}}, **more), "x"
    for number, described in enumerate(layers):
        fields = {key: value for key, value in described.items() if key not in ("name", "type", "from")}
        name = described.get("name", f"layer{number}")
        draft.layers.append(DraftLayer(name, described["type"], fields, tuple(described.get("from", [above]))))
        above = name
    states = net_of(draft).states
    for layer in draft.layers:
        prefix = f"{layer.name}/"
        layer.arrays = {name.removeprefix(prefix): state for name, state in states.items() if name.startswith(prefix)}
    return draft, net_of(draft)


def net_of(draft: Draft) -> Net:
    return Net(load_net(parse_yaml(draft.text(), "net.yaml")), draft.arrays() or None)


def folded(draft: Draft, net: Net) -> Any:
    return fold_batch_norm(draft, {name: value.shape for name, value in net.graph(1).named.items()})


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("name", TAKES)
def test_batch_norm_is_folded_into_the_layer_before(name: str, output: bool) -> None:
    before, norm, shape = TAKES[name]
    layers = [before, {"name": "norm", **NORM, **norm}, *([] if output else [{"type": "ReLU"}])]
    draft, net = draft_of(shape, *layers, outputs=["norm"] if output else [])
    draft_after = folded(draft, net)
    assert (draft_after.folded, draft_after.unfolded) == (1, ())
    assert [layer.type for layer in draft_after.draft.layers] == [
        layer["type"] for layer in layers if layer["type"] != NORM["type"]
    ]
    x = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    (expected,) = net.predict({"x": x}).values()
    ((called, actual),) = net_of(draft_after.draft).predict({"x": x}).items()
    assert called == ("norm" if output else "layer2")
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)  # float32, products in another order


@pytest.mark.parametrize("name", KEPT)
def test_batch_norm_is_kept_if_it_cannot_be_folded(name: str) -> None:
    draft, net = draft_of(IMAGE, *KEPT[name])
    draft_after = folded(draft, net)
    assert (draft_after.folded, len(draft_after.unfolded)) == (0, 1)
    assert draft_after.draft.text() == draft.text()


def test_losses_read_the_folded_layer() -> None:
    loss = {"name": "l", "type": "MeanSquaredError", "from": ["norm", "x"]}
    draft, net = draft_of((4,), {"name": "fc", "type": "Dense", "units": 4}, {"name": "norm", **NORM}, losses=[loss])
    draft_after = folded(draft, net)
    assert draft_after.draft.losses == [{**loss, "from": ["fc", "x"]}]
