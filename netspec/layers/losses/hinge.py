"""Hinge losses, which are 0 beyond a margin."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.reduce import ReduceMax, ReduceSum
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.unary import Relu
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.losses_and_metrics import ElementLosses, PairLoss, PredictionKind
from netspec.layers.targets import ClassWeighted, align_target, class_scores, to_signs
from netspec.schema.specs.kinds import LOSSES

SAMPLES = (
    Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), high=2),
    Sample.of((4, 1), (4, 1), dtypes=("float32", "int32"), high=2, weight=(4,)),
)


def hinges(builder: Builder, prediction: Value, target: Value) -> Value:
    """max(0, 1 - prediction · target) of each element; a target of 0 counts as -1."""
    prediction, target = align_target(builder, prediction, target)
    return Relu()(1.0 - to_signs(target) * prediction)


@LOSSES.register
class Hinge(PairLoss):
    """Mean of max(0, 1 - prediction · target) over all elements.

    Prediction (N, …): scores. Target of the same shape: -1 or 1, or 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["Hinge"] = "Hinge"

    samples: ClassVar = SAMPLES

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        return ElementLosses.per_feature(hinges(builder, prediction, target))


@LOSSES.register
class SquaredHinge(PairLoss):
    """Mean of max(0, 1 - prediction · target)² over all elements.

    Prediction (N, …): scores. Target of the same shape: -1 or 1, or 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["SquaredHinge"] = "SquaredHinge"

    samples: ClassVar = SAMPLES

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        losses = hinges(builder, prediction, target)
        return ElementLosses.per_feature(losses * losses)


@LOSSES.register
class CategoricalHinge(PairLoss):
    """Mean of max(0, 1 + greatest score of a wrong class - score of the right class).

    Prediction (N, …, C): scores. Target (N, …, C): 1 for the right class, 0 for the others.
    """

    type: Literal["CategoricalHinge"] = "CategoricalHinge"
    prediction_kind: ClassVar[PredictionKind] = "classes"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), ranges=(None, (0.0, 1.0)), weight=(4,)),)

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …, C) → (N, …)."""
        axis = sample_axis(prediction, -1, "for classes")
        prediction, target = align_target(builder, prediction, target)
        right, wrong = ReduceSum((axis,))(target * prediction), ReduceMax((axis,))((1.0 - target) * prediction)
        return ElementLosses(Relu()(wrong - right + 1.0))


@LOSSES.register
class OneVsRestHinge(ClassWeighted, PairLoss):
    """Mean of Σ max(0, 1 ∓ score)^p over the classes, - for the right one and + for the others: Caffe's HingeLoss.

    Prediction (N, …, C, …): scores. Target (N, …): class indices. p is 1 or 2, set by `norm`.
    """

    type: Literal["OneVsRestHinge"] = "OneVsRestHinge"
    prediction_kind: ClassVar[PredictionKind] = "classes"
    norm: Literal["L1", "L2"] = "L1"
    """`L1`: the sum of the hinges; `L2`: the sum of their squares."""
    axis: int = -1
    """The axis of the classes."""

    samples: ClassVar = (
        Sample.of((4, 4), (4,), dtypes=("float32", "int32"), class_weight={1: 2.0}),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int32"), norm="L2", axis=1),
    )

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        scores, label, axis = class_scores(builder, prediction, label, self.axis)
        sign = OneHot(scores.shape[axis], scores.dtype, axis)(label) * 2.0 - 1.0
        losses = Relu()(1.0 - sign * scores)
        weights = self.class_weight_factors(builder, label, scores.shape[axis])
        return ElementLosses(ReduceSum((axis,))(losses * losses if self.norm == "L2" else losses), weights=weights)
