"""Sine, cosine and the inverse of the tangent."""

from __future__ import annotations

from netspec.graph.onnx_map import OnnxMap
from netspec.graph.op import Array, Grads, Xp
from netspec.graph.ops.functions import Unary
from netspec.graph.value import Value


class Sin(Unary):
    """sin x, of radians"""

    onnx = OnnxMap("Sin")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.sin(x)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy * Cos()(y.inputs[0]),)


class Cos(Unary):
    """cos x, of radians"""

    onnx = OnnxMap("Cos")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.cos(x)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (-dy * Sin()(y.inputs[0]),)


class Atan(Unary):
    """The angle in (-π/2, π/2) whose tangent is x"""

    onnx = OnnxMap("Atan")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.arctan(x)

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        return (dy / (1.0 + x * x),)


def tan(x: Value) -> Value:
    """tan x = sin x / cos x"""
    return Sin()(x) / Cos()(x)
