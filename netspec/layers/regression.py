"""Distances between numbers, as a loss and as metrics: MeanSquaredError, MeanAbsoluteError."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import scalar
from netspec.graph.ops.functions import Abs
from netspec.graph.ops.reduce import ReduceMean, ReduceSum
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LossSpec, MetricSpec, Sample
from netspec.layers.targets import alike
from netspec.schema.kinds import LOSSES, METRICS

SAMPLES = (
    Sample.of((4, 3), (4, 3)),
    Sample.of((4, 1), (4,)),
    Sample.of((4,), (4, 1), dtypes=("float32", "int32")),
)


@LOSSES.register
class MeanSquaredError(LossSpec):
    """Mean of (prediction - target)² over all numbers.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanSquaredError"] = "MeanSquaredError"

    samples: ClassVar = SAMPLES

    def build(self, net: Builder, prediction: Value, target: Value) -> Value:
        """prediction, target: (N, …) → scalar."""
        prediction, target = alike(net, prediction, target)
        error = prediction - target
        return ReduceMean()(error * error)


@LOSSES.register
class MeanAbsoluteError(LossSpec):
    """Mean of |prediction - target| over all numbers.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanAbsoluteError"] = "MeanAbsoluteError"

    samples: ClassVar = SAMPLES

    def build(self, net: Builder, prediction: Value, target: Value) -> Value:
        """prediction, target: (N, …) → scalar."""
        prediction, target = alike(net, prediction, target)
        return ReduceMean()(Abs()(prediction - target))


def _summed(values: Value) -> tuple[Value, Value]:
    return ReduceSum()(values), scalar(prod(values.shape), DType.INT64)


@METRICS.register
class MeanSquaredErrorMetric(MetricSpec):
    """Mean of (prediction - target)² over all numbers of the set.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanSquaredError"] = "MeanSquaredError"

    samples: ClassVar = SAMPLES

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → sum, count."""
        prediction, target = alike(net, prediction, target)
        error = prediction - target
        return _summed(error * error)


@METRICS.register
class MeanAbsoluteErrorMetric(MetricSpec):
    """Mean of |prediction - target| over all numbers of the set.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanAbsoluteError"] = "MeanAbsoluteError"

    samples: ClassVar = SAMPLES

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → sum, count."""
        prediction, target = alike(net, prediction, target)
        return _summed(Abs()(prediction - target))
