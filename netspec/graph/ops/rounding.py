"""Rounding, and tests for NaN and infinity: ops without gradient."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from netspec.graph.onnx_map import OnnxMap, integer
from netspec.graph.op import Array, NoGradient, Traits, Xp
from netspec.graph.ops.unary import Unary
from netspec.graph.types import DType, TensorType


class Floor(NoGradient, Unary):
    """Largest integer not above x"""

    onnx = OnnxMap("Floor")
    function = "floor"


class Ceil(NoGradient, Unary):
    """Smallest integer not below x"""

    onnx = OnnxMap("Ceil")
    function = "ceil"


class Round(NoGradient, Unary):
    """Nearest integer, rounding half to even"""

    onnx = OnnxMap("Round")
    function = "rint"


class FloatPredicate(NoGradient, Unary):
    """Base of predicates on floats: the results are bool."""

    traits = Traits(elementwise=True)

    def infer(self, x: TensorType) -> TensorType:
        return super().infer(x).with_dtype(DType.BOOL)


class IsNaN(FloatPredicate):
    """Whether x is NaN"""

    onnx = OnnxMap("IsNaN")

    def forward(self, xp: Xp, x: Array) -> Array:
        return x != x  # noqa: PLR0124  only NaN differs from itself


@dataclass(frozen=True)
class IsInf(FloatPredicate):
    """Whether x is infinite and has one of the selected signs"""

    negative: bool = True
    positive: bool = True
    onnx = OnnxMap("IsInf", detect_negative=integer("negative"), detect_positive=integer("positive"))

    def forward(self, xp: Xp, x: Array) -> Array:
        is_negative, is_positive = (x == -inf), (x == inf)
        if self.negative and self.positive:
            return is_negative | is_positive
        return is_positive if self.positive else is_negative if self.negative else x < x  # noqa: PLR0124  always False
