"""Sampling of images at computed positions: GridSample, RoiAlign and MaxRoiPool."""

from __future__ import annotations

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.registry import rule
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples

MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Interpolation modes by their names in opset 16."""


@rule("GridSample")
def grid_sample(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name."""
    fields = {
        "mode": MODES.get(node.attributes["mode"], node.attributes["mode"]),
        "padding_mode": node.attributes["padding_mode"],
        "align_corners": bool(node.attributes["align_corners"]),
    }
    if ctx.tensors.single_sample and ctx.tensors.shape(node.inputs[0])[0] > 1:
        ctx.layers.add(node, "GridSample", node.inputs, fields)
    else:
        ctx.reshaping.add_per_sample(node, "GridSample", node.inputs, fields)


@rule("RoiAlign")
def roi_align(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name, if the model is one sample: the number of regions differs from that of images."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("its number of regions (RoIs) differs from the number of images")
    attributes = node.attributes
    fields = {
        "height": attributes["output_height"],
        "width": attributes["output_width"],
        "sampling_ratio": max(0, attributes["sampling_ratio"]),
        "spatial_scale": attributes["spatial_scale"],
        "mode": attributes["mode"],
        "aligned": attributes.get("coordinate_transformation_mode") == "half_pixel",
    }
    ctx.layers.add(node, "RoiAlign", node.inputs, fields)


@rule("MaxRoiPool")
def max_roi_pool(ctx: LiftContext, node: OperatorNode) -> None:
    """MaxRoiPooling2D, if the model is one sample. Regions (R, 5) begin with the index of their image."""
    if not ctx.tensors.single_sample:
        raise MixesSamples("its number of regions (RoIs) differs from the number of images")
    (x, parts), (height, width) = node.inputs, node.attributes["pooled_shape"]
    corners, first, images, pooled = (ctx.tensors.fresh_name(parts) for _ in range(4))
    ctx.layers.add(node, "Slice", [parts], {"axis": 2, "start": 1}, outputs=[corners])
    ctx.layers.add(node, "Slice", [parts], {"axis": 2, "stop": 1}, outputs=[first])
    ctx.layers.add(node, "Squeeze", [first], {"axis": 2}, outputs=[images])
    ctx.layers.add(node, "Cast", [images], {"dtype": "int64"}, outputs=[pooled])
    fields = {"height": height, "width": width, "spatial_scale": node.attributes["spatial_scale"]}
    ctx.layers.add(node, "MaxRoiPooling2D", [x, corners, pooled], fields)
