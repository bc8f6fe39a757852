"""Convolution and transposed convolution of any number of spatial axes, their gradients, and Col2Im."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion, OnnxForm, OnnxMap, integer, ints, pads
from netspec.graph.op import Array, Grads, NoGradient, Op, Traits, Xp
from netspec.graph.ops.quantization import BYTES, subtract_zero_point, wrap_int32
from netspec.graph.ops.reduce import factor_along_axis, reshape_to
from netspec.graph.ops.shape import Slice, TakeGrad
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value, require_listable


def _columns(xp: Xp, window: Window, groups: int, x: Array, out: tuple[int, ...]) -> Array:
    """im2col: (N, C, …) → (N, groups, C/groups · elements of the window, positions of the output)."""
    views = window.views(xp, window.padded(xp, x), out)
    return views.reshape(x.shape[0], groups, x.shape[1] // groups * prod(window.size), prod(out))


@dataclass(frozen=True)
class Conv(Op):
    """y[n, m, i…] = Σ_{c, k…} x[n, c, i·stride + k·dilation - pad, …] · w[m, c, k…], within each group of channels."""

    window: Window
    groups: int = 1
    traits = Traits(anchor=True, is_contraction=True)
    onnx = OnnxMap(
        "Conv",
        kernel_shape=ints("window.size"),
        strides=ints("window.strides"),
        pads=pads("window.pads"),
        dilations=ints("window.dilation"),
        group=integer("groups"),
    )

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        """x: (N, C, …), w: (M, C/groups, k…) → (N, M, out…)."""
        rank = len(self.window.size) + 2
        self.check(x.rank == rank, f"the input must have {rank} axes", expected="(batch, channels, sizes…)", got=x)
        channels, filters = x.shape[1], w.shape[0]
        for noun, count in (("input channels", channels), ("filters", filters)):
            self.check(
                count % self.groups == 0, f"{count} {noun} cannot be split into {self.groups} groups",
                expected=f"a multiple of {self.groups}", got=count,
            )  # fmt: skip
        channels_match = w.shape[1] * self.groups == channels
        self.check(
            channels_match,
            "the kernel has the wrong number of input channels",
            expected=f"{w.shape[1] * self.groups} input channels",
            got=x,
        )
        return x.with_shape(x.shape[0], filters, *self.window.out(x.shape[2:]))

    def forward(self, xp: Xp, x: Array, w: Array) -> Array:
        out = self.window.out(x.shape[2:])
        columns = _columns(xp, self.window, self.groups, x, out)
        y = xp.matmul(w.reshape(self.groups, w.shape[0] // self.groups, -1), columns)
        return y.reshape(x.shape[0], w.shape[0], *out)

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, w = y.inputs
        return ConvInputGrad(self, x.type)(dy, w), ConvWeightGrad(self, w.type)(dy, x)

    def fold_scale(self, factor: Value, x: Value, w: Value) -> Sequence[Value] | None:
        filters = factor_along_axis(factor, len(x.shape), 1, 0, len(w.shape))
        return None if filters is None else (x, w * filters)

    def flops(self, x: TensorType, w: TensorType) -> int:
        return 2 * self.infer(x, w).size * prod(w.shape[1:])


@dataclass(frozen=True)
class ConvInputGrad(Op):
    """Gradient of a convolution with respect to its input, of type `x`."""

    conv: Conv
    x: TensorType
    traits = Traits(is_contraction=True)
    onnx: ClassVar[OnnxForm | None] = GRADIENT

    def infer(self, dy: TensorType, w: TensorType) -> TensorType:
        return self.x.with_dtype(dy.dtype)

    def forward(self, xp: Xp, dy: Array, w: Array) -> Array:
        window, groups, out = self.conv.window, self.conv.groups, dy.shape[2:]
        kernel = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
        columns = xp.matmul(kernel, dy.reshape(dy.shape[0], groups, w.shape[0] // groups, -1))
        columns = columns.reshape(*self.x.shape[:2], *window.size, *out)
        dx = xp.zeros(window.padded_shape(self.x.shape), dy.dtype)
        for tap, visited in window.offsets(out):
            dx[visited] += columns[(slice(None), slice(None), *tap)]
        return window.unpadded(dx)

    def vjp(self, y: Value, dy: Value) -> Grads:
        dz, w = y.inputs
        return self.conv(dy, w), ConvWeightGrad(self.conv, w.type)(dz, dy)

    def flops(self, dy: TensorType, w: TensorType) -> int:
        return 2 * dy.size * prod(w.shape[1:])


@dataclass(frozen=True)
class ConvWeightGrad(Op):
    """Gradient of a convolution with respect to its kernel, of type `w`."""

    conv: Conv
    w: TensorType
    traits = Traits(is_contraction=True)
    onnx = GRADIENT

    def infer(self, dy: TensorType, x: TensorType) -> TensorType:
        return self.w.with_dtype(dy.dtype)

    def forward(self, xp: Xp, dy: Array, x: Array) -> Array:
        groups = self.conv.groups
        columns = _columns(xp, self.conv.window, groups, x, dy.shape[2:])
        by_group = dy.reshape(dy.shape[0], groups, dy.shape[1] // groups, -1)
        return xp.matmul(by_group, columns.swapaxes(2, 3)).sum(axis=0).reshape(self.w.shape)

    def vjp(self, y: Value, dy: Value) -> Grads:
        dz, x = y.inputs
        return self.conv(x, dy), ConvInputGrad(self.conv, x.type)(dz, dy)

    def flops(self, dy: TensorType, x: TensorType) -> int:
        return 2 * dy.size * prod(self.w.shape[1:])


class ConvTranspose(ConvInputGrad):
    """Transposed convolution with a result of type `x`, which `conv` would map back to the operand's shape."""

    traits = Traits(anchor=True, is_contraction=True)
    onnx = OnnxMap(
        "ConvTranspose",
        kernel_shape=ints("conv.window.size"),
        strides=ints("conv.window.strides"),
        pads=pads("conv.window.pads"),
        dilations=ints("conv.window.dilation"),
        output_padding=ints("output_padding"),
        group=integer("conv.groups"),
    )

    @property
    def output_padding(self) -> tuple[int, ...]:
        """Number of elements at the end of each result axis that no window reaches; less than the stride."""
        window = self.conv.window
        return tuple(
            (size + sum(pads) - (length - 1) * dilation - 1) % stride
            for size, pads, length, dilation, stride in zip(
                self.x.shape[2:], window.pads, window.size, window.dilation, window.strides, strict=True
            )
        )

    def infer(self, z: TensorType, w: TensorType) -> TensorType:
        """z: (N, C, …), w: (C, filters/groups, k…) → (N, filters, out…)."""
        conv_result = self.conv.infer(self.x.with_dtype(z.dtype), w)
        self.check(
            conv_result == z,
            "the operand does not have the shape of the convolution's result",
            expected=str(conv_result),
            got=z,
        )
        return self.x.with_dtype(z.dtype)


