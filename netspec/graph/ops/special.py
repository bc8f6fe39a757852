"""Special functions: the error function, and the activation that is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion, OnnxMap
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.elementwise import ELEMENTWISE
from netspec.graph.ops.functions import Exp, Unary
from netspec.graph.types import TensorType
from netspec.graph.value import Value

# Coefficients of the rational approximations, highest power first: erf(x) = x · P(x²) / Q(x²) for |x| ≤ 0.46875, and
# erfc(y) = e^(-y²) · R(y) / S(y) above.
P = (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3)
Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
R = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
    2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip
S = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
NEAR = 0.46875
END = 28.0
"""From here on e^(-x²) is 0 in float64 too, and erf 1."""


@dataclass(frozen=True)
class Erf(Unary):
    """erf x = 2/√π · ∫₀ˣ e^(-t²) dt, within 4.5e-16 in float64.

    W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), 631-637.
    """

    onnx = OnnxMap("Erf")

    def forward(self, xp: Xp, x: Array) -> Array:
        return _erf(xp, x)[0]

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (dy * Exp()(-(x * x)) * (2 / sqrt(pi)),)


def _erf(xp: Xp, x: Array) -> tuple[Array, Array]:
    """erf x, and e^(-x²), which it is made of."""
    y = xp.minimum(xp.abs(x), END)
    square = y * y
    tail = xp.exp(-square)
    near = y * (_polynomial(P, square) / _polynomial(Q, square))
    far = 1 - tail * (_polynomial(R, y) / _polynomial(S, y))
    return xp.sign(x) * xp.where(y <= NEAR, near, far), tail


def _gelu_to_onnx(g: Emitter, y: Value, x: str) -> str:
    half, one, root = (g.constant(value, str(y.dtype)) for value in (0.5, 1.0, sqrt(0.5)))
    share = g.node("Add", g.node("Erf", g.node("Mul", x, root)), one)
    return g.node("Mul", g.node("Mul", x, half), share)


@dataclass(frozen=True)
class Gelu(Unary):
    """x · Φ(x), Φ the distribution function of the normal distribution: ½ x (1 + erf(x/√2)).

    Hendrycks and Gimpel 2016, arXiv:1606.08415; not the form with tanh, which is an approximation of it.
    """

    onnx = OnnxExpansion(_gelu_to_onnx)

    def forward(self, xp: Xp, x: Array) -> Array:
        return x * (0.5 * (1 + _erf(xp, x * sqrt(0.5))[0]))

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (GeluGrad()(y.inputs[0], dy),)


@dataclass(frozen=True)
class GeluGrad(Op):
    """The gradient of `Gelu` from x and dy: dy · (Φ(x) + x e^(-x²/2) / √(2π)); one exponential serves both terms."""

    traits = ELEMENTWISE
    onnx = GRADIENT

    def infer(self, x: TensorType, dy: TensorType) -> TensorType:
        self.check(dy == x, "the gradient is not of the operand's type", expected=str(x), got=dy)
        return x

    def forward(self, xp: Xp, x: Array, dy: Array) -> Array:
        erf, tail = _erf(xp, x * sqrt(0.5))
        return dy * (0.5 * (1 + erf) + x * tail * (1 / sqrt(2 * pi)))

    def decompose(self, x: Value, dy: Value) -> Value:
        return dy * ((Erf()(x * sqrt(0.5)) + 1.0) * 0.5 + x * Exp()(x * x * -0.5) * (1 / sqrt(2 * pi)))


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """The polynomial at x, by Horner's rule."""
    total = coefficients[0] * x + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total
