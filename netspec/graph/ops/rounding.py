"""Floats made whole numbers, and floats that are none: these have no gradient."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from netspec.graph.onnx_map import OnnxMap, integer
from netspec.graph.op import Array, NoGradient, Traits, Xp
from netspec.graph.ops.functions import Unary
from netspec.graph.types import DType, TensorType


class Floor(NoGradient, Unary):
    """The greatest whole number that is not above x"""

    onnx = OnnxMap("Floor")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.floor(x)


class Ceil(NoGradient, Unary):
    """The least whole number that is not below x"""

    onnx = OnnxMap("Ceil")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.ceil(x)


class Round(NoGradient, Unary):
    """The whole number next to x; of two the even one"""

    onnx = OnnxMap("Round")

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.rint(x)


class Classified(NoGradient, Unary):
    """Base of questions about one float: the answers are bool."""

    traits = Traits(elementwise=True)

    def infer(self, x: TensorType) -> TensorType:
        return super().infer(x).with_dtype(DType.BOOL)


class IsNaN(Classified):
    """Whether x is no number"""

    onnx = OnnxMap("IsNaN")

    def forward(self, xp: Xp, x: Array) -> Array:
        return x != x  # noqa: PLR0124  which of all things only NaN is


@dataclass(frozen=True)
class IsInf(Classified):
    """Whether x is infinite, to the sides that are asked about"""

    negative: bool = True
    positive: bool = True
    onnx = OnnxMap("IsInf", detect_negative=integer("negative"), detect_positive=integer("positive"))

    def forward(self, xp: Xp, x: Array) -> Array:
        least, most = (x == -inf), (x == inf)
        if self.negative and self.positive:
            return least | most
        return most if self.positive else least if self.negative else x < x  # noqa: PLR0124  which is never
