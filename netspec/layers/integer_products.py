"""Products of whole numbers of 8 bits: MatMulInteger, ConvInteger, and QLinearMatMul, QLinearConv, which quantize them.

A layer's own numbers are constants: training does not change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from netspec.graph.onnx_map import Emitter, OnnxExpansion, OnnxMap, integer, ints, pads
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.ops import quantization as ops
from netspec.graph.ops.elementwise import cast, scalar
from netspec.graph.ops.quantization import BYTES, QuantizeLinear, exact, wrapped
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.layers.checks import PositiveInt, need
from netspec.layers.convolution import Conv
from netspec.layers.initializers import Initializer, Ones, Zeros
from netspec.layers.window import Window
from netspec.schema.kinds import LAYERS
from netspec.schema.spec import problem

ByteType = Literal["uint8", "int8"]
Sizes: TypeAlias = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=3, strict=False)]
Sides: TypeAlias = Annotated[tuple[Annotated[tuple[int, int], Field(strict=False)], ...], Field(strict=False)]


def _conv_to_onnx(g: Emitter, y: Value, x: str, w: str, x_zero: str, w_zero: str) -> str:
    op, wide = y.op, "float32"
    assert isinstance(op, ConvInteger8)
    form = OnnxMap(
        "ConvInteger", kernel_shape=ints("window.size"), strides=ints("window.strides"), pads=pads("window.pads"),
        dilations=ints("window.dilation"), group=integer("groups"),
    )  # fmt: skip
    if y.inputs[2].shape == () == y.inputs[3].shape:
        return g.node("ConvInteger", x, w, x_zero, w_zero, **form.encode(op))
    if y.inputs[3].shape:
        w_zero = g.node("Reshape", w_zero, g.constant([-1, 1, *(1 for _ in op.window.size)], "int64"))
    shifted = [
        g.node("Sub", *(g.node("Cast", one, to=DType(wide)) for one in both)) for both in ((x, x_zero), (w, w_zero))
    ]
    return g.node("Cast", g.node("Conv", *shifted, **form.encode(op)), to=DType.INT32)


@dataclass(frozen=True)
class ConvInteger8(NoGradient):
    """The convolution of x - x_zero_point with w - w_zero_point, numbers of 8 bits, in int32.

    Padding counts as the zero point. In ONNX zero points of their own for samples or filters are subtracted first, and
    the sums are taken in float32.
    """

    window: Window
    groups: int = 1
    onnx = OnnxExpansion(_conv_to_onnx)

    def infer(self, x: TensorType, w: TensorType, x_zero: TensorType, w_zero: TensorType) -> TensorType:
        """x: (N, C, …), w: (M, C/groups, k…), zero points: () or (N, 1, …), () or (M) → (N, M, out…), int32."""
        for one, zero, shapes in (
            (x, x_zero, ((), (x.shape[0], *(1 for _ in x.shape[1:])))),
            (w, w_zero, ((), w.shape[:1])),
        ):
            self.check(one.dtype in BYTES, f"{self.name} of other numbers", expected="int8 or uint8", got=one)
            fits = zero.dtype == one.dtype and zero.shape in shapes
            self.check(fits, "the zero points do not fit", expected=f"{one.dtype} of one of {shapes}", got=zero)
        return Conv(self.window, self.groups).infer(x, w).with_dtype(DType.INT32)

    def forward(self, xp: Xp, x: Array, w: Array, x_zero: Array, w_zero: Array) -> Array:
        zeros = w_zero.reshape(-1, *(1 for _ in w.shape[1:])) if w_zero.ndim else w_zero
        return wrapped(Conv(self.window, self.groups).forward(xp, exact(x, x_zero), exact(w, zeros)))

    def flops(self, x: TensorType, w: TensorType, x_zero: TensorType, w_zero: TensorType) -> int:
        return Conv(self.window, self.groups).flops(x, w)


class OfBytes(LayerSpec):
    """Base of layers with a kernel of 8 bits."""

    kernel_dtype: ByteType = "int8"
    """the type of `kernel`"""
    kernel_initializer: Initializer = Zeros()
    """first values of `kernel`"""

    def data(self, x: Value) -> Value:
        """The input, which must be of 8 bits."""
        need(
            x.dtype in BYTES,
            "the input is not of 8 bits",
            expected="uint8 or int8, as QuantizeLinear gives them",
            got=x.type,
        )
        return x

    def kernel(self, net: Builder, shape: tuple[int, ...]) -> Value:
        """The layer's own numbers."""
        return net.statistic("kernel", shape, self.kernel_initializer, DType(self.kernel_dtype))


