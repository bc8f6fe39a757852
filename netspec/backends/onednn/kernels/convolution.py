"""Convolutions and their gradients, channels-last, any number of spatial axes, with bias and post-ops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.epilogue import PostOpEpilogue, epilogue_of, extra_descs
from netspec.backends.onednn.kernel import CHOSEN, Computation, OneDnnKernel, Operand, desc, engine, products_per_second
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.native import OneDnnError
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.primitive_descs import (
    convolution_backward_data,
    convolution_backward_weights,
    convolution_forward,
)
from netspec.graph.fused import EpilogueFused
from netspec.graph.kernel import Example, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

VECTOR = 16
"""float32 values in a vector."""


_CONV = Conv(Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)))
_X, _W, _Y = (TensorType(shape, DType.FLOAT32) for shape in ((2, 16, 6, 6), (32, 16, 3, 3), (2, 32, 6, 6)))
"""A call whose channels fill vectors, so that the library stores the kernel in blocks."""


def grouped(op: Conv, w: TensorType) -> tuple[int, ...]:
    """The shape of the kernel for oneDNN: with an axis for the groups if there are any."""
    if op.groups == 1:
        return w.shape
    return (op.groups, w.shape[0] // op.groups, *w.shape[1:])


def any_weights(op: Conv, w: TensorType, multiplied: MemoryDesc) -> MemoryDesc:
    """A kernel in a layout that the library chooses, with the element type of the other operand."""
    return MemoryDesc.any(engine(), grouped(op, w), multiplied.dtype)


def forward_desc(
    op: Conv, src: MemoryDesc, w: TensorType, dst: MemoryDesc, bias: MemoryDesc | None = None,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:  # fmt: skip
    """The forward computation; also the hint of the gradients."""
    return convolution_forward(src, any_weights(op, w, src), bias, dst, op.window, attributes=attributes)


def depthwise_first(primitive_desc: PrimitiveDesc, op: Conv, w: TensorType) -> PrimitiveDesc:
    """The implementation for depthwise convolutions, if it applies and exists.

    For strided gradients in bfloat16, the library prefers code for any groups, which takes twelve times as long.
    """
    if op.groups == w.shape[0] and w.shape[1] == 1 and op.groups > 1:
        return next(
            (
                candidate
                for candidate in (primitive_desc, *primitive_desc.alternatives())
                if "dw" in candidate.implementation
            ),
            primitive_desc,
        )
    return primitive_desc


def filled(channels: int) -> float:
    """The share of computed channels that are used: channels are padded to full vectors, for example 20 to 32."""
    return channels / (-(-channels // VECTOR) * VECTOR)


def unrounded(requested: LayoutSignature, *operands: int) -> LayoutSignature:
    """The signature with these operands unrounded: the reorder to the library's layout rounds them."""
    inputs = [
        operand.with_dtype(None) if index in operands else operand for index, operand in enumerate(requested.inputs)
    ]
    return LayoutSignature(tuple(inputs), requested.outputs)


def _requested_layouts(result: TensorType, extras: Sequence[TensorType]) -> LayoutSignature:
    last = Layout.channels_last(result.rank)
    layouts = tuple(last if extra.shape == result.shape else PLAIN for extra in extras)
    return LayoutSignature((last, CHOSEN, *layouts), (last,))


def _describe(
    op: Conv | EpilogueFused, types: Sequence[TensorType], y: TensorType, layouts: LayoutSignature
) -> Computation:
    conv = op if isinstance(op, Conv) else op.anchor
    assert isinstance(conv, Conv)
    epilogue = epilogue_of(op, types, channel=1)
    assert isinstance(epilogue, PostOpEpilogue)
    extras = extra_descs(types, layouts, y)
    x, w = types[:2]
    src, dst, bias = desc(x, layouts.inputs[0]), desc(y, layouts.outputs[0]), None
    if epilogue.bias is not None:
        bias = desc(types[1 + epilogue.bias], layouts.inputs[1 + epilogue.bias], (y.shape[1],))
    primitive_desc = forward_desc(conv, src, w, dst, bias, epilogue.attributes(extras))
    arguments: dict[int, Operand] = {
        Arg.SRC: Operand(0, src),
        Arg.WEIGHTS: Operand(1, desc(w, layouts.inputs[1], grouped(conv, w))),
        Arg.DST: Operand(0, dst, output=True),
        **epilogue.operands(extras, bias),
    }
    return Computation(primitive_desc, arguments, epilogue.slopes())


