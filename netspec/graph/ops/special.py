"""Special functions: the error function, GELU, and the quantile of the normal distribution."""

from __future__ import annotations

from math import pi, sqrt

from netspec.graph.onnx_map import GRADIENT, Emitter, NoOnnxForm, OnnxExpansion, OnnxMap
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.elementwise import ELEMENTWISE
from netspec.graph.ops.unary import Exp, Unary
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
ERF_SPLIT = 0.46875
ERF_SATURATION = 28.0
"""Value of x from which on e^(-x²) is 0 and erf is 1, in float64 too."""


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
    """erf x, and the factor e^(-x²), which is computed on the way."""
    y = xp.minimum(xp.abs(x), ERF_SATURATION)
    square = y * y
    tail = xp.exp(-square)
    near = y * (_polynomial(P, square) / _polynomial(Q, square))
    far = 1 - tail * (_polynomial(R, y) / _polynomial(S, y))
    return xp.sign(x) * xp.where(y <= ERF_SPLIT, near, far), tail


def _gelu_to_onnx(g: Emitter, y: Value, x: str) -> str:
    half, one, root = (g.constant(value, str(y.dtype)) for value in (0.5, 1.0, sqrt(0.5)))
    twice_probability = g.node("Add", g.node("Erf", g.node("Mul", x, root)), one)
    return g.node("Mul", g.node("Mul", x, half), twice_probability)


class Gelu(Unary):
    """x · Φ(x), where Φ is the normal distribution function: ½ x (1 + erf(x/√2)).

    Hendrycks and Gimpel 2016, arXiv:1606.08415. This is the exact form, not the tanh approximation.
    """

    onnx = OnnxExpansion(_gelu_to_onnx)

    def forward(self, xp: Xp, x: Array) -> Array:
        return x * (0.5 * (1 + _erf(xp, x * sqrt(0.5))[0]))

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (GeluGrad()(y.inputs[0], dy),)


class GeluGrad(Op):
    """The gradient of `Gelu` from x and dy: dy · (Φ(x) + x e^(-x²/2) / √(2π)); both terms share an exponential."""

    traits = ELEMENTWISE
    onnx = GRADIENT

    def infer(self, x: TensorType, dy: TensorType) -> TensorType:
        self.check(dy == x, "the gradient must have the operand's type", expected=str(x), got=dy)
        return x

    def forward(self, xp: Xp, x: Array, dy: Array) -> Array:
        erf, tail = _erf(xp, x * sqrt(0.5))
        return dy * (0.5 * (1 + erf) + x * tail * (1 / sqrt(2 * pi)))

    def decompose(self, x: Value, dy: Value) -> Value:
        return dy * ((Erf()(x * sqrt(0.5)) + 1.0) * 0.5 + x * Exp()(x * x * -0.5) * (1 / sqrt(2 * pi)))


# Coefficients of algorithm AS 241 (PPND16), highest power first: A / B for |q| ≤ 0.425, C / D beyond.
A = (
    2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
    1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0,
)  # fmt: skip
B = (
    5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
    5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0,
)  # fmt: skip
C = (
    7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
    3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0,
)  # fmt: skip
D = (
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
    6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0,
)  # fmt: skip


class NormalQuantile(Unary):
    """Φ⁻¹(½ + q), the quantile of the normal distribution, for |q| ≤ ½ - 10⁻¹¹.

    Maps uniform numbers to normal ones. Within 1e-15 in float64: M. J. Wichura, "Algorithm AS 241: The Percentage
    Points of the Normal Distribution", Applied Statistics 37 (1988), 477-484; without its third branch.
    """

    onnx = NoOnnxForm("only training graphs have random numbers")

    def forward(self, xp: Xp, q: Array) -> Array:
        square = 0.180625 - q * q
        near = q * (_polynomial(A, square) / _polynomial(B, square))
        tail = xp.sqrt(-xp.log(0.5 - xp.abs(q))) - 1.6
        far = xp.sign(q) * (_polynomial(C, tail) / _polynomial(D, tail))
        return xp.where(xp.abs(q) <= 0.425, near, far)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * Exp()(y * y * 0.5) * sqrt(2 * pi),)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Evaluate a polynomial by Horner's rule."""
    total = coefficients[0] * x + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total
