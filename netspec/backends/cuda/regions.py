"""The greatest numbers of parts of images, and where they are: a thread for each cell of a part and channel."""

from __future__ import annotations

from typing import Any, ClassVar

from netspec.backends.cuda.launch import Launch, number, pointer, sizes
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.layers.max_regions import MaxRoiPlaces, MaxRoiPool
from netspec.layers.roi_maxima import FURTHEST, Cells

# Corners are rounded away from 0; a cell's pixels begin and end as those of `_cells` do.
BODY = """
UNITS(unit, count) {
    const Index column = unit % WIDTH, row = unit / WIDTH % HEIGHT, c = unit / (WIDTH * HEIGHT) % channels;
    const Index part = unit / (WIDTH * HEIGHT) / channels, sample = part / parts;
    int64 corners[4];
    for (int k = 0; k < 4; ++k) {
        const NUMBER at = rois[part * 4 + k] * scale;
        const NUMBER near = at < -FURTHEST ? (NUMBER)-FURTHEST : at > FURTHEST ? (NUMBER)FURTHEST : at;
        const NUMBER size = near != near ? (NUMBER)0 : floor_NUMBER((near < 0 ? -near : near) + (NUMBER)0.5);
        corners[k] = near < 0 ? -(int64)size : (int64)size;
    }
    int64 down = corners[3] - corners[1] + 1, along = corners[2] - corners[0] + 1;
    down = down < 1 ? 1 : down;
    along = along < 1 ? 1 : along;
    const int64 top = within(corners[1] + row * down / HEIGHT, high);
    const int64 bottom = within(corners[1] + ((row + 1) * down + HEIGHT - 1) / HEIGHT, high);
    const int64 left = within(corners[0] + column * along / WIDTH, wide);
    const int64 right = within(corners[0] + ((column + 1) * along + WIDTH - 1) / WIDTH, wide);
    const int64 image = images[part] < 0 ? images[part] + several : images[part];
    const NUMBER *plane = x + ((sample * several + image) * channels + c) * high * wide;
    int64 place = -1;
    NUMBER most = 0;
    if (image >= 0 && image < several) {
        for (int64 i = top; i < bottom; ++i)
        for (int64 j = left; j < right; ++j) {
            const NUMBER one = plane[i * wide + j];
            if (place >= 0 && !(one > most || (one != one && most == most))) continue;
            most = one;
            place = (image * high + i) * wide + j;
        }
    }
    y[unit] = RESULT;
}
"""


class CellsKernel(Kernel):
    """Base of both; all lies plain."""

    result: ClassVar[str]
    """What is written of a cell."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        x, rois, _ = types
        return None if x.dtype == rois.dtype and x.dtype.is_float else f"parts of {x.dtype} told in {rois.dtype}"

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x, rois, images), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, Cells)
        assert y is not None
        kind = DType(str(x.dtype))
        words = {
            "RESULT": self.result, "FURTHEST": str(FURTHEST), "NUMBER": str(kind), "WIDTH": str(op.width),
            "HEIGHT": str(op.height),
        }  # fmt: skip
        body = BODY
        for word, meaning in words.items():
            body = body.replace(word, meaning)
        _, several, channels, high, wide = x.shape
        parameters = [
            pointer("x", x), pointer("rois", rois), pointer("images", images), pointer("y", y, written=True),
            number("scale", op.spatial_scale, kind),
            *sizes(
                max(x.size, y.size), count=y.size, several=several, channels=channels, high=high, wide=wide,
                parts=images.shape[1],
            ),
        ]  # fmt: skip
        return Launch(parameters, body, y.size).bind()


@kernel(MaxRoiPlaces, backend="cuda", rank=5)
class MaxRoiPlacesKernel(CellsKernel):
    """The first of equal ones; -1 of empty cells."""

    result: ClassVar = "place"


@kernel(MaxRoiPool, backend="cuda", rank=5)
class MaxRoiPoolKernel(CellsKernel):
    """0 of empty cells."""

    result: ClassVar = "most"
