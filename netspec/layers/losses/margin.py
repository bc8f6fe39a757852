"""PyTorch's margin losses, which separate scores or distances by a margin."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.cumsum import CumSum
from netspec.graph.ops.elementwise import Greater, call_elementwise, cast
from netspec.graph.ops.reduce import ReduceMax, ReduceSum, reshape_to
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.unary import Relu
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require, sample_axis
from netspec.layers.losses_and_metrics import ElementLosses, LossSpec, PairLoss, PredictionKind
from netspec.layers.targets import ClassWeighted, align_target, class_scores, to_signs
from netspec.schema.specs.kinds import LOSSES

SIGNS = ("float32", "float32", "int32")


@LOSSES.register
class MarginRanking(LossSpec):
    """max(0, -target · (first - second) + margin), averaged over all elements: PyTorch's MarginRankingLoss.

    `from: [first, second, target]`: scores (N, …), and a target of the same shape: 1 if `first` should be greater, -1
    (or 0) if `second` should.
    """

    type: Literal["MarginRanking"] = "MarginRanking"
    margin: float = Field(default=0.0, ge=0)
    """Margin by which the greater score should exceed the other."""

    samples: ClassVar = (
        Sample.of((4, 1), (4, 1), (4,), dtypes=SIGNS, low=-1, high=2),
        Sample.of((4, 3), (4, 3), (4, 3), dtypes=SIGNS, low=-1, high=2, margin=0.5, weight=(4,)),
    )

    def build(self, builder: Builder, first: Value, second: Value, target: Value) -> Value:
        """first, second, target: (N, …) → scalar."""
        first, second = align_target(builder, first, second, ("first", "second input"))
        first, sign = align_target(builder, first, target)
        return self.reduce(builder, ElementLosses.per_feature(Relu()(self.margin - to_signs(sign) * (first - second))))


@LOSSES.register
class HingeEmbedding(PairLoss):
    """The distance if the target is 1, max(0, margin - distance) if it is -1, averaged: PyTorch's HingeEmbeddingLoss.

    Prediction (N, …): distances. Target of the same shape: 1 for similar pairs, -1 (or 0) for others; (N, 1) with (N)
    is accepted.
    """

    type: Literal["HingeEmbedding"] = "HingeEmbedding"
    margin: float = 1.0
    """Distance from which dissimilar pairs add nothing to the loss."""

    samples: ClassVar = (
        Sample.of((4, 1), (4,), dtypes=("float32", "int32"), low=-1, high=2),
        Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), low=-1, high=2, margin=0.5),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        distance, target = align_target(builder, prediction, target)
        is_pair = (to_signs(target) + 1.0) * 0.5
        return ElementLosses.per_feature(is_pair * distance + (1.0 - is_pair) * Relu()(self.margin - distance))


@LOSSES.register
class MultiMargin(ClassWeighted, PairLoss):
    """Σ max(0, margin - true score + other score)^p / C over the other classes, averaged: PyTorch's MultiMarginLoss.

    Prediction (N, …, C): scores. Target (N, …): class indices. Each loss is multiplied by its class's weight.
    """

    type: Literal["MultiMargin"] = "MultiMargin"
    prediction_kind: ClassVar[PredictionKind] = "classes"
    p: Literal[1, 2] = 1
    """Exponent: 1 or 2."""
    margin: float = 1.0
    """Margin by which the score of the true class should exceed the others."""

    samples: ClassVar = (
        Sample.of((4, 4), (4,), dtypes=("float32", "int32")),
        Sample.of((4, 4), (4, 1), dtypes=("float32", "int32"), p=2, margin=0.5, class_weight=[1.0, 2.0, 0.5, 3.0]),
    )

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction: (N, …, C), label: (N, …) → (N, …)."""
        scores, label, axis = class_scores(builder, prediction, label, -1)
        count = scores.shape[axis]
        right = OneHot(count, scores.dtype, axis)(label)
        excess = Relu()(self.margin - ReduceSum((axis,), keepdims=True)(right * scores) + scores) * (1.0 - right)
        losses = ReduceSum((axis,))(excess if self.p == 1 else excess * excess) * (1 / count)
        return ElementLosses(losses, weights=self.class_weight_factors(builder, label, count))


@LOSSES.register
class MultiLabelMargin(PairLoss):
    """Σ max(0, 1 - true score + other score) / C over pairs of classes, averaged: PyTorch's MultiLabelMarginLoss.

    Prediction (N, C): scores. Target (N, C) integers: the class indices of the sample, followed by -1; values after the
    first -1 are ignored. The sum is over all pairs of a class of the sample and another class.
    """

    type: Literal["MultiLabelMargin"] = "MultiLabelMargin"

    samples: ClassVar = (Sample.of((5, 6), (5, 6), dtypes=("float32", "int32"), low=-1, high=6, weight=(5,)),)

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction, label: (N, C) → (N)."""
        axis = sample_axis(prediction, -1, "for classes")
        fits = label.shape == prediction.shape and not label.dtype.is_float and len(label.shape) == 2
        count = prediction.shape[axis]
        expected = f"int32 (batch, {count}), an input with `shape: [{count}]` and `dtype: int32`"
        require(fits, "the classes of a sample must be integers, followed by -1", expected=expected, got=label.type)
        batch = prediction.shape[0]
        builder.require_range(label, 0, count, f"the prediction has {count} scores", (-1,))
        scores = builder.floating(prediction)
        ended = CumSum(axis)(cast(call_elementwise(Greater(), 0, label), scores.dtype))
        counts = reshape_to(cast(call_elementwise(Greater(), 0.5, ended), scores.dtype), (batch, count, 1))
        picks = OneHot(count, scores.dtype, 2)(label) * counts
        wrong = 1.0 - ReduceMax((1,), keepdims=True)(picks)
        row = reshape_to(scores, (batch, 1, count))
        right = ReduceSum((2,), keepdims=True)(picks * row)
        return ElementLosses(ReduceSum((1, 2))(Relu()(1.0 - right + row) * counts * wrong) * (1 / count))
