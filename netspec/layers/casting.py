"""Cast: the same numbers in another element type; BitCast: the same bits as numbers of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from netspec.graph.onnx_map import OnnxExpansion
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.ops.elementwise import cast
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import need
from netspec.schema.kinds import LAYERS
from netspec.schema.net import InputDType


@LAYERS.register
class Cast(LayerSpec):
    """Give the numbers another element type; what is behind the point is cut off where they become whole.

    Input and output have the same shape. Layers that compute take whole numbers as floats by themselves.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"to": "`to` is ONNX's name: here it is `dtype`"}
    alike: ClassVar[tuple[str, ...]] = ("Activation",)

    passes_mask: ClassVar = True

    type: Literal["Cast"] = "Cast"
    dtype: InputDType
    """the element type; `float32` follows the precision the net is compiled for"""

    samples: ClassVar = (
        Sample.of((2, 3), dtype="float32", dtypes=("uint8",)),
        Sample.of((2, 3), dtype="int32"),
        Sample.of((2, 3), dtype="float32", dtypes=("bool",)),
        Sample.of((2, 3), dtype="bool"),
        Sample.of((2, 3), dtype="int8", dtypes=("int16",)),
        Sample.of((2, 3), dtype="float32", dtypes=("uint16",)),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x → the same numbers, same shape."""
        return cast(x, net.dtype if self.dtype == "float32" else DType(self.dtype))


@dataclass(frozen=True)
class BitCastBits(NoGradient):
    """The same bits read as numbers of another type of as many bits."""

    dtype: DType
    onnx = OnnxExpansion(lambda g, y, x: g.node("BitCast", x, to=y.op.dtype))

    def infer(self, x: TensorType) -> TensorType:
        self.check(
            x.dtype.itemsize == self.dtype.itemsize,
            f"{self.dtype} has other bits than {x.dtype}",
            expected=f"a type of {x.dtype.itemsize} bytes",
            got=self.dtype,
        )
        return x.with_dtype(self.dtype)

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.ascontiguousarray(x).view(str(self.dtype))

    def flops(self, x: TensorType) -> int:
        return 0


Bits: TypeAlias = Literal["float32", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@LAYERS.register
class BitCast(LayerSpec):
    """Read the bits of numbers as numbers of another element type that has as many.

    Input and output have the same shape. Floats are those of float32, whatever precision the net is compiled for. No
    gradient comes through. https://onnx.ai/onnx/operators/onnx__BitCast.html
    """

    foreign_fields: ClassVar[dict[str, str]] = {"to": "`to` is ONNX's name: here it is `dtype`"}

    passes_mask: ClassVar = True

    type: Literal["BitCast"] = "BitCast"
    dtype: Bits
    """the element type: one of as many bytes as the input's"""

    samples: ClassVar = (
        Sample.of((2, 3), dtype="float32", dtypes=("int32",)),
        Sample.of((2, 3), dtype="int8", dtypes=("uint8",)),
        Sample.of((2, 3), dtype="uint16", dtypes=("int16",)),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x → numbers of the same bits, same shape."""
        x = cast(x, DType.FLOAT32) if x.dtype.is_float else x
        x = cast(x, DType.UINT8) if x.dtype == DType.BOOL else x
        dtype = DType(self.dtype)
        need(
            x.dtype.itemsize == dtype.itemsize,
            f"the input's numbers have other bits than those of {dtype}",
            expected=f"a type of {x.dtype.itemsize} bytes each",
            got=f"{dtype}",
        )
        made = x if x.dtype == dtype else BitCastBits(dtype)(x)
        return cast(made, net.dtype) if dtype.is_float else made
