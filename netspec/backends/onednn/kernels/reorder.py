"""Reorders into the library's own layouts, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Tag
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, PackedLayout, desc, engine
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive_descs import reorder
from netspec.graph.kernel import Example, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.shape import Reorder
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node


@kernel(Reorder, backend="onednn", rank=10)
class ReorderPackedKernel(OneDnnKernel):
    """Pack a plain value, or unpack a packed one."""

    def samples(self) -> Sequence[Example]:
        kind = TensorType((2, 20, 3, 5), DType.FLOAT32)  # 20 channels do not fill blocks of 16
        packed = PackedLayout(desc(kind, PLAIN), MemoryDesc.tagged(engine(), kind.shape, Tag.ABCD_B16))
        layout = Layout(opaque=packed)
        return (Reorder(target=layout), (kind,)), (Reorder(source=layout), (kind,))

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        packed = isinstance(op.source.opaque, PackedLayout) or isinstance(op.target.opaque, PackedLayout)
        return None if packed else "neither layout is specific to oneDNN"

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        assert isinstance(node.op, Reorder)
        return LayoutSignature((node.op.source,), (node.op.target,))

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op = node.op
        assert isinstance(op, Reorder)
        if isinstance(op.source.opaque, PackedLayout):
            source, target = op.source.opaque.memory, op.source.opaque.plain
        else:
            assert isinstance(op.target.opaque, PackedLayout)
            source, target = op.target.opaque.plain, op.target.opaque.memory
        return Computation.of_one(reorder(source, target), source, target)
