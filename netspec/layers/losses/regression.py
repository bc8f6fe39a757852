"""Losses of numbers: how far a prediction is from its target. Those that metrics measure too are mixins."""

from __future__ import annotations

from math import log
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, Minimum, elementwise
from netspec.graph.ops.functions import Abs, Log, Softplus, Sqrt
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.judging import Judged, PairLoss
from netspec.layers.targets import EPSILON, alike
from netspec.schema.kinds import LOSSES
from netspec.schema.spec import Spec

SAMPLES = (
    Sample.of((4, 3), (4, 3)),
    Sample.of((4, 1), (4,), weight=(4,)),
    Sample.of((4, 1), (4,), dtypes=("float32", "int32")),
)


def squared_errors(net: Builder, prediction: Value, target: Value) -> Judged:
    """(prediction - target)² of each number."""
    prediction, target = alike(net, prediction, target)
    error = prediction - target
    return Judged.numbers(error * error)


def absolute_errors(net: Builder, prediction: Value, target: Value) -> Judged:
    """|prediction - target| of each number."""
    prediction, target = alike(net, prediction, target)
    return Judged.numbers(Abs()(prediction - target))


def percentage_errors(net: Builder, prediction: Value, target: Value) -> Judged:
    """100 · |prediction - target| / |target| of each number."""
    prediction, target = alike(net, prediction, target)
    return Judged.numbers(Abs()((prediction - target) / elementwise(Maximum(), Abs()(target), EPSILON)) * 100.0)


def logarithmic_errors(net: Builder, prediction: Value, target: Value) -> Judged:
    """(ln(1 + prediction) - ln(1 + target))² of each number, negative ones taken for 0."""
    prediction, target = alike(net, prediction, target)
    first, second = (Log()(elementwise(Maximum(), one, EPSILON) + 1.0) for one in (prediction, target))
    return Judged.numbers((first - second) * (first - second))


def log_cosh_errors(net: Builder, prediction: Value, target: Value) -> Judged:
    """ln cosh(prediction - target) of each number."""
    prediction, target = alike(net, prediction, target)
    error = prediction - target
    return Judged.numbers(error + Softplus()(error * -2.0) - log(2.0))


def cosines(net: Builder, prediction: Value, target: Value, axis: int) -> Value:
    """The cosine of the angle between the vectors along `axis`; 0 where one of them is 0."""
    prediction, target = alike(net, prediction, target)
    axis = sample_axis(prediction, axis, "to compare along")
    return ReduceSum((axis,))(_unit(prediction, axis) * _unit(target, axis))


def _unit(x: Value, axis: int) -> Value:
    square = ReduceSum((axis,), keepdims=True)(x * x)
    return x / Sqrt()(elementwise(Maximum(), square, EPSILON**2))


@LOSSES.register
class MeanSquaredError(PairLoss):
    """Mean of (prediction - target)² over all numbers.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanSquaredError"] = "MeanSquaredError"

    samples: ClassVar = (
        *SAMPLES,
        Sample.of((4, 3), (4, 3), weight=(4, 1), reduction="mean_with_sample_weight"),
        Sample.of((4, 3), (4, 3), reduction="sum"),
        Sample.of((4, 3), (4, 3), weight=(4, 3), reduction="batch_size"),
        Sample.of((3, 2, 2), (3, 2, 2), weight=(3, 2), reduction="mean"),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return squared_errors(net, prediction, target)


@LOSSES.register
class MeanAbsoluteError(PairLoss):
    """Mean of |prediction - target| over all numbers.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanAbsoluteError"] = "MeanAbsoluteError"

    samples: ClassVar = SAMPLES

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return absolute_errors(net, prediction, target)


@LOSSES.register
class MeanAbsolutePercentageError(PairLoss):
    """Mean of 100 · |prediction - target| / |target| over all numbers.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted. |target| is taken for at least 1e-7.
    """

    type: Literal["MeanAbsolutePercentageError"] = "MeanAbsolutePercentageError"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), ranges=(None, (0.5, 2.0))),)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return percentage_errors(net, prediction, target)


@LOSSES.register
class MeanSquaredLogarithmicError(PairLoss):
    """Mean of (ln(1 + prediction) - ln(1 + target))² over all numbers.

    Prediction and target of one shape (N, …), not negative; (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanSquaredLogarithmicError"] = "MeanSquaredLogarithmicError"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), ranges=((0.1, 3.0), (0.1, 2.0))),)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return logarithmic_errors(net, prediction, target)


@LOSSES.register
class LogCosh(PairLoss):
    """Mean of ln cosh(prediction - target) over all numbers: half the square of small errors, the size of large ones.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["LogCosh"] = "LogCosh"

    samples: ClassVar = SAMPLES[:1]

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return log_cosh_errors(net, prediction, target)


@LOSSES.register
class Huber(PairLoss):
    """Mean of ½e² where |e| ≤ δ, else δ|e| - ½δ², over all errors e = prediction - target.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted. Huber 1964. (PyTorch's SmoothL1Loss is
    this divided by δ.)
    """

    type: Literal["Huber"] = "Huber"
    delta: float = Field(default=1.0, gt=0)
    """δ, from which on errors count by their size, no longer by their square"""

    samples: ClassVar = (*SAMPLES[:2], Sample.of((4, 3), (4, 3), delta=0.4))

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        prediction, target = alike(net, prediction, target)
        size = Abs()(prediction - target)
        within = elementwise(Minimum(), size, self.delta)
        return Judged.numbers(within * (size - within * 0.5))


@LOSSES.register
class Euclidean(PairLoss):
    """½ Σ (prediction - target)² of each sample, averaged over the samples: Caffe's EuclideanLoss.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["Euclidean"] = "Euclidean"

    samples: ClassVar = (Sample.of((4, 3, 2), (4, 3, 2)), Sample.of((4,), (4,), weight=(4,)))

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N)."""
        squares = squared_errors(net, prediction, target).values
        return Judged(ReduceSum(tuple(range(1, len(squares.shape))))(squares) * 0.5)


class CosineAxis(Spec):
    """Which axis the vectors lie along whose angle is measured."""

    axis: int = -1
    """the axis that vectors lie along"""


@LOSSES.register
class CosineSimilarity(CosineAxis, PairLoss):
    """-cos of the angle between prediction and target, averaged over all vectors: -1 where they point the same way.

    Prediction and target of one shape (N, …, C, …), vectors along `axis`.
    """

    type: Literal["CosineSimilarity"] = "CosineSimilarity"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), weight=(4,)),
        Sample.of((2, 3, 2), (2, 3, 2), axis=1),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C, …) → (N, …)."""
        return Judged(-cosines(net, prediction, target, self.axis))
