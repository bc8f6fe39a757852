"""Values into the library's own forms, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Arg, Tag
from netspec.backends.onednn.kernels.base import Computation, OneDnnKernel, Packed, Place, desc, engine
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.pointwise import reorder
from netspec.graph.kernel import Example, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Reorder
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node


@kernel(Reorder, backend="onednn", rank=10)
class Repacking(OneDnnKernel):
    """A plain value packed, or a packed one plain."""

    def samples(self) -> Sequence[Example]:
        kind = TensorType((2, 20, 3, 5), DType.FLOAT32)  # 20 channels do not fill blocks of 16
        packed = Packed(desc(kind, PLAIN), MemoryDesc.tagged(engine(), kind.shape, Tag.ABCD_B16))
        layout = Layout(form=packed)
        return (Reorder(target=layout), (kind,)), (Reorder(source=layout), (kind,))

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        packed = isinstance(op.source.form, Packed) or isinstance(op.target.form, Packed)
        return None if packed else "copies between orders of axes are left to others"

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        assert isinstance(node.op, Reorder)
        return Signature((node.op.source,), (node.op.target,))

    def describe(self, node: Node, layouts: Signature) -> Computation:
        op = node.op
        assert isinstance(op, Reorder)
        if isinstance(op.source.form, Packed):
            source, target = op.source.form.memory, op.source.form.plain
        else:
            assert isinstance(op.target.form, Packed)
            source, target = op.target.form.plain, op.target.form.memory
        return Computation(reorder(source, target), {Arg.SRC: Place(0, source), Arg.DST: Place(0, target, output=True)})
