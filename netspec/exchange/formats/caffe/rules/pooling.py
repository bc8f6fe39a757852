"""Pooling, SPP and LRN."""

from __future__ import annotations

from typing import Any

from netspec.exchange.formats.caffe.importer import CaffeImporter, rule
from netspec.exchange.formats.caffe.rules.weighted import plain
from netspec.exchange.formats.caffe.wiring import CaffeNode, ValueRef
from netspec.exchange.unsupported import UnsupportedFeature

GLOBAL = {"MAX": "GlobalMaxPooling2D", "AVE": "GlobalAveragePooling2D"}
SLIDING = {"MAX": "MaxPooling2D", "AVE": "AveragePooling2D", "STOCHASTIC": "StochasticPooling2D"}


@rule("Pooling")
def pooling(importer: CaffeImporter, node: CaffeNode) -> None:
    """Pooling, with sizes rounded up and averages that include padding, as in Caffe."""
    path = "pooling_param"
    param, x = node.layer[path], importer.read(node)
    if len(node.layer["top"]) > 1 and importer.is_read(ValueRef(node.key, 1, node.layer["top"][1])):
        raise UnsupportedFeature("its second top, the indices of the maxima, is used", field="top")
    kind = param["pool"]
    if param["global_pooling"]:
        if kind not in GLOBAL:
            raise UnsupportedFeature("global stochastic pooling is not supported", field=f"{path}.pool")
        importer.set_top(node, importer.add(node, GLOBAL[kind], [x], {"keepdims": True}))
        return
    size = _pair(node, "kernel_size", "kernel")
    strides = _pair(node, "stride", "stride")
    pads = _pair(node, "pad", "pad")
    if min(size) < 1 or min(strides) < 1:
        raise UnsupportedFeature(
            "`kernel_size` is missing or 0" if min(size) < 1 else "`stride` must be ≥ 1, got 0", field=path
        )
    fields: dict[str, Any] = {"pool_size": plain(size)}
    if strides != size:
        fields["strides"] = plain(strides)
    if any(pads):
        fields["padding"] = plain(pads)
        if kind == "AVE":
            fields["count_include_pad"] = True
    if param["round_mode"] == "CEIL" and strides != (1, 1):
        fields["ceil_mode"] = True
    importer.set_top(node, importer.add(node, SLIDING[kind], [x], fields))


def _pair(node: CaffeNode, name: str, short: str) -> tuple[int, int]:
    """Height and width of one of the fields."""
    param = node.layer["pooling_param"]
    high, wide = f"{short}_h", f"{short}_w"
    if high in param or wide in param:
        if name in param:
            raise UnsupportedFeature(
                f"`{name}` and `{high if high in param else wide}` are both given", field=f"pooling_param.{name}"
            )
        return param[high], param[wide]
    return param[name], param[name]


@rule("SPP")
def pyramid(importer: CaffeImporter, node: CaffeNode) -> None:
    """SpatialPyramidPooling."""
    param = node.layer["spp_param"]
    if param["pool"] == "STOCHASTIC":
        raise UnsupportedFeature("stochastic pooling is not supported in SPP", field="spp_param.pool")
    fields = {"levels": param["pyramid_height"], "pool": "max" if param["pool"] == "MAX" else "average"}
    importer.set_top(node, importer.add(node, "SpatialPyramidPooling", [importer.read(node)], fields))


@rule("LRN")
def local_response(importer: CaffeImporter, node: CaffeNode) -> None:
    """LocalResponseNormalization. Within a channel Caffe uses a `k` of 1, whatever the field is."""
    param = node.layer["lrn_param"]
    if param["local_size"] % 2 == 0:
        raise UnsupportedFeature(f"`local_size` must be odd, got {param['local_size']}", field="lrn_param.local_size")
    across = param["norm_region"] == "ACROSS_CHANNELS"
    fields = {
        "size": param["local_size"],
        "alpha": param["alpha"],
        "beta": param["beta"],
        "k": param["k"] if across else 1.0,
        "region": "across_channels" if across else "within_channel",
    }
    importer.set_top(node, importer.add(node, "LocalResponseNormalization", [importer.read(node)], fields))
