"""Hinge losses: nothing is to be gained beyond a margin. Those that metrics measure too are functions."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Equal, Where, elementwise
from netspec.graph.ops.functions import Relu
from netspec.graph.ops.reduce import ReduceMax, ReduceSum
from netspec.graph.ops.shape import OneHot
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.judging import Judged, PairLoss
from netspec.layers.targets import ClassWeighted, alike, classes
from netspec.schema.kinds import LOSSES

SAMPLES = (
    Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), high=2),
    Sample.of((4, 1), (4, 1), dtypes=("float32", "int32"), high=2, weight=(4,)),
)
VECTORS = (Sample.of((4, 3), (4, 3), ranges=(None, (0.0, 1.0)), weight=(4,)),)


def hinges(net: Builder, prediction: Value, target: Value) -> Value:
    """max(0, 1 - prediction · target) of each number; targets of 0 are taken for -1."""
    prediction, target = alike(net, prediction, target)
    sign = elementwise(Where(), elementwise(Equal(), target, 0.0), -1.0, target)
    return Relu()(1.0 - sign * prediction)


def categorical_hinges(net: Builder, prediction: Value, target: Value) -> Judged:
    """max(0, 1 + max((1 - target) · prediction) - Σ target · prediction) along the last axis."""
    axis = sample_axis(prediction, -1, "of classes")
    prediction, target = alike(net, prediction, target)
    right, wrong = ReduceSum((axis,))(target * prediction), ReduceMax((axis,))((1.0 - target) * prediction)
    return Judged(Relu()(wrong - right + 1.0))


@LOSSES.register
class Hinge(PairLoss):
    """max(0, 1 - prediction · target), averaged over all numbers.

    Prediction (N, …) scores, target -1 or 1 of the same shape, or 0 or 1; (N, 1) beside (N) is accepted.
    """

    type: Literal["Hinge"] = "Hinge"

    samples: ClassVar = SAMPLES

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return Judged.numbers(hinges(net, prediction, target))


@LOSSES.register
class SquaredHinge(PairLoss):
    """max(0, 1 - prediction · target)², averaged over all numbers.

    Prediction (N, …) scores, target -1 or 1 of the same shape, or 0 or 1; (N, 1) beside (N) is accepted.
    """

    type: Literal["SquaredHinge"] = "SquaredHinge"

    samples: ClassVar = SAMPLES

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        losses = hinges(net, prediction, target)
        return Judged.numbers(losses * losses)


@LOSSES.register
class CategoricalHinge(PairLoss):
    """How far the greatest score of a wrong class is above that of the right one less 1, averaged; at least 0.

    Prediction and target (N, …, C): scores, and vectors with one 1 and else 0, along the last axis.
    """

    type: Literal["CategoricalHinge"] = "CategoricalHinge"

    samples: ClassVar = VECTORS

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C) → (N, …)."""
        return categorical_hinges(net, prediction, target)


@LOSSES.register
class OneVsRestHinge(ClassWeighted, PairLoss):
    """Σ max(0, 1 ∓ score)^p over the classes, - for the right one and + for others, averaged: Caffe's HingeLoss.

    Prediction (N, …, C, …) scores, target (N, …) class numbers. p is 1 or 2, as `norm` says.
    """

    type: Literal["OneVsRestHinge"] = "OneVsRestHinge"
    norm: Literal["L1", "L2"] = "L1"
    """L1: the sum of the hinges; L2: of their squares"""
    axis: int = -1
    """the axis of the classes"""

    samples: ClassVar = (
        Sample.of((4, 4), (4,), dtypes=("float32", "int32"), class_weight={1: 2.0}),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int32"), norm="L2", axis=1),
    )

    def judge(self, net: Builder, prediction: Value, label: Value) -> Judged:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        scores, label, axis = classes(net, prediction, label, self.axis)
        sign = OneHot(scores.shape[axis], scores.dtype, axis)(label) * 2.0 - 1.0
        losses = Relu()(1.0 - sign * scores)
        weights = self.factors_of_classes(net, label, scores.shape[axis])
        return Judged(ReduceSum((axis,))(losses * losses if self.norm == "L2" else losses), weights=weights)
