"""Regression losses: distances between a prediction and its target."""

from __future__ import annotations

from math import log
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, Minimum, call_elementwise
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.unary import Abs, Log, Softplus, Sqrt
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.losses_and_metrics import ElementLosses, PairLoss, PredictionKind
from netspec.layers.targets import EPSILON, align_target
from netspec.schema.specs.kinds import LOSSES
from netspec.schema.specs.spec import Spec

SAMPLES = (
    Sample.of((4, 3), (4, 3)),
    Sample.of((4, 1), (4,), weight=(4,)),
    Sample.of((4, 1), (4,), dtypes=("float32", "int32")),
)


def cosines(builder: Builder, prediction: Value, target: Value, axis: int) -> Value:
    """The cosine of the angle between the vectors along `axis`; 0 if one of them is 0."""
    prediction, target = align_target(builder, prediction, target)
    axis = sample_axis(prediction, axis, "to compare along")
    return ReduceSum((axis,))(_unit(prediction, axis) * _unit(target, axis))


def _unit(x: Value, axis: int) -> Value:
    square = ReduceSum((axis,), keepdims=True)(x * x)
    return x / Sqrt()(call_elementwise(Maximum(), square, EPSILON**2))


@LOSSES.register
class MeanSquaredError(PairLoss):
    """Mean of (prediction - target)² over all elements.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["MeanSquaredError"] = "MeanSquaredError"
    prediction_kind: ClassVar[PredictionKind] = "values"

    samples: ClassVar = (
        *SAMPLES,
        Sample.of((4, 3), (4, 3), weight=(4, 1), reduction="mean_with_sample_weight"),
        Sample.of((4, 3), (4, 3), reduction="sum"),
        Sample.of((4, 3), (4, 3), weight=(4, 3), reduction="batch_size"),
        Sample.of((3, 2, 2), (3, 2, 2), weight=(3, 2), reduction="mean"),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        prediction, target = align_target(builder, prediction, target)
        error = prediction - target
        return ElementLosses.per_feature(error * error)


@LOSSES.register
class MeanAbsoluteError(PairLoss):
    """Mean of |prediction - target| over all elements.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["MeanAbsoluteError"] = "MeanAbsoluteError"
    prediction_kind: ClassVar[PredictionKind] = "values"

    samples: ClassVar = SAMPLES

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        prediction, target = align_target(builder, prediction, target)
        return ElementLosses.per_feature(Abs()(prediction - target))


@LOSSES.register
class MeanAbsolutePercentageError(PairLoss):
    """Mean of 100 · |prediction - target| / max(|target|, 1e-7) over all elements.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["MeanAbsolutePercentageError"] = "MeanAbsolutePercentageError"
    prediction_kind: ClassVar[PredictionKind] = "values"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), ranges=(None, (0.5, 2.0))),)

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        prediction, target = align_target(builder, prediction, target)
        return ElementLosses.per_feature(
            Abs()((prediction - target) / call_elementwise(Maximum(), Abs()(target), EPSILON)) * 100.0
        )


@LOSSES.register
class MeanSquaredLogarithmicError(PairLoss):
    """Mean of (ln(1 + prediction) - ln(1 + target))² over all elements.

    Prediction and target are not negative and have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["MeanSquaredLogarithmicError"] = "MeanSquaredLogarithmicError"
    prediction_kind: ClassVar[PredictionKind] = "values"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), ranges=((0.1, 3.0), (0.1, 2.0))),)

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        prediction, target = align_target(builder, prediction, target)
        first, second = (Log()(call_elementwise(Maximum(), x, EPSILON) + 1.0) for x in (prediction, target))
        return ElementLosses.per_feature((first - second) * (first - second))


@LOSSES.register
class LogCosh(PairLoss):
    """Mean of ln cosh(prediction - target) over all elements: quadratic for small errors, linear for large ones.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["LogCosh"] = "LogCosh"
    prediction_kind: ClassVar[PredictionKind] = "values"

    samples: ClassVar = SAMPLES[:1]

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        prediction, target = align_target(builder, prediction, target)
        error = prediction - target
        return ElementLosses.per_feature(error + Softplus()(error * -2.0) - log(2.0))


@LOSSES.register
class Huber(PairLoss):
    """Mean of ½e² if |e| ≤ δ, else δ|e| - ½δ², over all errors e = prediction - target.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted. Huber 1964. (PyTorch's SmoothL1Loss is
    this divided by δ.)
    """

    type: Literal["Huber"] = "Huber"
    prediction_kind: ClassVar[PredictionKind] = "values"
    delta: float = Field(default=1.0, gt=0)
    """Threshold δ: larger errors count linearly, smaller ones quadratically."""

    samples: ClassVar = (*SAMPLES[:2], Sample.of((4, 3), (4, 3), delta=0.4))

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        prediction, target = align_target(builder, prediction, target)
        size = Abs()(prediction - target)
        within = call_elementwise(Minimum(), size, self.delta)
        return ElementLosses.per_feature(within * (size - within * 0.5))


@LOSSES.register
class Euclidean(PairLoss):
    """Mean of ½ Σ (prediction - target)² over the samples: Caffe's EuclideanLoss.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["Euclidean"] = "Euclidean"
    prediction_kind: ClassVar[PredictionKind] = "values"

    samples: ClassVar = (Sample.of((4, 3, 2), (4, 3, 2)), Sample.of((4,), (4,), weight=(4,)))

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N)."""
        prediction, target = align_target(builder, prediction, target)
        squares = (prediction - target) * (prediction - target)
        return ElementLosses(ReduceSum(tuple(range(1, len(squares.shape))))(squares) * 0.5)


class CosineAxis(Spec):
    """Axis field of losses and metrics of angles."""

    axis: int = -1
    """The axis of the vectors."""


@LOSSES.register
class CosineSimilarity(CosineAxis, PairLoss):
    """Mean of -cos of the angle between prediction and target over all vectors: -1 if they point the same way.

    Prediction and target have one shape (N, …, C, …) and hold vectors along `axis`.
    """

    type: Literal["CosineSimilarity"] = "CosineSimilarity"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), weight=(4,)),
        Sample.of((2, 3, 2), (2, 3, 2), axis=1),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …, C, …) → (N, …)."""
        return ElementLosses(-cosines(builder, prediction, target, self.axis))
