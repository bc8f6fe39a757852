"""Matrix functions over the last two axes: triangular parts, determinants and inverses."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion, OnnxMap
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.elementwise import Where, scalar
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import Transpose
from netspec.graph.ops.source import constant
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value, require_precomputable


def _trilu_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, Trilu)
    supported = y.dtype.is_float or y.dtype in (DType.INT64, DType.BOOL)  # the types that ONNX Runtime supports
    wide = x if supported else g.node("Cast", x, to=DType.INT64)
    triangle = g.node("Trilu", wide, g.constant(op.k, "int64"), upper=int(op.upper))
    return triangle if supported else g.node("Cast", triangle, to=y.dtype)


@dataclass(frozen=True)
class Trilu(Op):
    """Matrices with zeros below diagonal k (0 is the main one, 1 the one above it), or above it if not `upper`."""

    upper: bool = True
    k: int = 0
    onnx = OnnxExpansion(_trilu_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        self.check(x.rank >= 2, "a triangle needs matrices", expected="2 axes or more", got=x)
        require_precomputable(prod(x.shape[-2:]), "elements in the matrix")  # `decompose` lists the kept elements
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return (xp.triu if self.upper else xp.tril)(x, self.k)

    def decompose(self, x: Value) -> Value:
        import numpy as np

        mask = (np.triu if self.upper else np.tril)(np.ones(x.shape[-2:], bool), self.k)
        return Where()(constant(mask), x, scalar(0, x.dtype))

    def simplify(self, x: Value) -> Value:
        return self.decompose(x)

    def flops(self, x: TensorType) -> int:
        return 0


def _check_square(op: Op, x: TensorType) -> None:
    op.check(
        x.rank >= 2 and x.shape[-1] == x.shape[-2] and x.dtype.is_float,
        f"{op.name} needs a square matrix of floats",
        expected="(…, n, n)",
        got=x,
    )


class Det(Op):
    """The determinant of each matrix: (…, n, n) → (…). The gradient of a singular matrix is NaN."""

    onnx = OnnxMap("Det")

    def infer(self, x: TensorType) -> TensorType:
        _check_square(self, x)
        return x.with_shape(*x.shape[:-2])

    def forward(self, xp: Xp, x: Array) -> Array:
        has_nan = xp.isnan(x).any(axis=(-2, -1))  # the library would warn about NaN
        return xp.where(has_nan, xp.nan, xp.linalg.det(xp.where(has_nan[..., None, None], 0, x))).astype(x.dtype)

    def vjp(self, y: Value, dy: Value) -> Grads:
        """d det X = det X · X⁻ᵀ"""
        (x,) = y.inputs
        order = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2)
        return (reshape_to(dy * y, (*y.shape, 1, 1)) * Transpose(order)(Inverse()(x)),)

    def flops(self, x: TensorType) -> int:
        return x.size * x.shape[-1]


class Inverse(Op):
    """The inverse of each matrix (…, n, n); NaN for singular ones."""

    onnx = GRADIENT

    def infer(self, x: TensorType) -> TensorType:
        _check_square(self, x)
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        has_nan = xp.isnan(x).any(axis=(-2, -1), keepdims=True)
        finite = xp.where(has_nan, 0, x)
        is_singular = xp.linalg.det(finite)[..., None, None] == 0
        return xp.where(
            is_singular, xp.nan, xp.linalg.inv(xp.where(is_singular, xp.eye(x.shape[-1], dtype=x.dtype), finite))
        )

    def vjp(self, y: Value, dy: Value) -> Grads:
        """-Y ᵀ dY Yᵀ"""
        return (-MatMul(True, False)(y, MatMul(False, True)(dy, y)),)

    def flops(self, x: TensorType) -> int:
        return 2 * x.size * x.shape[-1]
