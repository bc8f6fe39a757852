"""Products of 8-bit integers: MatMulInteger, ConvInteger; and QLinearMatMul, QLinearConv, which quantize the result."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from netspec.graph.ops import quantization as ops
from netspec.graph.ops.convolution import ConvInteger8
from netspec.graph.ops.elementwise import cast, scalar
from netspec.graph.ops.quantization import BYTES, QuantizeLinear
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.window import Window
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.initializers.base import Initializer, Ones, Zeros
from netspec.schema.specs.kinds import LAYERS
from netspec.schema.specs.spec import describe, problem

ByteType = Literal["uint8", "int8"]
Sizes: TypeAlias = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=3, strict=False)]
Sides: TypeAlias = Annotated[tuple[Annotated[tuple[int, int], Field(strict=False)], ...], Field(strict=False)]


class IntegerProduct(LayerSpec):
    """Base of layers with a kernel of 8 bits."""

    kernel_dtype: ByteType = "int8"
    """The type of `kernel`."""
    kernel_initializer: Initializer = Zeros()
    """First values of `kernel`."""

    def data(self, x: Value) -> Value:
        """The input, which must be of 8 bits."""
        require(
            x.dtype in BYTES,
            "the input must hold 8-bit integers",
            expected="uint8 or int8, as QuantizeLinear outputs them",
            got=x.type,
        )
        return x

    def kernel(self, builder: Builder, shape: tuple[int, ...]) -> Value:
        """The parameter `kernel`: integers, which are not trained."""
        return builder.statistic("kernel", shape, self.kernel_initializer, DType(self.kernel_dtype))


class ZeroPointFields(IntegerProduct):
    """Base of layers that subtract zero points and give sums in int32."""

    per_channel: bool = False
    """`true`: a zero point for each column of the kernel, or filter; false: a single one."""
    zero_point_initializer: Initializer = Zeros()
    """First values of `zero_point`, the input's, unless it is computed, and of `kernel_zero_point`."""

    def zero_points(
        self, builder: Builder, x: Value, zero_point: Value | None, channels: int, dtype: DType
    ) -> tuple[Value, Value]:
        """Zero points of the input, () or one per sample, and of the kernel, () or (channels)."""
        if zero_point is None:
            zero_point = builder.statistic("zero_point", (), self.zero_point_initializer, x.dtype)
        else:
            require(
                (zero_point.shape, zero_point.dtype) == (x.shape[:1], x.dtype),
                "the zero points have the wrong shape",
                expected=f"{x.dtype} of shape (batch)",
                got=zero_point.type,
            )
            zero_point = reshape_to(zero_point, (x.shape[0], *(1 for _ in x.shape[1:])))
        shape = (channels,) if self.per_channel else ()
        return zero_point, builder.statistic("kernel_zero_point", shape, self.zero_point_initializer, dtype)


class RequantizeFields(IntegerProduct):
    """Base of layers that quantize the sums of products to 8-bit integers again."""

    onnx_roundtrip_blocker: ClassVar = (
        "it is written as sums of products and their rounding, which an importer does not combine"
    )
    dtype: ByteType = "uint8"
    """The type of the result."""
    per_channel: bool = False
    """`true`: scale and zero point for each column of the kernel, or filter; false: a single pair."""
    scale_initializer: Initializer = Ones()
    """First values of `input_scale`, `kernel_scale` and `output_scale`."""
    zero_point_initializer: Initializer = Zeros()
    """First values of `input_zero_point`, `kernel_zero_point` and `output_zero_point`."""

    def scale_and_zero_point(
        self, builder: Builder, name: str, dtype: DType, shape: tuple[int, ...] = ()
    ) -> tuple[Value, Value]:
        """Scale and zero point of the input, the kernel or the output."""
        scale = builder.statistic(f"{name}_scale", shape, self.scale_initializer)
        return scale, builder.statistic(f"{name}_zero_point", shape, self.zero_point_initializer, dtype)

    def requantize(self, builder: Builder, sums: Value, factor: Value) -> Value:
        """Requantize integer sums, each of which stands for sum · `factor`, with the output's scale."""
        dtype = DType(self.dtype)
        scale, zero_point = self.scale_and_zero_point(builder, "output", dtype)
        return QuantizeLinear(None, 0, dtype)(
            cast(sums, builder.dtype) * (factor / scale), scalar(1.0, builder.dtype), zero_point
        )


