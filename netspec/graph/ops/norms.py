"""Reductions that apply a function to a sum: L2 norm, log-sum, log-sum-exp."""

from __future__ import annotations

from math import inf

from netspec.graph.op import Array, Xp
from netspec.graph.ops.elementwise import Greater, Where, call_elementwise, scalar
from netspec.graph.ops.reduce import ReduceMax, ReduceSum, Reduction, onnx_reduction, reshape_to
from netspec.graph.ops.unary import Abs, Exp, Log, Sqrt
from netspec.graph.value import Value


class ComposedReduction(Reduction):
    """Base of reductions that are computed by simpler ops but are one node in ONNX."""

    def simplify(self, x: Value) -> Value:
        result = self.decompose(x)
        assert isinstance(result, Value), "one result is one value"
        return result


class ReduceL2(ComposedReduction):
    """√Σ x², the L2 norm"""

    onnx = onnx_reduction("ReduceL2")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.sqrt((x * x).sum(axis=self.axes, keepdims=self.keepdims, dtype=x.dtype))

    def decompose(self, x: Value) -> Value:
        return Sqrt()(ReduceSum(self.axes, self.keepdims)(x * x))


class ReduceLogSum(ComposedReduction):
    """ln Σ x"""

    onnx = onnx_reduction("ReduceLogSum")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.log(x.sum(axis=self.axes, keepdims=self.keepdims, dtype=x.dtype))

    def decompose(self, x: Value) -> Value:
        return Log()(ReduceSum(self.axes, self.keepdims)(x))


class ReduceLogSumExp(ComposedReduction):
    """ln Σ eˣ, shifted by the maximum so that nothing overflows"""

    onnx = onnx_reduction("ReduceLogSumExp")

    def forward(self, xp: Xp, x: Array) -> Array:
        maximum = x.max(axis=self.axes, keepdims=True)
        shift = xp.where(xp.abs(maximum) == inf, 0, maximum).astype(x.dtype)
        sums = xp.log(xp.exp(x - shift).sum(axis=self.axes, keepdims=True)) + shift
        return (
            sums
            if self.keepdims
            else sums.reshape([n for k, n in enumerate(x.shape) if k not in self._reduced_axes(x)])
        )

    def _reduced_axes(self, x: Array) -> tuple[int, ...]:
        return tuple(range(x.ndim)) if self.axes is None else tuple(axis % x.ndim for axis in self.axes)

    def decompose(self, x: Value) -> Value:
        maximum = ReduceMax(self.axes, keepdims=True)(x)
        finite = call_elementwise(Greater(), inf, Abs()(maximum))
        shift = Where()(finite, maximum, scalar(0.0, x.dtype))  # an infinite maximum is not shifted
        sums = Log()(ReduceSum(self.axes, keepdims=True)(Exp()(x - shift))) + shift
        return reshape_to(sums, self.infer(x.type).shape)
