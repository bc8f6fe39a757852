"""Elements between places of images: GridSample and RoiAlign."""

from __future__ import annotations

from typing import Any

from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule

MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""As opset 16 calls them."""


@rule("GridSample")
def grid_sample(net: Translator, node: Node) -> None:
    """The layer of the same name."""
    if net.whole:
        raise Unsupported("it looks at places of images that are no batch")
    mode = MODES.get(node.attributes["mode"], node.attributes["mode"])
    fields: dict[str, Any] = {} if mode == "linear" else {"mode": mode}
    if node.attributes["padding_mode"] != "zeros":
        fields["padding_mode"] = node.attributes["padding_mode"]
    if node.attributes["align_corners"]:
        fields["align_corners"] = True
    net.add(node, "GridSample", node.inputs, fields)


@rule("RoiAlign")
def roi_align(net: Translator, node: Node) -> None:
    """The layer of the same name, of a whole model: parts are not as many as images."""
    if not net.whole:
        raise Mixed("it cuts any number of parts out of each sample")
    said = node.attributes
    if said["sampling_ratio"] < 1:
        raise Unsupported("how many places it looks at depends on the sizes of the parts (`sampling_ratio` 0)")
    fields: dict[str, Any] = {"height": said["output_height"], "width": said["output_width"]}
    fields = {name: size for name, size in fields.items() if size != 1}
    if said["sampling_ratio"] != 2:
        fields["sampling_ratio"] = said["sampling_ratio"]
    if said["spatial_scale"] != 1.0:
        fields["spatial_scale"] = said["spatial_scale"]
    if said["mode"] != "avg":
        fields["mode"] = said["mode"]
    if said.get("coordinate_transformation_mode", "output_half_pixel") != "half_pixel":
        fields["aligned"] = False
    net.add(node, "RoiAlign", node.inputs, fields)