class IntegerConvBase(IntegerProduct):
    """Base of ConvInteger and QLinearConv."""

    filters: PositiveInt
    """Number of output channels."""
    kernel_size: Sizes
    """Sizes of the kernels along 1 to 3 spatial axes."""
    strides: Sizes | None = None
    """Step of the kernel along each axis; default: 1."""
    padding: Sides | None = None
    """Zeros before and after each axis: `[[1, 1], [0, 2]]`; default: none."""
    dilation_rate: Sizes | None = None
    """Distance between the elements of the kernel along each axis; default: 1."""
    groups: PositiveInt = 1
    """Number of groups that the channels are split into, each convolved separately."""

    @model_validator(mode="after")
    def _of_one_rank(self) -> Self:
        for field in ("strides", "padding", "dilation_rate"):
            values = getattr(self, field)
            if values is not None and len(values) != len(self.kernel_size):
                raise problem(
                    f"`{field}` has a different number of axes than `kernel_size`", field=field,
                    expected=f"{len(self.kernel_size)} entries", got=f"{len(values)}",
                )  # fmt: skip
        if any(side < 0 for sides in self.padding or () for side in sides):
            raise problem("`padding` is negative", field="padding", expected="0 or more", got=describe(self.padding))
        return self

    def window(self, x: Value) -> Window:
        """The window over the input `x`: (N, C, …)."""
        size = self.kernel_size
        ones = (1,) * len(size)
        require(
            len(x.shape) == len(size) + 2,
            "the number of spatial axes of the input differs from that of `kernel_size`",
            expected=f"(batch, channels, …) with {len(size)} sizes",
            got=x.type,
        )
        sides = self.padding or ((0, 0),) * len(size)
        return Window.of(x.shape[2:], size, self.strides or ones, sides, self.dilation_rate or ones)

    def kernels(self, builder: Builder, x: Value) -> Value:
        """The kernel (filters, channels / groups, …)."""
        channels = x.shape[1]
        require(
            channels % self.groups == 0, f"{channels} input channels cannot be split into {self.groups} groups",
            expected=f"a multiple of {self.groups} channels", got=x.type,
        )  # fmt: skip
        return self.kernel(builder, (self.filters, channels // self.groups, *self.kernel_size))


@LAYERS.register
class ConvInteger(ZeroPointFields, IntegerConvBase):
    """Convolve 8-bit integers, less their zero points, exactly: the sums are int32.

    Input (N, C, …) of uint8 or int8, output (N, filters, …) in int32. Computed zero points of the input are a second
    input: (N), one per sample. Padding counts as the zero point. No gradient flows.
    """

    type: Literal["ConvInteger"] = "ConvInteger"

    samples: ClassVar = (
        Sample.of((2, 3, 5, 4), dtypes=("uint8",), filters=2, kernel_size=[3, 2], padding=[[1, 1], [0, 1]]),
        Sample.of(
            (2, 4, 6), dtypes=("uint8",), filters=4, kernel_size=[3], strides=[2], groups=2, kernel_dtype="uint8"
        ),
        Sample.of(
            (2, 2, 5),
            (2,),
            dtypes=("uint8", "uint8"),
            filters=2,
            kernel_size=[2],
            per_channel=True,
            no_onnx_roundtrip=True,
        ),
    )

    def build(self, builder: Builder, x: Value, zero_point: Value | None = None) -> Value:
        """x: (N, C, …), zero_point: (N) → (N, filters, …), int32."""
        window, kernel = self.window(self.data(x)), self.kernels(builder, x)
        zero_points = self.zero_points(builder, x, zero_point, self.filters, kernel.dtype)
        return ConvInteger8(window, self.groups)(x, kernel, *zero_points)


@LAYERS.register
class QLinearConv(RequantizeFields, IntegerConvBase):
    """Convolve quantized 8-bit data, given scales and zero points, and quantize the result.

    Input (N, C, …) of uint8 or int8, output (N, filters, …) in `dtype`. The sums of products, with the integers `bias`
    added, are exact; they are rounded once, to the scale of the output. No gradient flows.
    """

    type: Literal["QLinearConv"] = "QLinearConv"
    use_bias: bool = True
    """Add a learned integer (int32) to the sums of each channel."""

    samples: ClassVar = (
        Sample.of((2, 3, 5, 4), dtypes=("uint8",), filters=2, kernel_size=[3, 2], padding=[[1, 1], [0, 1]]),
        Sample.of((2, 4, 6), dtypes=("int8",), dtype="int8", filters=4, kernel_size=[3], groups=2, per_channel=True,
                  use_bias=False, dilation_rate=[2]),
    )  # fmt: skip

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, filters, …)."""
        window, kernel = self.window(self.data(x)), self.kernels(builder, x)
        column = (self.filters, *(1 for _ in self.kernel_size))
        scale, zero_point = self.scale_and_zero_point(builder, "input", x.dtype)
        channels = (self.filters,) if self.per_channel else ()
        kernel_scale, kernel_zero = self.scale_and_zero_point(builder, "kernel", kernel.dtype, channels)
        sums = ConvInteger8(window, self.groups)(x, kernel, zero_point, kernel_zero)
        if self.use_bias:
            sums = sums + reshape_to(builder.statistic("bias", (self.filters,), Zeros(), DType.INT32), column)
        factor = scale * (reshape_to(kernel_scale, column) if self.per_channel else kernel_scale)
        return self.requantize(builder, sums, factor)


class IntegerDenseBase(IntegerProduct):
    """Base of MatMulInteger and QLinearMatMul."""

    units: PositiveInt | None = None
    """Number of outputs; null: the matrix is the second input."""

    def matrix(self, builder: Builder, x: Value, second: Value | None) -> Value:
        """The matrix: the layer's (features, units), or the input (N, …, features, units)."""
        x = self.data(x)
        require(len(x.shape) >= 2, "the input has no features", expected="(batch, …, features)", got=x.type)
        require(
            (self.units is None) == (second is not None),
            "the matrix must be given by one field: `units`, or a second input",
            expected="no `units`, or no second input in `from`"
            if second is not None
            else "`units`, or a matrix as second input in `from`",
            got=f"units {self.units}",
        )
        return self.kernel(builder, (x.shape[-1], self.units)) if self.units is not None else self.data(second or x)


@LAYERS.register
class MatMulInteger(ZeroPointFields, IntegerDenseBase):
    """Multiply 8-bit integers, less their zero points, by a matrix, exactly: the sums are int32.

    Input (N, …, features) of uint8 or int8, output (N, …, units) in int32. The matrix is the layer's, or a second input
    (N, …, features, units). Computed zero points of the input are another input: (N), one per sample. No gradient
    flows.
    """

    type: Literal["MatMulInteger"] = "MatMulInteger"

    samples: ClassVar = (
        Sample.of((2, 3, 4), dtypes=("uint8",), units=2),
        Sample.of(
            (2, 4),
            (2,),
            dtypes=("int8", "int8"),
            units=3,
            kernel_dtype="uint8",
            per_channel=True,
            no_onnx_roundtrip=True,
        ),
        Sample.of((2, 3, 4), (2, 4, 2), dtypes=("uint8", "int8"), no_onnx_roundtrip=True),
    )

    def build(self, builder: Builder, x: Value, second: Value | None = None, third: Value | None = None) -> Value:
        """x: (N, …, features), a matrix unless the layer has one, zero_point: (N) → (N, …, units), int32."""
        matrix_input, zero_point = (second, third) if self.units is None else (None, second)
        matrix = self.matrix(builder, x, matrix_input)
        columns = matrix.shape[-1]
        zero, of_kernel = self.zero_points(builder, x, zero_point, columns, matrix.dtype)
        return ops.MatMulInteger()(x, matrix, zero, of_kernel)


@LAYERS.register
class QLinearMatMul(RequantizeFields, IntegerDenseBase):
    """Multiply quantized 8-bit data by a matrix, given scales and zero points, and quantize the result.

    Input (N, …, features) of uint8 or int8, output (N, …, units) in `dtype`. The matrix is the layer's, or a second
    input (N, …, features, units). The sums of products are exact; they are rounded once, to the scale of the output. No
    gradient flows.
    """

    type: Literal["QLinearMatMul"] = "QLinearMatMul"

    samples: ClassVar = (
        Sample.of((2, 3, 4), dtypes=("uint8",), units=2),
        Sample.of((2, 4), dtypes=("int8",), units=3, dtype="int8", per_channel=True),
        Sample.of((2, 3, 4), (2, 4, 2), dtypes=("uint8", "int8"), no_onnx_roundtrip=True),
    )

    def build(self, builder: Builder, x: Value, second: Value | None = None) -> Value:
        """x: (N, …, features), a matrix unless the layer has one → (N, …, units)."""
        matrix = self.matrix(builder, x, second)
        scale, zero_point = self.scale_and_zero_point(builder, "input", x.dtype)
        channels = matrix.shape[-1:] if self.per_channel else ()
        kernel_scale, kernel_zero = self.scale_and_zero_point(builder, "kernel", matrix.dtype, channels)
        return self.requantize(builder, ops.MatMulInteger()(x, matrix, zero_point, kernel_zero), scale * kernel_scale)
