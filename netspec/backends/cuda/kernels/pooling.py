"""Pooling with one to three spatial axes; missing axes have size 1.

Images are channels-last, so that adjacent threads handle adjacent channels of a position. For gradients, each thread
handles a position of the input and adds up the windows that contain it in order: no atomic operations, and
bit-identical results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.cuda.windows import AXES, extents, geometry, of_three
from netspec.graph.kernel import Buffers, Kernel, LowPrecision, Thunk, kernel
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.ops.pooling import AveragePool, AveragePoolGrad, MaxPool, MaxPoolGather, MaxPoolGrad, MaxPoolIndices
from netspec.graph.types import TensorType
from netspec.graph.value import Node

INSIDE = "d >= 0 && h >= 0 && w >= 0 && d < size_d && h < size_h && w < size_w"
ELEMENT = "(((n * size_d + d) * size_h + h) * size_w + w) * channels + c"
OVER_WINDOW = """
for (int e = 0; e < KERNEL_D; ++e)
for (int k = 0; k < KERNEL_H; ++k)
for (int l = 0; l < KERNEL_W; ++l) {
    const Index d = o * STRIDE_D - PAD_D + e * DILATION_D, h = i * STRIDE_H - PAD_H + k * DILATION_H;
    const Index w = j * STRIDE_W - PAD_W + l * DILATION_W;
"""
"""Loop over the window at (o, i, j)."""
WINDOWS = """
UNITS(unit, count) {
    const Index c = unit % channels, j = unit / channels % out_w, i = unit / channels / out_w % out_h;
    const Index o = unit / channels / out_w / out_h % out_d, n = unit / channels / out_w / out_h / out_d;
"""
OVER_OWNERS = """
UNITS(unit, count) {
    const Index c = unit % channels, w = unit / channels % size_w, h = unit / channels / size_w % size_h;
    const Index d = unit / channels / size_w / size_h % size_d, n = unit / channels / size_w / size_h / size_d;
    NUMBER total = 0;
    for (int e = 0; e < KERNEL_D; ++e)
    for (int k = 0; k < KERNEL_H; ++k)
    for (int l = 0; l < KERNEL_W; ++l) {
        const Index front = d + PAD_D - e * DILATION_D, top = h + PAD_H - k * DILATION_H;
        const Index left = w + PAD_W - l * DILATION_W;
        if (front < 0 || top < 0 || left < 0 || front % STRIDE_D || top % STRIDE_H || left % STRIDE_W) continue;
        const Index o = front / STRIDE_D, i = top / STRIDE_H, j = left / STRIDE_W;
        if (o >= out_d || i >= out_h || j >= out_w) continue;
        const Index at = (((n * out_d + o) * out_h + i) * out_w + j) * channels + c;
"""
"""Loop over the windows that contain an input position, at (o, i, j)."""
GREATEST = f"""{WINDOWS}
    NUMBER most = -INFINITY;
    int offset = 0;
    {OVER_WINDOW}
        if (!({INSIDE})) continue;
        const NUMBER v = load(x[{ELEMENT}]);
        offset = v > most ? (e * KERNEL_H + k) * KERNEL_W + l : offset;
        most = v > most || v != v ? v : most;
    }}
"""
"""The maximum of a window and its index; NaN is greater than all."""
MAX = f"""{GREATEST}    STORES
}}
"""
MAX_GRAD = f"""{OVER_OWNERS}
        if (index[at] == (e * KERNEL_H + k) * KERNEL_W + l) total += load(dy[at]);
    }}
    store(dx[unit], total);
}}
"""
INDICES = f"""{GREATEST}    const int64 d = o * STRIDE_D - PAD_D + offset / (KERNEL_H * KERNEL_W) * DILATION_D;
    const int64 h = i * STRIDE_H - PAD_H + offset / KERNEL_W % KERNEL_H * DILATION_H;
    y[unit] = (d * size_h + h) * size_w + j * STRIDE_W - PAD_W + offset % KERNEL_W * DILATION_W;
}}
"""
GATHER = f"""{WINDOWS}
    const int offset = index[unit], e = offset / (KERNEL_H * KERNEL_W), k = offset / KERNEL_W % KERNEL_H;
    const int l = offset % KERNEL_W;
    const Index d = o * STRIDE_D - PAD_D + e * DILATION_D, h = i * STRIDE_H - PAD_H + k * DILATION_H;
    const Index w = j * STRIDE_W - PAD_W + l * DILATION_W;
    if ({INSIDE}) store(y[unit], load(x[{ELEMENT}]));
    else store(y[unit], (NUMBER)0);
}}
"""
COUNTED = " && ".join(f"{at} >= -BEFORE_{axis.upper()} && {at} < size_{axis} + AFTER_{axis.upper()}"
                      for axis, at in zip(AXES, "dhw", strict=True))  # fmt: skip
AVERAGE = f"""{WINDOWS}
    NUMBER total = 0;
    int counted = 0;
    {OVER_WINDOW}
        counted += {COUNTED};
        if ({INSIDE}) total += load(x[{ELEMENT}]);
    }}
    store(y[unit], total / counted);
}}
"""
OWN = "\n".join(
    f"counted *= positions_between({at} * STRIDE_{axis} - PAD_{axis}, KERNEL_{axis}, DILATION_{axis}, "
    f"-BEFORE_{axis}, size_{axis.lower()} + AFTER_{axis});"
    for axis, at in zip("DHW", "oij", strict=True)
)
AVERAGE_GRAD = f"""{OVER_OWNERS}
        int counted = 1;
        {OWN}
        total += load(dy[at]) / counted;
    }}
    store(dx[unit], total);
}}
"""


def _replacements(node: Node) -> dict[str, object]:
    """Geometry as compile-time constants in a body."""
    op: Any = node.op
    counted = of_three(getattr(op, "counted_pads", ()), (0, 0))
    numbers = geometry(op.window) | dict(zip(("BEFORE", "AFTER"), zip(*counted, strict=True), strict=True))
    constants: dict[str, object] = {"NUMBER": node.inputs[0].dtype}
    for word, values in numbers.items():
        constants |= {f"{word}_{axis.upper()}": value for axis, value in zip(AXES, values, strict=True)}
    return constants


def bound(node: Node, body: str, arrays: dict[str, Any], results: Sequence[str], large: Any, small: Any) -> Thunk:
    """A call of a body; `large` is an array over input positions, `small` one over windows."""
    spatial = extents("size", large.shape[2:]) | extents("out", small.shape[2:])
    units = arrays[results[0]].size
    parameters = [
        *(pointer(name, array, written=name in results) for name, array in arrays.items()),
        *sizes(max(large.size, small.size), count=units, channels=large.shape[1], **spatial),
    ]
    return Launch(parameters, body, units, replacements=_replacements(node)).bind()


class Pooling(Kernel):
    """Base class: all arrays are channels-last."""

    low_precision = LowPrecision.ALL

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        if not types[0].dtype.is_float:
            return f"no windows of {types[0].dtype}"
        return None if len(op.window.size) <= len(AXES) else f"{len(op.window.size)} spatial axes"

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(node.inputs[0].type.rank)
        return LayoutSignature((last,) * len(offered), (last,) * len(node.outputs))


@kernel(MaxPool, backend="cuda", rank=5)
class MaxPoolKernel(Pooling):
    """Maxima and their indices; ties go to the first element, and NaN wins."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y, index) = buffers.inputs, buffers.outputs
        results = {name: array for name, array in (("y", y), ("index", index)) if array is not None}
        stores = {"y": "store(y[unit], most);", "index": "index[unit] = offset;"}
        body = MAX.replace("STORES", " ".join(stores[name] for name in results))
        return bound(node, body, {"x": x, **results}, list(results), x, next(iter(results.values())))


