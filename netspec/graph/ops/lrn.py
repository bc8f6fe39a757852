"""Local response normalization. Krizhevsky, Sutskever and Hinton 2012, section 3.3."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add
from typing import Any

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.elementwise import Pow
from netspec.graph.ops.pooling import AveragePool
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import PadAxis
from netspec.graph.ops.window import Window
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class LRNBase(Op):
    """Base of both ops: sums over a window of `size` channels around each channel, cut off at the first and last.

    A window of even size has one more channel before than after, as in PyTorch.
    """

    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    traits = Traits(narrowable_outputs=(0,))

    @property
    def before(self) -> int:
        """Number of channels in the window before its center."""
        return self.size // 2

    @property
    def after(self) -> int:
        """Number of channels in the window after its center."""
        return (self.size - 1) // 2

    @property
    def share(self) -> float:
        """The factor of the sum of squares: α / size."""
        return self.alpha / self.size

    def window(self, transposed: bool) -> tuple[int, int]:
        """Numbers of channels before and after c in c's window or, if `transposed`, whose windows contain c."""
        return (self.after, self.before) if transposed else (self.before, self.after)

    def sums(self, xp: Xp, x: Array, transposed: bool = False) -> Array:
        """Sum of `x` over each channel's window."""
        padded = xp.pad(x, [(0, 0), self.window(transposed), *((0, 0),) * (x.ndim - 2)])
        return reduce(add, (padded[:, k : k + x.shape[1]] for k in range(self.size)))

    def means(self, x: Value, transposed: bool = False) -> Value:
        """Mean of `x` over each channel's window, as graph values: `sums` / size."""
        column = reshape_to(x, (x.shape[0], 1, x.shape[1], prod(x.shape[2:])))
        padded = PadAxis(2, *self.window(transposed))(column)
        window = Window.of(padded.shape[2:], (self.size, 1), (1, 1), "valid")
        return reshape_to(AveragePool(window)(padded), x.shape)


def _lrn_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, LRN)
    attributes: dict[str, Any] = {"size": op.size, "alpha": op.alpha, "beta": op.beta, "bias": op.bias}
    if len(y.shape) == 4:
        return g.node("LRN", x, **attributes)
    image = g.node("Reshape", x, g.constant([0, 0, -1, 1], "int64"))  # ONNX Runtime supports LRN for images only
    return g.node("Reshape", g.node("LRN", image, **attributes), g.constant([0, *y.shape[1:]], "int64"))


class LRN(LRNBase):
    """Local response normalization across channels: y[c] = x[c] · (bias + α/size · Σ x[c']²)^-β.

    The sum is over the `size` channels c' around c. ONNX's LRN has one more channel after c than before it if the size
    is even, and ONNX Runtime takes odd sizes only.
    """

    onnx = OnnxExpansion(_lrn_to_onnx, accepts=lambda op: op.size % 2 == 1)

    def infer(self, x: TensorType) -> TensorType:
        """x: (N, C, …) → (N, C, …)."""
        self.check(x.rank >= 2, "there is no axis of channels", expected="(batch, channels, …)", got=x)
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return x * (self.bias + self.share * self.sums(xp, x * x)) ** -self.beta

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (LRNGrad(self.size, self.alpha, self.beta, self.bias)(x, dy),)

    def decompose(self, x: Value) -> Value:
        return x * Pow(-self.beta)(self.means(x * x) * self.alpha + self.bias)

    def flops(self, x: TensorType) -> int:
        return (2 * self.size + 5) * x.size


class LRNGrad(LRNBase):
    """Gradient of `LRN` for y = x · s^-β: x, dy → dx = dy · s^-β - 2αβ/size · x · Σ dy · x · s^(-β-1).

    The sum is over the channels whose window contains this one.
    """

    onnx = GRADIENT

    def infer(self, x: TensorType, dy: TensorType) -> TensorType:
        """x, dy: (N, C, …) → (N, C, …)."""
        self.check(dy == x, "the gradient must have the operand's type", expected=str(x), got=dy)
        return x

    def forward(self, xp: Xp, x: Array, dy: Array) -> Array:
        scale = self.bias + self.share * self.sums(xp, x * x)
        direct = dy * scale**-self.beta
        return direct - 2 * self.share * self.beta * x * self.sums(xp, direct * x / scale, transposed=True)

    def decompose(self, x: Value, dy: Value) -> Value:
        scale = self.means(x * x) * self.alpha + self.bias
        direct = dy * Pow(-self.beta)(scale)
        return direct - x * self.means(direct * x / scale, transposed=True) * (2 * self.alpha * self.beta)

    def flops(self, x: TensorType, dy: TensorType) -> int:
        return (3 * self.size + 11) * x.size