class Zeroed(OfBytes):
    """Base of layers that subtract zero points and give sums in int32."""

    per_channel: bool = False
    """true: a zero point for each column of the kernel, or filter; false: one for all"""
    zero_point_initializer: Initializer = Zeros()
    """first values of `zero_point`, the input's, where it is not computed, and of `kernel_zero_point`"""

    def zeros(
        self, net: Builder, x: Value, zero_point: Value | None, channels: int, dtype: DType
    ) -> tuple[Value, Value]:
        """Those of the input, () or one for each sample, and of the kernel, () or (channels)."""
        if zero_point is None:
            zero_point = net.statistic("zero_point", (), self.zero_point_initializer, x.dtype)
        else:
            need(
                (zero_point.shape, zero_point.dtype) == (x.shape[:1], x.dtype),
                "the zero points do not fit",
                expected=f"{x.dtype} of shape (batch)",
                got=zero_point.type,
            )
            zero_point = reshape_to(zero_point, (x.shape[0], *(1 for _ in x.shape[1:])))
        shape = (channels,) if self.per_channel else ()
        return zero_point, net.statistic("kernel_zero_point", shape, self.zero_point_initializer, dtype)


class Requantized(OfBytes):
    """Base of layers that give the sums of products as whole numbers of 8 bits again."""

    one_way: ClassVar = "it is written as sums of products and what rounds them, which are not put together again"
    dtype: ByteType = "uint8"
    """the type of the result"""
    per_channel: bool = False
    """true: scale and zero point for each column of the kernel, or filter; false: one for all"""
    scale_initializer: Initializer = Ones()
    """first values of `input_scale`, `kernel_scale` and `output_scale`"""
    zero_point_initializer: Initializer = Zeros()
    """first values of `input_zero_point`, `kernel_zero_point` and `output_zero_point`"""

    def scaled(self, net: Builder, name: str, dtype: DType, shape: tuple[int, ...] = ()) -> tuple[Value, Value]:
        """Scale and zero point of the input, the kernel or the output."""
        scale = net.statistic(f"{name}_scale", shape, self.scale_initializer)
        return scale, net.statistic(f"{name}_zero_point", shape, self.zero_point_initializer, dtype)

    def requantized(self, net: Builder, sums: Value, factor: Value) -> Value:
        """The sums, which stand for numbers `factor` times as large, in the scale of the output."""
        dtype = DType(self.dtype)
        scale, zero_point = self.scaled(net, "output", dtype)
        return QuantizeLinear(None, 0, dtype)(
            cast(sums, net.dtype) * (factor / scale), scalar(1.0, net.dtype), zero_point
        )


