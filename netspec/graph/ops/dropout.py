"""Dropout.

Srivastava et al. 2014, JMLR 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Op, Traits, Xp
from netspec.graph.ops.elementwise import GreaterOrEqual, Where, call_elementwise
from netspec.graph.ops.random import RandomUniform
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.types import TensorType, broadcast_shapes
from netspec.graph.value import Operand, Value


def keep_where(draws: Value, x: Operand, otherwise: Operand, rate: float) -> Value:
    """`x` if the uniform `draws` are at least `rate`, else `otherwise`, elementwise with broadcasting."""
    return call_elementwise(Where(), call_elementwise(GreaterOrEqual(), draws, rate), x, otherwise)


def _to_onnx(g: Emitter, y: Value, x: str, rng: str) -> str:
    """One Dropout node, which draws its own numbers; for a broadcast mask, x times the Dropout of ones."""
    op = y.op
    assert isinstance(op, Dropout)
    ratio, training = g.constant(op.rate, "float32"), g.constant(True, "bool")
    if op.mask_shape == y.shape:
        return g.node("Dropout", x, ratio, training, seed=op.uniform.stream)
    is_shared = [size == 1 != axis_size for size, axis_size in zip(op.mask_shape, y.shape, strict=True)]
    sizes = g.node(
        "Where", g.constant(is_shared, "bool"), g.constant([1] * len(is_shared), "int64"), g.node("Shape", x)
    )
    ones = g.node("Expand", g.constant(1.0, str(y.dtype)), sizes)
    return g.node("Mul", x, g.node("Dropout", ones, ratio, training, seed=op.uniform.stream))


@dataclass(frozen=True)
class Dropout(Op):
    """x with a fraction `rate` of its elements set to 0 and the others scaled by 1 / (1 - rate).

    `uniform` draws one number for each element of `mask_shape`, which broadcasts to the shape of x. ONNX's Dropout
    draws its own numbers, from the same distribution.
    """

    rate: float
    uniform: RandomUniform
    mask_shape: tuple[int, ...]
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxExpansion(_to_onnx)

    def infer(self, x: TensorType, rng: TensorType) -> TensorType:
        """x, random state → like x."""
        self.uniform.infer(rng)
        fits = len(self.mask_shape) == x.rank and broadcast_shapes(self.mask_shape, x.shape) == x.shape
        self.check(
            fits, "the mask does not broadcast to the operand", expected=str(list(x.shape)), got=list(self.mask_shape)
        )
        return x

    def forward(self, xp: Xp, x: Array, rng: Array) -> Array:
        draws = self.uniform.forward(xp, rng).reshape(self.mask_shape)
        return xp.where(draws >= self.rate, x * (1 / (1 - self.rate)), xp.zeros((), dtype=x.dtype))

    def decompose(self, x: Value, rng: Value) -> Value:
        draws = reshape_to(self.uniform(rng), self.mask_shape)
        return keep_where(draws, x * (1 / (1 - self.rate)), 0.0, self.rate)

    def simplify(self, x: Value, rng: Value) -> Value:
        return self.decompose(x, rng)  # elementwise ops, which fuse with adjacent ones

    def deterministic_form(self, inputs: Sequence[Value]) -> Value:
        return inputs[0]

    def flops(self, x: TensorType, rng: TensorType) -> int:
        return 2 * x.size
