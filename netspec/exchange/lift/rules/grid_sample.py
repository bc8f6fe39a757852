"""Sampling of images at computed positions: GridSample, RoiAlign and MaxRoiPool."""

from __future__ import annotations

from typing import Any

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples

MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Interpolation modes by their names in opset 16."""


@rule("GridSample")
def grid_sample(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name."""
    mode = MODES.get(node.attributes["mode"], node.attributes["mode"])
    fields: dict[str, Any] = {} if mode == "linear" else {"mode": mode}
    if node.attributes["padding_mode"] != "zeros":
        fields["padding_mode"] = node.attributes["padding_mode"]
    if node.attributes["align_corners"]:
        fields["align_corners"] = True
    if ctx.tensors.single_sample and ctx.tensors.shape(node.inputs[0])[0] > 1:
        ctx.layers.add(node, "GridSample", node.inputs, fields)
    else:
        ctx.reshaping.add_per_sample(node, "GridSample", node.inputs, fields)


@rule("RoiAlign")
def roi_align(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name, of a whole model: parts are not as many as images."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("it cuts any number of parts out of each sample")
    attributes = node.attributes
    fields: dict[str, Any] = {"height": attributes["output_height"], "width": attributes["output_width"]}
    fields = {name: size for name, size in fields.items() if size != 1}
    if attributes["sampling_ratio"] != 2:
        fields["sampling_ratio"] = max(0, attributes["sampling_ratio"])
    if attributes["spatial_scale"] != 1.0:
        fields["spatial_scale"] = attributes["spatial_scale"]
    if attributes["mode"] != "avg":
        fields["mode"] = attributes["mode"]
    if attributes.get("coordinate_transformation_mode", "output_half_pixel") != "half_pixel":
        fields["aligned"] = False
    ctx.layers.add(node, "RoiAlign", node.inputs, fields)


@rule("MaxRoiPool")
def max_roi_pool(ctx: LiftContext, node: OperatorNode) -> None:
    """MaxRoiPooling2D, of a whole model; parts (R, 5) begin with the number of their image."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("it cuts any number of parts out of each sample")
    (x, parts), (height, width) = node.inputs, node.attributes["pooled_shape"]
    corners, first, images, pooled = (ctx.tensors.fresh_name(parts) for _ in range(4))
    ctx.layers.add(node, "Slice", [parts], {"axis": 2, "start": 1}, outputs=[corners])
    ctx.layers.add(node, "Slice", [parts], {"axis": 2, "stop": 1}, outputs=[first])
    ctx.layers.add(node, "Squeeze", [first], {"axis": 2}, outputs=[images])
    ctx.layers.add(node, "Cast", [images], {"dtype": "int64"}, outputs=[pooled])
    fields: dict[str, Any] = {name: size for name, size in (("height", height), ("width", width)) if size != 1}
    if node.attributes["spatial_scale"] != 1.0:
        fields["spatial_scale"] = node.attributes["spatial_scale"]
    ctx.layers.add(node, "MaxRoiPooling2D", [x, corners, pooled], fields)
