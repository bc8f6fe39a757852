"""Logic on bool values, with NumPy's broadcasting."""

from __future__ import annotations

from netspec.graph.onnx_map import OnnxMap
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.ops.elementwise import ELEMENTWISE, Binary
from netspec.graph.types import DType, TensorType


class Logical(NoGradient, Binary):
    """Base of ops on two broadcast bool operands."""

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        self.check(a.dtype == b.dtype == DType.BOOL, f"{self.name} needs bool operands", got=f"{a}, {b}")
        return super().infer(a, b)


class And(Logical):
    """a ∧ b"""

    onnx = OnnxMap("And")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a & b


class Or(Logical):
    """a ∨ b"""

    onnx = OnnxMap("Or")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a | b


class Not(NoGradient):
    """¬a"""

    traits = ELEMENTWISE
    onnx = OnnxMap("Not")

    def infer(self, a: TensorType) -> TensorType:
        self.check(a.dtype == DType.BOOL, f"{self.name} needs a bool operand", got=a)
        return a

    def forward(self, xp: Xp, a: Array) -> Array:
        return a == False  # noqa: E712  ~a, in a form that a code generator can trace


class Xor(Logical):
    """a ⊻ b: exclusive or"""

    onnx = OnnxMap("Xor")

    def forward(self, xp: Xp, a: Array, b: Array) -> Array:
        return a != b
