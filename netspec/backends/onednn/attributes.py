"""`Attributes` of a primitive: post-ops, and the owner of scratch memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from netspec.backends.onednn.constants import AlgKind
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.native import OneDnnEngine, OneDnnObject, Pointer

SCRATCHPAD_USER = 1


@dataclass(frozen=True)
class EltwisePostOp:
    """y := f(y), where f is an elementwise algorithm with its parameter α."""

    algorithm: AlgKind
    alpha: float = 0.0


@dataclass(frozen=True)
class BinaryPostOp:
    """y := y ∘ z, with z given at execution as `post_op_src(index)`; sizes of 1 are broadcast."""

    algorithm: AlgKind
    desc: MemoryDesc


@dataclass(frozen=True)
class PReluPostOp:
    """y := y where y > 0, else slope · y, with one slope for all given at execution as `post_op_weights(index)`.

    With a slope of 0 it is a ReLU that keeps NaN, which `ELTWISE_RELU` turns into 0.
    """


PostOp: TypeAlias = EltwisePostOp | BinaryPostOp | PReluPostOp


class Attributes(OneDnnObject):
    """Attributes of a primitive; immutable. The caller always provides scratch memory, as `Arg.SCRATCHPAD`."""

    def __init__(self, engine: OneDnnEngine, post_ops: Sequence[PostOp] = ()) -> None:
        """The post-ops run in order on each element of the destination before it is written."""
        pointer = Pointer()
        engine.call("primitive_attr_create", ctypes.byref(pointer))
        super().__init__(engine, "primitive_attr", pointer)
        self.post_ops = tuple(post_ops)
        engine.call("primitive_attr_set_scratchpad_mode", self, SCRATCHPAD_USER)
        if post_ops:
            engine.call("primitive_attr_set_post_ops", self, _PostOps(engine, post_ops))


class _PostOps(OneDnnObject):
    """`dnnl_post_ops_t`; the attributes copy it."""

    def __init__(self, engine: OneDnnEngine, post_ops: Sequence[PostOp]) -> None:
        pointer = Pointer()
        engine.call("post_ops_create", ctypes.byref(pointer))
        super().__init__(engine, "post_ops", pointer)
        for op in post_ops:
            self._append(op)

    def _append(self, op: PostOp) -> None:
        match op:
            case EltwisePostOp():
                self.engine.call("post_ops_append_eltwise", self, op.algorithm, float(op.alpha), 0.0)
            case BinaryPostOp():
                self.engine.call("post_ops_append_binary", self, op.algorithm, op.desc)
            case PReluPostOp():
                one_slope = 0
                self.engine.call("post_ops_append_prelu", self, one_slope)
