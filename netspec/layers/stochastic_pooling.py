"""StochasticPooling2D: a number of each window, drawn by their sizes. Zeiler & Fergus 2013, arXiv:1301.3557."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Maximum, elementwise
from netspec.graph.ops.functions import Log
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.pooling import AveragePool, MaxPool, MaxPoolGather, OverImages
from netspec.schema.kinds import LAYERS

LEAST_UNIFORM = 2.0**-32
"""Takes the place of a random number 0, which has no logarithm."""
LEAST_SUM = 1.1754943508222875e-38
"""The smallest normal float32, added to what is divided by: where all numbers are 0, so is the result."""


@LAYERS.register
class StochasticPooling2D(OverImages):
    """In training one number under each window, drawn with a probability in proportion to its size; else their mean.

    Input (N, C, H, W) of numbers not below 0, as ReLU makes them, output (N, C, OH, OW). The mean of the inference
    form weighs each number by itself: Σx² / Σx. The number drawn gets the gradient.
    """

    one_way: ClassVar[str | None] = "ONNX has no such operator: it is written as a quotient of averages"

    type: Literal["StochasticPooling2D"] = "StochasticPooling2D"

    samples: ClassVar = (
        Sample.of((2, 3, 4, 5), ranges=((0.1, 2.0),)),
        Sample.of((1, 2, 5, 6), pool_size=3, strides=2, padding="same", ranges=((0.1, 2.0),)),
    )

    def build(self, net: Builder, x: Value) -> Value:
        """x: (N, C, H, W) → (N, C, OH, OW)."""
        window, x = self.window(x), net.floating(x)
        if not net.training:
            return AveragePool(window)(x * x) / (AveragePool(window)(x) + LEAST_SUM)
        # Of numbers divided by exponentially distributed ones each is the greatest with the probability wanted.
        waiting = -Log()(elementwise(Maximum(), net.uniform(x.shape), LEAST_UNIFORM))
        _, place = MaxPool(window).many(x / waiting)
        return MaxPoolGather(window)(x, place)
