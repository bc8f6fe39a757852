"""Sources of values: inputs of a step, states that persist between steps, and constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.graph.onnx_map import Emitter, NoOnnxForm, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class _Source(Op):
    """Base of ops without operands."""

    label: str
    type: TensorType
    traits = Traits(pure=False, source=True)
    onnx = NoOnnxForm("it becomes an input or an initializer, not a node")

    def infer(self) -> TensorType:
        return self.type

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        return []

    def flops(self) -> int:
        return 0


class Input(_Source):
    """An array that the caller passes to each run."""


class State(_Source):
    """An array that persists between runs: a parameter, a moving average, a solver slot."""


def _fill_to_onnx(g: Emitter, y: Value) -> str:
    op = y.op
    assert isinstance(op, Fill)
    scalar = g.constant(op.value, str(op.type.dtype))
    if not op.type.shape:
        return scalar
    return g.node("Expand", scalar, g.constant(list(op.type.shape), "int64"))


@dataclass(frozen=True)
class Fill(Op):
    """A constant tensor that repeats one value."""

    value: float
    type: TensorType
    traits = Traits(source=True)
    onnx = OnnxExpansion(_fill_to_onnx)

    def infer(self) -> TensorType:
        return self.type

    def forward(self, xp: Xp) -> Array:
        return xp.full(self.type.shape, self.value, dtype=str(self.type.dtype))

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        return []

    def flops(self) -> int:
        return 0


@dataclass(frozen=True)
class Constant(Op):
    """A constant tensor, stored as the bytes of a C-ordered array."""

    data: bytes
    type: TensorType
    traits = Traits(source=True)
    onnx = OnnxExpansion(lambda g, y: g.constant(y.op.forward(_numpy()), str(y.dtype)))

    def infer(self) -> TensorType:
        return self.type

    def forward(self, xp: Xp) -> Array:
        host = _numpy().frombuffer(self.data, dtype=str(self.type.dtype)).reshape(self.type.shape)
        return xp.asarray(host)

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        return []

    def flops(self) -> int:
        return 0


def _numpy() -> Xp:
    import numpy as np

    return np


def constant(array: Array) -> Value:
    """Create a constant from a NumPy array; an array that repeats a single value becomes a `Fill`."""
    np = _numpy()
    array = np.asarray(array, order="C")
    tensor_type = TensorType(tuple(array.shape), DType(str(array.dtype)))
    data = array.tobytes()
    # Bytes are compared, because 0.0 and -0.0 are different constants.
    if array.size and data == data[: array.itemsize] * array.size:
        return Fill(array.flat[0].item(), tensor_type)()
    return Constant(data, tensor_type)()
