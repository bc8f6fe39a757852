"""Random crops and flips of images, with positions drawn by the data loader."""

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

    def infer(self, x: TensorType, crops: TensorType) -> TensorType:
        self.check(x.rank == 4 and x.dtype == DType.UINT8, "only images of bytes (N, C, H, W) can be cropped", got=x)
        fits = crops == TensorType((x.shape[0], 4), DType.INT32)
        self.check(fits, "each image needs one crop", expected=f"int32[{x.shape[0]}, 4]", got=crops)
        return x.with_shape(*x.shape[:2], self.height, self.width)

    def forward(self, xp: Xp, x: Array, crops: Array) -> Array:
        coordinates = []
        for axis, size in enumerate((self.height, self.width)):
            step, flipped = xp.arange(size), crops[:, 2 + axis, None] != 0
            coordinates.append(crops[:, axis, None] + xp.where(flipped, size - 1 - step, step))
        rows, columns = coordinates[0][:, None, :, None], coordinates[1][:, None, None, :]
        image_height, image_width = x.shape[2:]
        inside = (rows >= 0) & (rows < image_height) & (columns >= 0) & (columns < image_width)
        images, channels = xp.arange(x.shape[0]).reshape(-1, 1, 1, 1), xp.arange(x.shape[1]).reshape(-1, 1, 1)
        cropped = x[images, channels, rows.clip(0, image_height - 1), columns.clip(0, image_width - 1)]
        return xp.where(inside, cropped, self.fill).astype(x.dtype)

    def flops(self, x: TensorType, crops: TensorType) -> int:
        return 0