def _conv_to_onnx(g: Emitter, y: Value, x: str, w: str, x_zero: str, w_zero: str) -> str:
    op, dtype = y.op, "float32"
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
        g.node("Sub", *(g.node("Cast", name, to=DType(dtype)) for name in operand_and_zero))
        for operand_and_zero in ((x, x_zero), (w, w_zero))
    ]
    return g.node("Cast", g.node("Conv", *shifted, **form.encode(op)), to=DType.INT32)


@dataclass(frozen=True)
class ConvInteger8(NoGradient):
    """The convolution of x - x_zero_point with w - w_zero_point, 8-bit integers, in int32.

    Padding counts as the zero point. In ONNX, zero points per sample or filter are subtracted first, and the sums are
    computed in float32.
    """

    window: Window
    groups: int = 1
    onnx = OnnxExpansion(_conv_to_onnx)

    def infer(self, x: TensorType, w: TensorType, x_zero: TensorType, w_zero: TensorType) -> TensorType:
        """x: (N, C, …), w: (M, C/groups, k…), zero points: () or (N, 1, …), () or (M) → (N, M, out…), int32."""
        for operand, zero, shapes in (
            (x, x_zero, ((), (x.shape[0], *(1 for _ in x.shape[1:])))),
            (w, w_zero, ((), w.shape[:1])),
        ):
            self.check(
                operand.dtype in BYTES, f"{self.name} needs 8-bit integers", expected="int8 or uint8", got=operand
            )
            fits = zero.dtype == operand.dtype and zero.shape in shapes
            self.check(
                fits,
                "the zero points have the wrong type or shape",
                expected=f"{operand.dtype} of one of {shapes}",
                got=zero,
            )
        return Conv(self.window, self.groups).infer(x, w).with_dtype(DType.INT32)

    def forward(self, xp: Xp, x: Array, w: Array, x_zero: Array, w_zero: Array) -> Array:
        zeros = w_zero.reshape(-1, *(1 for _ in w.shape[1:])) if w_zero.ndim else w_zero
        return wrap_int32(
            Conv(self.window, self.groups).forward(xp, subtract_zero_point(x, x_zero), subtract_zero_point(w, zeros))
        )

    def flops(self, x: TensorType, w: TensorType, x_zero: TensorType, w_zero: TensorType) -> int:
        return Conv(self.window, self.groups).flops(x, w)