class Convolving8(OfBytes):
    """Base of both convolutions."""

    filters: PositiveInt
    """number of output channels"""
    kernel_size: Sizes
    """sizes of the kernels, one for each of 1 to 3 spatial axes"""
    strides: Sizes | None = None
    """step of the kernel along each axis; default: 1"""
    padding: Sides | None = None
    """zeros before and after each axis: `[[1, 1], [0, 2]]`; default: none"""
    dilation_rate: Sizes | None = None
    """distance between the elements of the kernel along each axis; default: 1"""
    groups: PositiveInt = 1
    """the channels are split into so many groups, each convolved on its own"""

    @model_validator(mode="after")
    def _of_one_rank(self) -> Self:
        for field in ("strides", "padding", "dilation_rate"):
            given = getattr(self, field)
            if given is not None and len(given) != len(self.kernel_size):
                raise problem(
                    f"`{field}` is for another number of axes than `kernel_size`", field=field,
                    expected=f"{len(self.kernel_size)} entries", got=f"{len(given)}",
                )  # fmt: skip
        if any(side < 0 for sides in self.padding or () for side in sides):
            raise problem("a padding below 0", field="padding", expected="0 or more", got=f"{self.padding}")
        return self

    def window(self, x: Value) -> Window:
        """The window over the input `x`: (N, C, …)."""
        size = self.kernel_size
        ones = (1,) * len(size)
        need(
            len(x.shape) == len(size) + 2,
            "the input has another number of spatial axes than `kernel_size`",
            expected=f"(batch, channels, …) with {len(size)} sizes",
            got=x.type,
        )
        sides = self.padding or ((0, 0),) * len(size)
        return Window.of(x.shape[2:], size, self.strides or ones, sides, self.dilation_rate or ones)

    def kernels(self, net: Builder, x: Value) -> Value:
        """(filters, channels / groups, …)."""
        channels = x.shape[1]
        need(
            channels % self.groups == 0, f"{channels} input channels cannot be split into {self.groups} groups",
            expected=f"a multiple of {self.groups} channels", got=x.type,
        )  # fmt: skip
        return self.kernel(net, (self.filters, channels // self.groups, *self.kernel_size))


@LAYERS.register
class ConvInteger(Zeroed, Convolving8):
    """Convolve numbers of 8 bits, less their zero points, exactly: the sums are int32.

    Input (N, C, …) of uint8 or int8, output (N, filters, …) in int32. Where the zero points of the input are computed,
    they are a second one: (N), one for each sample. Padding counts as the zero point. No gradient comes through.
    """

    type: Literal["ConvInteger"] = "ConvInteger"

    samples: ClassVar = (
        Sample.of((2, 3, 5, 4), dtypes=("uint8",), filters=2, kernel_size=[3, 2], padding=[[1, 1], [0, 1]]),
        Sample.of(
            (2, 4, 6), dtypes=("uint8",), filters=4, kernel_size=[3], strides=[2], groups=2, kernel_dtype="uint8"
        ),
        Sample.of(
            (2, 2, 5), (2,), dtypes=("uint8", "uint8"), filters=2, kernel_size=[2], per_channel=True, one_way=True
        ),
    )

    def build(self, net: Builder, x: Value, zero_point: Value | None = None) -> Value:
        """x: (N, C, …), zero_point: (N) → (N, filters, …), int32."""
        window, kernel = self.window(self.data(x)), self.kernels(net, x)
        zeros = self.zeros(net, x, zero_point, self.filters, kernel.dtype)
        return ConvInteger8(window, self.groups)(x, kernel, *zeros)


@LAYERS.register
class QLinearConv(Requantized, Convolving8):
    """Convolve numbers of 8 bits that stand for floats, by scales and zero points, and give such numbers again.

    Input (N, C, …) of uint8 or int8, output (N, filters, …) in `dtype`. The sums of products, with the whole numbers
    `bias` added, are exact; they are rounded once, to the scale of the output. No gradient comes through.
    """

    type: Literal["QLinearConv"] = "QLinearConv"
    use_bias: bool = True
    """add a whole number (int32) to the sums of each channel"""

    samples: ClassVar = (
        Sample.of((2, 3, 5, 4), dtypes=("uint8",), filters=2, kernel_size=[3, 2], padding=[[1, 1], [0, 1]]),
        Sample.of((2, 4, 6), dtypes=("int8",), dtype="int8", filters=4, kernel_size=[3], groups=2, per_channel=True,
                  use_bias=False, dilation_rate=[2]),
    )  # fmt: skip

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, …) → (N, filters, …)."""
        window, kernel = self.window(self.data(x)), self.kernels(net, x)
        column = (self.filters, *(1 for _ in self.kernel_size))
        scale, zero_point = self.scaled(net, "input", x.dtype)
        channels = (self.filters,) if self.per_channel else ()
        kernel_scale, kernel_zero = self.scaled(net, "kernel", kernel.dtype, channels)
        sums = ConvInteger8(window, self.groups)(x, kernel, zero_point, kernel_zero)
        if self.use_bias:
            sums = sums + reshape_to(net.statistic("bias", (self.filters,), Zeros(), DType.INT32), column)
        factor = scale * (reshape_to(kernel_scale, column) if self.per_channel else kernel_scale)
        return self.requantized(net, sums, factor)


class Dense8(OfBytes):
    """Base of both products with a matrix."""

    units: PositiveInt | None = None
    """number of outputs; null: the matrix is the second input"""

    def matrix(self, net: Builder, x: Value, given: Value | None) -> Value:
        """(features, units) of the layer, or (N, …, features, units)."""
        x = self.data(x)
        need(len(x.shape) >= 2, "the input has no features", expected="(batch, …, features)", got=x.type)
        need(
            (self.units is None) == (given is not None),
            "the matrix is either the layer's, with `units`, or the second input",
            expected="`units` and one matrix less in `from`" if given is not None else "`units`, or a matrix in `from`",
            got=f"units {self.units}",
        )
        return self.kernel(net, (x.shape[-1], self.units)) if self.units is not None else self.data(given or x)


@LAYERS.register
class MatMulInteger(Zeroed, Dense8):
    """Multiply numbers of 8 bits, less their zero points, with a matrix, exactly: the sums are int32.

    Input (N, …, features) of uint8 or int8, output (N, …, units) in int32. The matrix is the layer's, or a second input
    (N, …, features, units). Where the zero points of the input are computed, they are one more: (N), one for each
    sample. No gradient comes through.
    """

    type: Literal["MatMulInteger"] = "MatMulInteger"

    samples: ClassVar = (
        Sample.of((2, 3, 4), dtypes=("uint8",), units=2),
        Sample.of((2, 4), (2,), dtypes=("int8", "int8"), units=3, kernel_dtype="uint8", per_channel=True, one_way=True),
        Sample.of((2, 3, 4), (2, 4, 2), dtypes=("uint8", "int8"), one_way=True),
    )

    def build(self, net: Builder, x: Value, second: Value | None = None, third: Value | None = None) -> Value:
        """x: (N, …, features), a matrix unless the layer has one, zero_point: (N) → (N, …, units), int32."""
        given, zero_point = (second, third) if self.units is None else (None, second)
        matrix = self.matrix(net, x, given)
        columns = matrix.shape[-1]
        zero, of_kernel = self.zeros(net, x, zero_point, columns, matrix.dtype)
        return ops.MatMulInteger()(x, matrix, zero, of_kernel)


@LAYERS.register
class QLinearMatMul(Requantized, Dense8):
    """Multiply numbers of 8 bits that stand for floats, by scales and zero points, and give such numbers again.

    Input (N, …, features) of uint8 or int8, output (N, …, units) in `dtype`. The matrix is the layer's, or a second
    input (N, …, features, units). The sums of products are exact; they are rounded once, to the scale of the output. No
    gradient comes through.
    """

    type: Literal["QLinearMatMul"] = "QLinearMatMul"

    samples: ClassVar = (
        Sample.of((2, 3, 4), dtypes=("uint8",), units=2),
        Sample.of((2, 4), dtypes=("int8",), units=3, dtype="int8", per_channel=True),
        Sample.of((2, 3, 4), (2, 4, 2), dtypes=("uint8", "int8"), one_way=True),
    )

    def build(self, net: Builder, x: Value, second: Value | None = None) -> Value:
        """x: (N, …, features), a matrix unless the layer has one → (N, …, units)."""
        matrix = self.matrix(net, x, second)
        scale, zero_point = self.scaled(net, "input", x.dtype)
        channels = matrix.shape[-1:] if self.per_channel else ()
        kernel_scale, kernel_zero = self.scaled(net, "kernel", matrix.dtype, channels)
        return self.requantized(net, ops.MatMulInteger()(x, matrix, zero_point, kernel_zero), scale * kernel_scale)
