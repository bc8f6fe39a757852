"""Cross-entropies of probabilities: for class indices, for vectors over classes, for binary answers.

The losses of each element are mixins, which the metrics of the same names average.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.cross_entropy import SoftmaxCrossEntropyLoss
from netspec.graph.ops.elementwise import Maximum, Minimum, call_elementwise
from netspec.graph.ops.reduce import ArgMax, ReduceMean, ReduceSum
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.softmax import LogSoftmax
from netspec.graph.ops.unary import Log, Softplus
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.losses_and_metrics import ElementLosses, PairLoss, PredictionKind
from netspec.layers.targets import EPSILON, ClassWeighted, align_target, class_scores, mask_ignored
from netspec.schema.specs.kinds import LOSSES
from netspec.schema.specs.spec import Spec


def log_probabilities(prediction: Value, axis: int, from_logits: bool) -> Value:
    """Logarithms of the probabilities of the classes; they are divided by their sum first, as in Keras."""
    if from_logits:
        return LogSoftmax(axis)(prediction)
    return Log()(clip_probability(prediction / ReduceSum((axis,), keepdims=True)(prediction)))


def clip_probability(probability: Value) -> Value:
    """`probability` within [ε, 1 - ε]."""
    return call_elementwise(Minimum(), call_elementwise(Maximum(), probability, EPSILON), 1.0 - EPSILON)


class ProbabilityFields(Spec):
    """Fields of cross-entropies over classes."""

    from_logits: bool = False
    """`true`: the prediction holds scores before the softmax. More precise than a softmax layer and `false`."""
    axis: int = -1
    """The axis of the classes."""


class ClassIndexTargets(ProbabilityFields):
    """Fields of cross-entropies whose targets are class indices."""

    ignore_class: int | None = None
    """Class index of elements to leave out, such as 255 or -1."""


class LabelSmoothing(Spec):
    """Field of losses with label smoothing."""

    label_smoothing: float = Field(default=0.0, ge=0, le=1)
    """Share of each target that is spread evenly over all classes."""


class ClassVectorTargets(ProbabilityFields, LabelSmoothing):
    """Fields of cross-entropies whose targets are vectors over the classes."""

    def operands(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, Value, int]:
        """Prediction, smoothed target and the axis of the classes."""
        axis = sample_axis(prediction, self.axis, "for classes")
        prediction, target = align_target(builder, prediction, target)
        if self.label_smoothing:
            target = target * (1 - self.label_smoothing) + self.label_smoothing / prediction.shape[axis]
        return prediction, target, axis


class BinaryTargets(Spec):
    """Fields of binary cross-entropies."""

    from_logits: bool = False
    """`true`: the prediction holds scores before the sigmoid. More precise than a sigmoid layer and `false`."""
    label_smoothing: float = Field(default=0.0, ge=0, le=1)
    """Label smoothing s: targets become target · (1 - s) + ½ · s."""

    def smoothed(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, Value]:
        """Prediction and smoothed target."""
        prediction, target = align_target(builder, prediction, target)
        if self.label_smoothing:
            target = target * (1 - self.label_smoothing) + 0.5 * self.label_smoothing
        return prediction, target

    def losses(self, prediction: Value, target: Value) -> Value:
        """-(target · ln p + (1 - target) · ln(1 - p))."""
        if self.from_logits:
            return Softplus()(prediction) - prediction * target
        yes = clip_probability(prediction)
        return -(target * Log()(yes) + (1.0 - target) * Log()(1.0 - yes))


@LOSSES.register
class SparseCategoricalCrossentropy(ClassIndexTargets, ClassWeighted, PairLoss):
    """Mean of -ln of the probability of the right class. Targets are class indices.

    Prediction (N, C): probabilities, which are first divided by their sum, or with `from_logits` scores before the
    softmax. Target (N) or (N, 1): integers from 0 to C - 1. Further axes, as in (N, C, H, W) with `axis: 1`, are
    averaged too.
    """

    type: Literal["SparseCategoricalCrossentropy"] = "SparseCategoricalCrossentropy"
    prediction_kind: ClassVar[PredictionKind] = "classes"
    label_smoothing: float = Field(default=0.0, ge=0, le=1)
    """Share of each target that is spread evenly over all classes."""

    samples: ClassVar = (
        Sample.of((3, 4), (3,), dtypes=("float32", "int32"), from_logits=True),
        Sample.of((3, 4), (3, 1), dtypes=("float32", "int64"), ranges=((0.1, 0.9), None), weight=(3,)),
        Sample.of((2, 4, 3, 2), (2, 3, 2), dtypes=("float32", "int32"), from_logits=True, axis=1, ignore_class=1),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int32"), ranges=((0.1, 0.9), None), axis=1, ignore_class=2),
        Sample.of(
            (4, 4), (4,), dtypes=("float32", "int32"), from_logits=True, label_smoothing=0.2,
            class_weight={0: 2.0, 3: 0.5}, reduction="mean_with_sample_weight",
        ),
        Sample.of(
            (2, 4, 3), (2, 3), dtypes=("float32", "uint8"), from_logits=True, axis=1, ignore_class=0, reduction="full"
        ),
    )  # fmt: skip

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        scores, label, axis = class_scores(builder, prediction, label, self.axis, self.ignore_class)
        label, mask = mask_ignored(label, self.ignore_class)
        if self.from_logits:
            values, logarithms = SoftmaxCrossEntropyLoss(axis).call_multi(scores, label)
        else:
            logarithms = log_probabilities(scores, axis, from_logits=False)
            values = -ReduceSum((axis,))(OneHot(scores.shape[axis], scores.dtype, axis)(label) * logarithms)
        if self.label_smoothing:
            uniform = ReduceMean((axis,))(logarithms)
            values = values * (1 - self.label_smoothing) - uniform * self.label_smoothing
        return ElementLosses(values, weights=self.class_weight_factors(builder, label, scores.shape[axis]), mask=mask)


@LOSSES.register
class CategoricalCrossentropy(ClassVectorTargets, ClassWeighted, PairLoss):
    """Mean of -Σ target · ln probability over the classes. Targets are vectors of probabilities.

    Prediction (N, C): probabilities, which are first divided by their sum, or with `from_logits` scores before the
    softmax. Target (N, C), usually 1 for one class and 0 for the others. For class indices use
    SparseCategoricalCrossentropy. `class_weight` applies to the class with the greatest target.
    """

    type: Literal["CategoricalCrossentropy"] = "CategoricalCrossentropy"
    prediction_kind: ClassVar[PredictionKind] = "classes"

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), from_logits=True, label_smoothing=0.1, ranges=(None, (0.0, 1.0))),
        Sample.of((3, 4), (3, 4), ranges=((0.1, 0.9), (0.0, 1.0)), weight=(3,)),
        Sample.of((2, 3, 2), (2, 3, 2), dtypes=("float32", "int32"), high=2, axis=1, ranges=((0.1, 0.9), None)),
        Sample.of((3, 4), (3, 4), from_logits=True, ranges=(None, (0.0, 1.0)), class_weight=[1.0, 2.0, 0.5, 3.0]),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …, C, …) → (N, …)."""
        weights = class_of_vectors(self, builder, target, self.axis)
        prediction, target, axis = self.operands(builder, prediction, target)
        logarithms = log_probabilities(prediction, axis, self.from_logits)
        return ElementLosses(-ReduceSum((axis,))(target * logarithms), weights=weights)


