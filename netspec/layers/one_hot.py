"""Vectors with a single 1: OneHot of a number, Hardmax of the greatest of several."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops import shape, softmax
from netspec.graph.ops.elementwise import Greater, Where, elementwise, scalar
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need, sample_axis
from netspec.schema.kinds import LAYERS
from netspec.schema.net import InputDType


@LAYERS.register
class OneHot(LayerSpec):
    """A vector for each whole number: `on_value` at its place, `off_value` elsewhere.

    Input (N, …) whole numbers, output (N, …, depth), the new axis at `axis`. Negative numbers count from the end; one
    that is no place gives a vector without `on_value`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "num_classes": "here it is `depth`",
        "num_tokens": "here it is `depth`",
    }

    type: Literal["OneHot"] = "OneHot"
    depth: PositiveInt
    """length of the vectors"""
    axis: int = -1
    """where the vectors lie in the output"""
    on_value: float = 1.0
    """the number at the place"""
    off_value: float = 0.0
    """the number elsewhere"""
    dtype: InputDType = "float32"
    """the element type; `float32` follows the precision the net is compiled for"""

    samples: ClassVar = (
        Sample.of((2, 3), depth=4, dtypes=("int64",)),
        Sample.of((2,), depth=3, axis=1, dtypes=("int32",), on_value=0.9, off_value=-0.5, one_way=True),
        Sample.of((2, 3), depth=5, axis=1, dtypes=("uint8",), dtype="int64", one_way=True),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …, depth)."""
        rank = len(x.shape) + 1
        need(
            not x.dtype.is_float and x.dtype != DType.BOOL,
            "the input is not of whole numbers",
            expected="integers",
            got=x.type,
        )
        need(
            -rank < self.axis < rank and self.axis != 0,
            f"there is no place {self.axis} for an axis",
            expected=f"1 to {rank - 1}, or -1 for the last",
            got=x.type,
        )
        dtype = net.dtype if self.dtype == "float32" else DType(self.dtype)
        if not x.dtype.startswith("u"):
            x = Where()(elementwise(Greater(), 0, x), x + float(self.depth), x)
        y = shape.OneHot(self.depth, dtype, self.axis)(x)
        if (self.on_value, self.off_value) == (1.0, 0.0):
            return y
        on = elementwise(Greater(), y, 0.0)
        return Where()(on, scalar(self.on_value, dtype), scalar(self.off_value, dtype))


@LAYERS.register
class Hardmax(LayerSpec):
    """1 at the greatest number along an axis, 0 at all others; of equal ones at the first. No gradient flows.

    Input and output have the same shape.
    """

    type: Literal["Hardmax"] = "Hardmax"
    axis: int = -1
    """the axis to look along"""

    samples: ClassVar = (Sample.of((2, 4)), Sample.of((2, 3, 2), axis=1))

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        return softmax.Hardmax(sample_axis(x, self.axis, "to look along"))(net.floating(x))