def _col2im_to_onnx(g: Emitter, y: Value, x: str) -> str:
    assert isinstance(y.op, Col2Im)
    window, image_and_window = y.op.window, (y.op.spatial, y.op.window.size)
    pads = [side[k] for k in (0, 1) for side in window.pads]
    image, window_size = (g.constant(list(size), "int64") for size in image_and_window)
    return g.node(
        "Col2Im", x, image, window_size, dilations=list(window.dilation), strides=list(window.strides), pads=pads
    )


@dataclass(frozen=True)
class Col2Im(Op):
    """Sum the windows of an image of `spatial` sizes: (N, C · elements of a window, windows) → (N, C, spatial…)."""

    window: Window
    spatial: tuple[int, ...]
    onnx = OnnxExpansion(_col2im_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        window_elements, windows = prod(self.window.size), prod(self.window.out(self.spatial))
        self.check(
            x.rank == 3 and x.shape[1] % window_elements == 0 and x.shape[2] == windows,
            f"the windows do not make an image of {list(self.spatial)}",
            expected=f"(batch, a multiple of {window_elements}, {windows})",
            got=x,
        )
        return x.with_shape(x.shape[0], x.shape[1] // window_elements, *self.spatial)

    def forward(self, xp: Xp, x: Array) -> Array:
        out = self.window.out(self.spatial)
        channels = x.shape[1] // prod(self.window.size)
        columns = x.reshape(x.shape[0], channels, *self.window.size, *out)
        image = xp.zeros(self.window.padded_shape((*x.shape[:1], channels, *self.spatial)), x.dtype)
        for tap, region in self.window.offsets(out):
            image[region] += columns[(slice(None), slice(None), *tap)]
        return self.window.unpadded(image)

    def decompose(self, x: Value) -> Value:
        import numpy as np

        _, channels, *padded = self.window.padded_shape(self.infer(x.type).shape)
        require_listable(prod(padded) * prod(self.window.size), "elements of all windows")
        flat_index = np.arange(prod(padded)).reshape(1, 1, *padded)
        index = [flat_index[region].reshape(-1) for _, region in self.window.offsets(self.window.out(self.spatial))]
        rows = reshape_to(x, (x.shape[0], channels, x.type.size // (x.shape[0] * channels)))
        image = TakeGrad(2, tuple(np.concatenate(index).tolist()), prod(padded))(rows)
        image = reshape_to(image, (x.shape[0], channels, *padded))
        for axis, (begin, size) in enumerate(
            ((begin, size) for (begin, _), size in zip(self.window.pads, self.spatial, strict=True)), 2
        ):
            image = image if image.shape[axis] == size else Slice(axis, begin, begin + size)(image)
        return image

    def simplify(self, x: Value) -> Value:
        return self.decompose(x)
