"""Transposed convolutions, channels-last, any number of spatial axes, with bias and post-ops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.epilogue import PostOpEpilogue, epilogue_of, extra_descs
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, Operand, desc, engine
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.native import OneDnnError
from netspec.backends.onednn.primitive_descs import deconvolution_forward
from netspec.graph.fused import EpilogueFused
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.convolution import ConvTranspose
from netspec.graph.ops.source import Input
from netspec.graph.types import TensorType
from netspec.graph.value import Node


def kernel_shape(op: ConvTranspose, w: TensorType) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The kernel (channels, filters/groups, …) in the library's shape: (groups, filters, channels, …)."""
    groups, window = op.conv.groups, prod(w.shape[2:])
    channels, filters = w.shape[0] // groups, w.shape[1]
    inner = Layout().strides(w)[2:]
    shape, steps = (filters, channels, *w.shape[2:]), (window, filters * window, *inner)
    return (shape, steps) if groups == 1 else ((groups, *shape), (channels * filters * window, *steps))


@kernel(ConvTranspose, EpilogueFused, backend="onednn", rank=11)
class ConvTransposeKernel(OneDnnKernel):
    """y = the transposed convolution of x by w, + bias, post-ops."""

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        anchor = op.anchor if isinstance(op, EpilogueFused) else op
        if not isinstance(anchor, ConvTranspose):
            return f"the anchor is {anchor.name}"
        read = epilogue_of(op, types, channel=1)
        if isinstance(read, str):
            return read
        node = op(*(Input(f"x{i}", kind)() for i, kind in enumerate(types))).node
        try:
            self.computation(node, self.requested_layouts(node, ()))
        except OneDnnError as error:
            return f"the library has no code for it: {error}"
        return None

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        result = node.types[0]
        last = Layout.channels_last(result.rank)
        extras = tuple(last if value.shape == result.shape else PLAIN for value in node.inputs[2:])
        return LayoutSignature((last, PLAIN, *extras), (last,))

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, types, y = node.op, [value.type for value in node.inputs], node.types[0]
        anchor = op.anchor if isinstance(op, EpilogueFused) else op
        assert isinstance(anchor, ConvTranspose)
        epilogue = epilogue_of(op, types, channel=1)
        assert isinstance(epilogue, PostOpEpilogue)
        extras = extra_descs(types, layouts, y)
        x, w = types[:2]
        shape, steps = kernel_shape(anchor, w)
        bias = MemoryDesc.strided(engine(), (y.shape[1],)) if epilogue.bias is not None else None
        src, dst = desc(x, layouts.inputs[0]), desc(y, layouts.outputs[0])
        primitive_desc = deconvolution_forward(
            src, MemoryDesc.any(engine(), shape), bias, dst, anchor.conv.window, attributes=epilogue.attributes(extras)
        )
        arguments: dict[int, Operand] = {
            Arg.SRC: Operand(0, src),
            Arg.WEIGHTS: Operand(1, MemoryDesc.strided(engine(), shape, steps)),
            Arg.DST: Operand(0, dst, output=True),
            **epilogue.operands(extras, bias),
        }
        return Computation(primitive_desc, arguments, epilogue.slopes())