@cache
def _slow_post_ops_reason(op: EpilogueFused, types: tuple[TensorType, ...]) -> str | None:
    """Return why the post-ops take longer than a separate pass over the result; None if they do not.

    Convolutions by matrix products (`gemm`) compute PReLU, which replaces ReLU here, element by element, and other
    functions in a slow loop: with AVX2, the first layer of AlexNet, for which oneDNN has no other implementation, takes
    seven times as long with ReLU, and twice as long with an absolute value. Generic code (`any`) is even slower.
    """
    result = op.infer(*types)
    assert isinstance(result, TensorType)
    try:
        computation = _describe(op, types, result, _requested_layouts(result, types[2:]))
    except OneDnnError as error:
        return f"oneDNN says {error.reason}"
    name = computation.primitive.implementation
    return f"`{name}` computes post-ops slowly" if "gemm" in name or name.endswith(":any") else None


@kernel(Conv, EpilogueFused, backend="onednn", rank=10)
class ConvolutionKernel(OneDnnKernel):
    """y = x ∗ w, + bias, post-ops."""

    def samples(self) -> Sequence[Example]:
        return ((_CONV, (_X, _W)),)

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        if not isinstance(op, EpilogueFused):
            return None
        if not isinstance(op.anchor, Conv):
            return f"the anchor is {op.anchor.name}"
        epilogue = epilogue_of(op, types, channel=1)
        if isinstance(epilogue, str):
            return epilogue
        return _slow_post_ops_reason(op, tuple(types)) if epilogue.post_ops else None

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return _requested_layouts(node.types[0], [value.type for value in node.inputs[2:]])

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature:
        return unrounded(requested, 1)

    def flops_per_second(self, node: Node, signature: LayoutSignature) -> float:
        return filled(node.inputs[1].shape[0]) * products_per_second(signature)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        assert isinstance(node.op, (Conv, EpilogueFused))
        return _describe(node.op, [value.type for value in node.inputs], node.types[0], layouts)


@kernel(ConvInputGrad, backend="onednn", rank=10)
class ConvolutionInputGradientKernel(OneDnnKernel):
    """dx from dy and w."""

    def samples(self) -> Sequence[Example]:
        return ((ConvInputGrad(_CONV, _X), (_Y, _W)),)

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(node.types[0].rank)
        return LayoutSignature((last, CHOSEN), (last,))

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature:
        return unrounded(requested, 1)

    def flops_per_second(self, node: Node, signature: LayoutSignature) -> float:
        return filled(node.types[0].shape[1]) * products_per_second(signature)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, (dy, w), dx = node.op, (value.type for value in node.inputs), node.types[0]
        assert isinstance(op, ConvInputGrad)
        dx_desc, dy_desc = desc(dx, layouts.outputs[0]), desc(dy, layouts.inputs[0])
        hint = forward_desc(op.conv, desc(dx, layouts.outputs[0].with_dtype(layouts.inputs[0].dtype)), w, dy_desc)
        primitive_desc = convolution_backward_data(
            dx_desc, any_weights(op.conv, w, dy_desc), dy_desc, op.conv.window, hint
        )
        primitive_desc = depthwise_first(primitive_desc, op.conv, w)
        return Computation(
            primitive_desc,
            {
                Arg.DIFF_DST: Operand(0, dy_desc),
                Arg.WEIGHTS: Operand(1, desc(w, layouts.inputs[1], grouped(op.conv, w))),
                Arg.DIFF_SRC: Operand(0, dx_desc, output=True),
            },
        )


@kernel(ConvWeightGrad, backend="onednn", rank=10)
class ConvolutionWeightGradientKernel(OneDnnKernel):
    """dw from dy and x."""

    def samples(self) -> Sequence[Example]:
        return ((ConvWeightGrad(_CONV, _W), (_Y, _X)),)

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(node.types[0].rank)
        return LayoutSignature((last, last), (CHOSEN,))

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        alike = requested.inputs[0].dtype == requested.inputs[1].dtype
        return LayoutSignature(requested.inputs, (requested.outputs[0].with_dtype(None),)) if alike else None

    def flops_per_second(self, node: Node, signature: LayoutSignature) -> float:
        return filled(node.types[0].shape[0]) * products_per_second(signature)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, (dy, x), dw = node.op, (value.type for value in node.inputs), node.types[0]
        assert isinstance(op, ConvWeightGrad)
        dy_desc, x_desc = desc(dy, layouts.inputs[0]), desc(x, layouts.inputs[1])
        hint = forward_desc(op.conv, x_desc, dw, dy_desc)
        weights = MemoryDesc.any(engine(), grouped(op.conv, dw))
        primitive_desc = convolution_backward_weights(x_desc, weights, dy_desc, op.conv.window, hint)
        return Computation(
            primitive_desc,
            {
                Arg.DIFF_DST: Operand(0, dy_desc),
                Arg.SRC: Operand(1, x_desc),
                Arg.DIFF_WEIGHTS: Operand(0, desc(dw, layouts.outputs[0], grouped(op.conv, dw)), output=True),
            },
        )
