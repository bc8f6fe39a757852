"""Im2col: the patches under a window, one channel for each place of it."""

from __future__ import annotations

from itertools import product

from netspec.exchange.caffe.registry import Unsupported, rule
from netspec.exchange.caffe.rules.weighted import plain, sizes_of
from netspec.exchange.caffe.translate import Translator
from netspec.exchange.caffe.wiring import Node

MOST_PLACES = 64
"""Of a window: each is a layer or three."""


@rule("Im2col")
def patches(net: Translator, node: Node) -> None:
    """(N, C, H, W) → (N, C · places, OH, OW): what lies at each place of the window, cut out and joined again."""
    path = "convolution_param"
    given, x = node.layer[path], net.read(node)
    if len(x.shape) != 4 or net.axis(node, f"{path}.axis", len(x.shape), given["axis"]) != 1:
        raise Unsupported("its input is no image (N, C, H, W)", f"{path}.axis")
    size = sizes_of(given, path, "kernel_size", "kernel", 2, None)
    strides = sizes_of(given, path, "stride", "stride", 2, 1)
    pads = sizes_of(given, path, "pad", "pad", 2, 0)
    dilation = sizes_of(given, path, "dilation", "", 2, 1)
    if size[0] * size[1] > MOST_PLACES:
        raise Unsupported(f"a window of {size[0]} × {size[1]} places: at most {MOST_PLACES} are cut out", path)
    if any(pads):
        x = net.one(node, "ZeroPadding2D", [x], {"padding": plain(pads)}, part="padded")
    counts = [
        (length - (window - 1) * gap - 1) // stride + 1
        for length, window, gap, stride in zip(x.shape[2:], size, dilation, strides, strict=True)
    ]
    if min(counts) < 1:
        raise Unsupported(f"its window is larger than its input, {list(x.shape[2:])}", path)
    channels, parts = x.shape[1], []
    for place in product(*map(range, size)):
        one, name = x, "_".join(map(str, place))
        for axis, (at, count, gap, stride) in enumerate(zip(place, counts, dilation, strides, strict=True)):
            fields = {"axis": 2 + axis, "start": at * gap, "stop": at * gap + (count - 1) * stride + 1, "step": stride}
            one = net.one(node, "Slice", [one], fields, part=f"{'rows' if axis == 0 else 'at'}_{name}")
        parts.append(net.one(node, "ExpandDims", [one], {"axis": 2}, part=f"part_{name}"))
    joined = net.one(node, "Concatenate", parts, {"axis": 2}, part="parts") if len(parts) > 1 else parts[0]
    shape = [channels * len(parts), *counts]
    net.give(node, net.one(node, "Reshape", [joined], {"target_shape": shape}))
