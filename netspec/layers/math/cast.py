"""Cast converts elements to another type; BitCast reads their bits as another type."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from netspec.graph.ops import bitcast
from netspec.graph.ops.elementwise import cast
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.net import InputDType


@LAYERS.register
class Cast(LayerSpec):
    """Convert elements to another type; a fraction is cut off in the conversion to integers.

    Input and output have the same shape. Layers that compute convert integers to floats themselves.
    """

    foreign_fields: ClassVar[dict[str, str]] = {"to": "`to` is ONNX's name: use `dtype`"}
    onnx_equivalents: ClassVar[tuple[str, ...]] = ("Activation",)

    passes_mask: ClassVar = True

    type: Literal["Cast"] = "Cast"
    dtype: InputDType
    """The element type; `float32` follows the precision the net is compiled for."""

    samples: ClassVar = (
        Sample.of((2, 3), dtype="float32", dtypes=("uint8",)),
        Sample.of((2, 3), dtype="int32"),
        Sample.of((2, 3), dtype="float32", dtypes=("bool",)),
        Sample.of((2, 3), dtype="bool"),
        Sample.of((2, 3), dtype="int8", dtypes=("int16",)),
        Sample.of((2, 3), dtype="float32", dtypes=("uint16",)),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x → converted elements, same shape."""
        return cast(x, builder.dtype if self.dtype == "float32" else DType(self.dtype))


Bits: TypeAlias = Literal["float32", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@LAYERS.register
class BitCast(LayerSpec):
    """Reinterpret the bits of elements as another type of the same size.

    Input and output have the same shape. Floats are float32, whatever precision the net is compiled for. No gradient
    flows. https://onnx.ai/onnx/operators/onnx__BitCast.html
    """

    foreign_fields: ClassVar[dict[str, str]] = {"to": "`to` is ONNX's name: use `dtype`"}

    passes_mask: ClassVar = True

    type: Literal["BitCast"] = "BitCast"
    dtype: Bits
    """The element type, of as many bytes as the input's."""

    samples: ClassVar = (
        Sample.of((2, 3), dtype="float32", dtypes=("int32",)),
        Sample.of((2, 3), dtype="int8", dtypes=("uint8",)),
        Sample.of((2, 3), dtype="uint16", dtypes=("int16",)),
    )

    def build(self, builder: Builder, x: Value) -> Value:
        """x → elements with the same bits, same shape."""
        x = cast(x, DType.FLOAT32) if x.dtype.is_float else x
        x = cast(x, DType.UINT8) if x.dtype == DType.BOOL else x
        dtype = DType(self.dtype)
        require(
            x.dtype.itemsize == dtype.itemsize,
            f"{x.dtype} and {dtype} have elements of different sizes",
            expected=f"a type of {x.dtype.itemsize} bytes per element",
            got=f"{dtype}",
        )
        bits = x if x.dtype == dtype else bitcast.BitCast(dtype)(x)
        return cast(bits, builder.dtype) if dtype.is_float else bits
