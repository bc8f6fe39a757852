"""BitCast: the bits of elements, read as another type."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.onnx_map import OnnxExpansion
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.types import DType, TensorType


@dataclass(frozen=True)
class BitCast(NoGradient):
    """The bits of the elements, read as another type of the same size."""

    dtype: DType
    onnx = OnnxExpansion(lambda g, y, x: g.node("BitCast", x, to=y.op.dtype))

    def infer(self, x: TensorType) -> TensorType:
        self.check(
            x.dtype.itemsize == self.dtype.itemsize,
            f"the bits of {x.dtype} cannot be read as {self.dtype}",
            expected=f"a type of {8 * x.dtype.itemsize} bits",
            got=self.dtype,
        )
        return x.with_dtype(self.dtype)

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.ascontiguousarray(x).view(str(self.dtype))

    def flops(self, x: TensorType) -> int:
        return 0
