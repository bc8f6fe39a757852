"""Cast: the same numbers in another element type."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import cast
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
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