def class_of_vectors(self: ClassWeighted, builder: Builder, target: Value, axis: int) -> tuple[Value, ...]:
    """The weight of the class with the greatest target in each vector."""
    if self.class_weight is None:
        return ()
    return self.class_weight_factors(builder, ArgMax(axis)(target), target.shape[axis])


@LOSSES.register
class BinaryCrossentropy(BinaryTargets, ClassWeighted, PairLoss):
    """Mean of -(target · ln p + (1 - target) · ln(1 - p)) over all elements, each a binary answer.

    Prediction (N, …): probabilities p, or with `from_logits` scores before the sigmoid. Target of the same shape: 0 or
    1; (N, 1) with (N) is accepted. `class_weight` has the weights of the answers 0 and 1.
    """

    type: Literal["BinaryCrossentropy"] = "BinaryCrossentropy"
    prediction_kind: ClassVar[PredictionKind] = "binary"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), from_logits=True, ranges=(None, (0.0, 1.0))),
        Sample.of((4, 1), (4,), dtypes=("float32", "int32"), high=2, ranges=((0.1, 0.9), None), weight=(4,)),
        Sample.of((4, 1), (4, 1), label_smoothing=0.2, ranges=((0.1, 0.9), (0.0, 1.0))),
        Sample.of((4, 1), (4, 1), from_logits=True, dtypes=("float32", "int32"), high=2, class_weight={1: 3.0}),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        losses = self.losses(*self.smoothed(builder, prediction, target))
        answers = align_target(builder, prediction, target)[1]
        return ElementLosses.per_feature(losses, *self.binary_weight_factors(builder, answers))


@LOSSES.register
class MultiLabelSoftMargin(ClassWeighted, PairLoss):
    """Mean binary cross-entropy over all classes, each times its weight: PyTorch's MultiLabelSoftMarginLoss.

    Prediction (N, …, C): logits. Target of the same shape: 1 for each class of the sample, otherwise 0.
    """

    type: Literal["MultiLabelSoftMargin"] = "MultiLabelSoftMargin"
    prediction_kind: ClassVar[PredictionKind] = "binary"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), high=2),
        Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), high=2, class_weight=[1.0, 2.0, 0.5], weight=(4,)),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …, C) → (N, …)."""
        axis = sample_axis(prediction, -1, "for classes")
        scores, target = align_target(builder, prediction, target)
        losses = Softplus()(scores) - scores * target
        weights = self.class_weights(builder, scores.shape[axis])
        return ElementLosses(ReduceMean((axis,))(losses if weights is None else losses * weights))
