"""Pooling, SPP and LRN: what is made of the numbers around each place."""

from __future__ import annotations

from typing import Any

from netspec.exchange.caffe.registry import Unsupported, rule
from netspec.exchange.caffe.rules.weighted import plain
from netspec.exchange.caffe.translate import Translator
from netspec.exchange.caffe.wiring import Node, Ref

GLOBAL = {"MAX": "GlobalMaxPooling2D", "AVE": "GlobalAveragePooling2D"}
SLIDING = {"MAX": "MaxPooling2D", "AVE": "AveragePooling2D", "STOCHASTIC": "StochasticPooling2D"}


@rule("Pooling")
def pooling(net: Translator, node: Node) -> None:
    """Sizes are rounded up, and the padding of averages counts as zeros, as Caffe has it."""
    path = "pooling_param"
    given, x = node.layer[path], net.read(node)
    if len(node.layer["top"]) > 1 and net.is_read(Ref(node.key, 1, node.layer["top"][1])):
        raise Unsupported("the places of the maxima are read", "top")
    kind = given["pool"]
    if given["global_pooling"]:
        if kind not in GLOBAL:
            raise Unsupported("stochastic pooling of all places", f"{path}.pool")
        net.give(node, net.one(node, GLOBAL[kind], [x], {"keepdims": True}))
        return
    size = _pair(node, "kernel_size", "kernel")
    strides = _pair(node, "stride", "stride")
    pads = _pair(node, "pad", "pad")
    if min(size) < 1 or min(strides) < 1:
        raise Unsupported("it has no `kernel_size`" if min(size) < 1 else "its `stride` is 0", path)
    fields: dict[str, Any] = {"pool_size": plain(size)}
    if strides != size:
        fields["strides"] = plain(strides)
    if any(pads):
        fields["padding"] = plain(pads)
        if kind == "AVE":
            fields["count_include_pad"] = True
    if given["round_mode"] == "CEIL" and strides != (1, 1):
        fields["ceil_mode"] = True
    net.give(node, net.one(node, SLIDING[kind], [x], fields))


def _pair(node: Node, name: str, short: str) -> tuple[int, int]:
    """Height and width of one of the sizes."""
    given = node.layer["pooling_param"]
    high, wide = f"{short}_h", f"{short}_w"
    if high in given or wide in given:
        if name in given:
            raise Unsupported(f"`{name}` and `{high if high in given else wide}` are given", f"pooling_param.{name}")
        return given[high], given[wide]
    return given[name], given[name]


@rule("SPP")
def pyramid(net: Translator, node: Node) -> None:
    """SpatialPyramidPooling."""
    given = node.layer["spp_param"]
    if given["pool"] == "STOCHASTIC":
        raise Unsupported("stochastic pooling in a pyramid", "spp_param.pool")
    fields = {"levels": given["pyramid_height"], "pool": "max" if given["pool"] == "MAX" else "average"}
    net.give(node, net.one(node, "SpatialPyramidPooling", [net.read(node)], fields))


@rule("LRN")
def local_response(net: Translator, node: Node) -> None:
    """LocalResponseNormalization. Within a channel Caffe adds 1, whatever `k` says."""
    given = node.layer["lrn_param"]
    across = given["norm_region"] == "ACROSS_CHANNELS"
    fields = {
        "size": given["local_size"],
        "alpha": given["alpha"],
        "beta": given["beta"],
        "k": given["k"] if across else 1.0,
        "region": "across_channels" if across else "within_channel",
    }
    net.give(node, net.one(node, "LocalResponseNormalization", [net.read(node)], fields))
