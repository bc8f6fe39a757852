"""Random crops and flips of images, from parameters that the data loader has drawn."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.onnx_map import GRADIENT
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.types import DType, TensorType


@dataclass(frozen=True)
class CropAndFlip(NoGradient):
    """Crop and flip images of bytes: (N, C, H, W) and crops (N, 4) int32 → (N, C, height, width).

    A crop gives the first row, the first column, and whether to flip vertically and horizontally. Elements outside the
    image get the value `fill`.
    """

    height: int
    width: int
    fill: int = 0
    onnx = GRADIENT

    def infer(self, x: TensorType, places: TensorType) -> TensorType:
        self.check(x.rank == 4 and x.dtype == DType.UINT8, "parts are of images of bytes", got=x)
        fits = places == TensorType((x.shape[0], 4), DType.INT32)
        self.check(fits, "each image has a place", expected=f"int32[{x.shape[0]}, 4]", got=places)
        return x.with_shape(*x.shape[:2], self.height, self.width)

    def forward(self, xp: Xp, x: Array, places: Array) -> Array:
        along = []
        for axis, size in enumerate((self.height, self.width)):
            step, turned = xp.arange(size), places[:, 2 + axis, None] != 0
            along.append(places[:, axis, None] + xp.where(turned, size - 1 - step, step))
        rows, columns = along[0][:, None, :, None], along[1][:, None, None, :]
        high, wide = x.shape[2:]
        inside = (rows >= 0) & (rows < high) & (columns >= 0) & (columns < wide)
        images, channels = xp.arange(x.shape[0]).reshape(-1, 1, 1, 1), xp.arange(x.shape[1]).reshape(-1, 1, 1)
        taken = x[images, channels, rows.clip(0, high - 1), columns.clip(0, wide - 1)]
        return xp.where(inside, taken, self.fill).astype(x.dtype)

    def flops(self, x: TensorType, places: TensorType) -> int:
        return 0