@kernel(MaxPoolIndices, backend="cuda", rank=5)
class MaxPoolIndicesKernel(Pooling):
    """Indices of maxima within the image."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,) = buffers.inputs, buffers.outputs
        return bound(node, INDICES, {"x": x, "y": y}, ["y"], x, y)


@kernel(MaxPoolGrad, backend="cuda", rank=5)
class MaxPoolGradKernel(Pooling):
    """For each position, the sum of the gradients of the windows whose maximum is there."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (dy, index), (dx,) = buffers.inputs, buffers.outputs
        return bound(node, MAX_GRAD, {"dy": dy, "index": index, "dx": dx}, ["dx"], dx, dy)


@kernel(MaxPoolGather, backend="cuda", rank=5)
class MaxPoolGatherKernel(Pooling):
    """Elements at the positions of the maxima."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, index), (y,) = buffers.inputs, buffers.outputs
        return bound(node, GATHER, {"x": x, "index": index, "y": y}, ["y"], x, y)


@kernel(AveragePool, backend="cuda", rank=5)
class AveragePoolKernel(Pooling):
    """Means of windows."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,) = buffers.inputs, buffers.outputs
        return bound(node, AVERAGE, {"x": x, "y": y}, ["y"], x, y)


@kernel(AveragePoolGrad, backend="cuda", rank=5)
class AveragePoolGradKernel(Pooling):
    """For each position, the sum of the gradients of the windows that contain it, divided by their counts."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (dy,), (dx,) = buffers.inputs, buffers.outputs
        return bound(node, AVERAGE_GRAD, {"dy": dy, "dx": dx}, ["dx"], dx, dy)
