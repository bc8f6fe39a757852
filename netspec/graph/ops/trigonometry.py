"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from netspec.graph.onnx_map import OnnxMap
from netspec.graph.op import Grads
from netspec.graph.ops.unary import Sqrt, Unary
from netspec.graph.value import Value


class Sin(Unary):
    """sin x, x in radians"""

    onnx = OnnxMap("Sin")
    function = "sin"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * Cos()(y.inputs[0]),)


class Cos(Unary):
    """cos x, x in radians"""

    onnx = OnnxMap("Cos")
    function = "cos"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (-dy * Sin()(y.inputs[0]),)


class Asin(Unary):
    """The angle in [-π/2, π/2] whose sine is x"""

    onnx = OnnxMap("Asin")
    function = "arcsin"

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (dy / Sqrt()((1.0 - x) * (1.0 + x)),)


class Acos(Unary):
    """The angle in [0, π] whose cosine is x"""

    onnx = OnnxMap("Acos")
    function = "arccos"

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (-dy / Sqrt()((1.0 - x) * (1.0 + x)),)


class Atan(Unary):
    """The angle in (-π/2, π/2) whose tangent is x"""

    onnx = OnnxMap("Atan")
    function = "arctan"

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (dy / (1.0 + x * x),)


class Sinh(Unary):
    """(eˣ - e⁻ˣ) / 2"""

    onnx = OnnxMap("Sinh")
    function = "sinh"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * Cosh()(y.inputs[0]),)


class Cosh(Unary):
    """(eˣ + e⁻ˣ) / 2"""

    onnx = OnnxMap("Cosh")
    function = "cosh"

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * Sinh()(y.inputs[0]),)


class Asinh(Unary):
    """Inverse of sinh: ln(x + √(x² + 1))"""

    onnx = OnnxMap("Asinh")
    function = "arcsinh"

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (dy / Sqrt()(x * x + 1.0),)


class Acosh(Unary):
    """Inverse of cosh, for x ≥ 1; the result is 0 or more"""

    onnx = OnnxMap("Acosh")
    function = "arccosh"

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (dy / Sqrt()((x - 1.0) * (x + 1.0)),)


class Atanh(Unary):
    """Inverse of tanh, for -1 < x < 1"""

    onnx = OnnxMap("Atanh")
    function = "arctanh"

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (dy / ((1.0 - x) * (1.0 + x)),)


def tan(x: Value) -> Value:
    """tan x = sin x / cos x"""
    return Sin()(x) / Cos()(x)
