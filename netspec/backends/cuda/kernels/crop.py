"""Crop uint8 images, optionally flipped."""

from __future__ import annotations

from typing import Any

from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.crop import CropAndFlip
from netspec.graph.types import TensorType
from netspec.graph.value import Node

CROP = """
UNITS(unit, count) {
    const Index column = unit % width, row = unit / width % height, image = unit / width / height;
    const int32 *origin = origins + image / channels * 4;
    const Index y0 = origin[0] + (origin[2] ? height - 1 - row : row);
    const Index x0 = origin[1] + (origin[3] ? width - 1 - column : column);
    const bool inside = y0 >= 0 && y0 < rows && x0 >= 0 && x0 < columns;
    y[unit] = inside ? x[(image * rows + y0) * columns + x0] : (uint8)fill;
}
"""


@kernel(CropAndFlip, backend="cuda", rank=5)
class CropAndFlipKernel(Kernel):
    """Each thread copies a byte of the result at a time."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        return None

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, origins), (y,), op = buffers.inputs, buffers.outputs, node.op
        assert isinstance(op, CropAndFlip)
        assert y is not None
        _, channels, rows, columns = node.inputs[0].shape
        parameters = [
            pointer("x", x), pointer("origins", origins), pointer("y", y, written=True),
            *sizes(max(x.size, y.size), count=y.size, channels=channels, rows=rows, columns=columns, height=op.height,
                   width=op.width, fill=op.fill),
        ]  # fmt: skip
        return Launch(parameters, CROP, y.size).bind()
