"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: floats to integers of a few bits, and back."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops import quantization as ops
from netspec.graph.ops.elementwise import Equal, Maximum, Minimum, Where, call_elementwise, cast, scalar
from netspec.graph.ops.reduce import ReduceMax, ReduceMin, reshape_to
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import require, sample_axis
from netspec.layers.initializers.base import Initializer, Ones, Zeros
from netspec.schema.specs.kinds import LAYERS

QuantizedType = Literal["uint8", "int8", "uint16", "int16"]


class QuantizationBase(LayerSpec):
    """Base of layers with scales and zero points."""

    passes_mask: ClassVar = True
    axis: int | None = None
    """One scale for each element along this axis (the batch is axis 0); null: a single scale."""
    block_size: int = Field(default=0, ge=0)
    """Number of elements along `axis` that share one scale, if not 0; the last block may be smaller."""
    scale_initializer: Initializer = Ones()
    """First values of `scale`."""
    zero_point_initializer: Initializer = Zeros()
    """First values of `zero_point`."""

    def scales(
        self, builder: Builder, x: Value, dtype: DType, scale: Value | None, zero_point: Value | None
    ) -> tuple[int | None, Value, Value]:
        """(axis of the op, scales, zero points) from inputs, which may differ between samples, or from the layer."""
        axis = None if self.axis is None else sample_axis(x, self.axis, "for scales")
        require(
            axis is not None or not self.block_size,
            "`block_size` needs an axis",
            expected="`axis`, or `block_size: 0`",
            got=f"block_size {self.block_size} without an axis",
        )
        shape = self._shape(x, axis)
        if scale is None:
            scale = builder.statistic("scale", shape, self.scale_initializer)
            zero_point = builder.statistic("zero_point", shape, self.zero_point_initializer, dtype)
            broadcast = (1, *shape) if self.block_size else shape
            return axis, reshape_to(scale, broadcast), reshape_to(zero_point, broadcast)
        batch = x.shape[0]
        require(
            scale.shape == (batch, *shape),
            "the scales do not match the input",
            expected=batch_shape((batch, *shape)),
            got=scale.type,
        )
        if zero_point is None:
            zero_point = scalar(0, dtype)
        require(
            zero_point.shape in (scale.shape, ()),
            "the zero points do not have the shape of the scales",
            got=zero_point.type,
        )
        broadcast = (batch, *shape) if self.block_size else tuple(
            size if index in (0, axis) else 1 for index, size in enumerate(x.shape)
        )  # fmt: skip
        zero_point = reshape_to(zero_point, broadcast) if zero_point.shape else zero_point
        return axis, reshape_to(builder.floating(scale), broadcast), cast(zero_point, dtype)

    def _shape(self, x: Value, axis: int | None) -> tuple[int, ...]:
        """The shape of the scales of a sample."""
        if axis is None:
            return ()
        if self.block_size:
            count = -(-x.shape[axis] // self.block_size)
            return (*x.shape[1:axis], count, *x.shape[axis + 1 :])
        return (x.shape[axis],)


@LAYERS.register
class QuantizeLinear(QuantizationBase):
    """Quantize floats to integers of a few bits: round(x / scale) + zero_point, saturated at the limits of the type.

    Input (N, …), output the same in the type `dtype`. Ties are rounded to even. Computed scales (N), or (N, elements)
    along `axis`, and zero points are further inputs; otherwise both belong to the layer. No gradient flows.
    """

    type: Literal["QuantizeLinear"] = "QuantizeLinear"
    dtype: QuantizedType = "uint8"
    """The type of the result."""

    samples: ClassVar = (
        Sample.of((2, 3, 4)),
        Sample.of((2, 3, 4), dtype="int8", axis=1),
        Sample.of((2, 5, 3), dtype="int16", axis=1, block_size=2, no_onnx_roundtrip=True),
        Sample.of(
            (2, 3),
            (2,),
            (2,),
            dtypes=("float32", "float32", "uint8"),
            ranges=[None, (0.5, 1.5)],
            no_onnx_roundtrip=True,
        ),
    )

    def build(self, builder: Builder, x: Value, scale: Value | None = None, zero_point: Value | None = None) -> Value:
        """x: (N, …) → the same shape."""
        x, dtype = builder.floating(x), DType(self.dtype)
        axis, scales, zeros = self.scales(builder, x, dtype, scale, zero_point)
        return ops.QuantizeLinear(axis, self.block_size, dtype)(x, scales, zeros)


@LAYERS.register
class DequantizeLinear(QuantizationBase):
    """Dequantize integers to floats: (x - zero_point) · scale.

    Input (N, …) of integers, output floats of the same shape. Computed scales (N), or (N, elements) along `axis`, and
    zero points are further inputs; otherwise both belong to the layer.
    """

    type: Literal["DequantizeLinear"] = "DequantizeLinear"

    samples: ClassVar = (
        Sample.of((2, 3, 4), dtypes=("int8",)),
        Sample.of((2, 3, 4), dtypes=("uint8",), axis=-1),
        Sample.of((2, 5, 3), dtypes=("int8",), axis=1, block_size=2, no_onnx_roundtrip=True),
        Sample.of(
            (2, 3, 2), (2, 3), dtypes=("int32", "float32"), ranges=[None, (0.5, 1.5)], axis=1, no_onnx_roundtrip=True
        ),
    )

    def build(self, builder: Builder, x: Value, scale: Value | None = None, zero_point: Value | None = None) -> Value:
        """x: (N, …) → the same shape."""
        require(
            not x.dtype.is_float and x.dtype != DType.BOOL,
            "the input is not quantized",
            expected="integers, as QuantizeLinear outputs them",
            got=x.type,
        )
        axis, scales, zeros = self.scales(builder, x, x.dtype, scale, zero_point)
        return ops.DequantizeLinear(axis, self.block_size)(x, scales, zeros)


@LAYERS.register
class DynamicQuantizeLinear(LayerSpec):
    """Quantize each sample to 8-bit integers with a scale and a zero point that span its values.

    Input (N, …); outputs `NAME.output`, the same in uint8, `NAME.scale` (N) and `NAME.zero_point` (N). With the minimum
    and maximum of the sample's elements and 0: scale = (maximum - minimum) / 255, zero_point = round(-minimum / scale).
    """

    onnx_roundtrip_blocker: ClassVar = "it is written step by step, for each sample"

    type: Literal["DynamicQuantizeLinear"] = "DynamicQuantizeLinear"

    samples: ClassVar = (Sample.of((2, 3, 4)), Sample.of((3, 2), ranges=[(0.5, 1.5)]))

    def output_names(self) -> tuple[str, ...]:
        """The integers, their scale and their zero point."""
        return "output", "scale", "zero_point"

    def build(self, builder: Builder, x: Value) -> tuple[Value, Value, Value]:
        """x: (N, …) → (N, …), (N), (N)."""
        x = builder.floating(x)
        axes = tuple(range(1, len(x.shape)))
        least = call_elementwise(Minimum(), ReduceMin(axes)(x) if axes else x, 0.0)
        greatest = call_elementwise(Maximum(), ReduceMax(axes)(x) if axes else x, 0.0)
        span = (greatest - least) / 255.0
        scale = call_elementwise(Where(), call_elementwise(Equal(), span, 0.0), 1.0, span)
        quantize = ops.QuantizeLinear(None, 0, DType.UINT8)
        zero_point = quantize(-least, scale, scalar(0, DType.UINT8))
        shape = (x.shape[0], *(1 for _ in axes))
        return quantize(x, reshape_to(scale, shape), reshape_to(zero_point, shape)), scale, zero_point
