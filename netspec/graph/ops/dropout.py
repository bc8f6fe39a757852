"""Dropout: zeros at random places.

Srivastava et al. 2014, JMLR 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Op, Traits, Xp
from netspec.graph.ops.elementwise import GreaterOrEqual, Where, elementwise
from netspec.graph.ops.random import RandomUniform
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.types import TensorType, broadcast_shapes
from netspec.graph.value import Operand, Value


def kept(draws: Value, x: Operand, otherwise: Operand, rate: float) -> Value:
    """`x` where the uniform numbers `draws` are at least `rate`, else `otherwise`; all of them broadcast."""
    return elementwise(Where(), elementwise(GreaterOrEqual(), draws, rate), x, otherwise)


def _to_onnx(g: Emitter, y: Value, x: str, rng: str) -> str:
    """One node, which draws for itself; numbers dropped together are multiplied by the Dropout of ones."""
    op = y.op
    assert isinstance(op, Dropout)
    ratio, training = g.constant(op.rate, "float32"), g.constant(True, "bool")
    if op.places == y.shape:
        return g.node("Dropout", x, ratio, training, seed=op.uniform.stream)
    together = [size == 1 != whole for size, whole in zip(op.places, y.shape, strict=True)]
    sizes = g.node("Where", g.constant(together, "bool"), g.constant([1] * len(together), "int64"), g.node("Shape", x))
    ones = g.node("Expand", g.constant(1.0, str(y.dtype)), sizes)
    return g.node("Mul", x, g.node("Dropout", ones, ratio, training, seed=op.uniform.stream))


@dataclass(frozen=True)
class Dropout(Op):
    """x with a share `rate` of its numbers set to 0 at random and the others scaled by 1 / (1 - rate).

    There is one draw of `uniform` for each place of `places`, which broadcasts to the shape of x. In ONNX the operator
    of this name draws: the numbers are others, distributed alike.
    """

    rate: float
    uniform: RandomUniform
    places: tuple[int, ...]
    traits = Traits(rounds=(0,))
    onnx = OnnxExpansion(_to_onnx)

    def infer(self, x: TensorType, rng: TensorType) -> TensorType:
        """x, the state of the random numbers → as x."""
        self.uniform.infer(rng)
        fits = len(self.places) == x.rank and broadcast_shapes(self.places, x.shape) == x.shape
        self.check(fits, "the draws do not fit", expected=str(list(x.shape)), got=list(self.places))
        return x

    def forward(self, xp: Xp, x: Array, rng: Array) -> Array:
        draws = self.uniform.forward(xp, rng).reshape(self.places)
        return xp.where(draws >= self.rate, x * (1 / (1 - self.rate)), xp.zeros((), dtype=x.dtype))

    def decompose(self, x: Value, rng: Value) -> Value:
        draws = reshape_to(self.uniform(rng), self.places)
        return kept(draws, x * (1 / (1 - self.rate)), 0.0, self.rate)

    def simplified(self, x: Value, rng: Value) -> Value:
        return self.decompose(x, rng)  # elementwise, so that it is fused with what is around it

    def undrawn(self, inputs: Sequence[Value]) -> Value:
        return inputs[0]

    def flops(self, x: TensorType, rng: TensorType) -> int:
        return 2 * x.size
