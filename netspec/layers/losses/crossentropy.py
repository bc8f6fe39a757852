"""Cross-entropies of probabilities, as losses: of class numbers, of vectors over classes, of answers yes or no.

What they take of each place is a mixin: the metrics of the same names average it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.elementwise import Maximum, Minimum, elementwise
from netspec.graph.ops.functions import Exp, Log, Softplus
from netspec.graph.ops.reduce import ArgMax, ReduceMean, ReduceSum, reshape_to
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.softmax import LogSoftmax
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.judging import Judged, PairLoss
from netspec.layers.targets import EPSILON, ClassWeighted, alike, classes, unless
from netspec.schema.kinds import LOSSES
from netspec.schema.spec import Spec


def _to_onnx(g: Emitter, y: Value, x: str, label: str) -> tuple[str, str]:
    op, (scores, numbers) = y.op, y.inputs
    assert isinstance(op, SoftmaxCrossEntropyLoss)
    if numbers.dtype not in (DType.INT32, DType.INT64):
        label = g.node("Cast", label, to=DType.INT64)
    behind = [axis for axis in range(len(scores.shape)) if axis != op.axis]  # ONNX's classes are axis 1
    order = [behind[0], op.axis, *behind[1:]]
    turned = g.node("Transpose", x, perm=order) if op.axis != 1 else x
    loss = g.node("SoftmaxCrossEntropyLoss", turned, label, outputs=2, reduction="none")
    back = sorted(range(len(order)), key=order.__getitem__)
    return loss, f"{loss}:1" if op.axis == 1 else g.node("Transpose", f"{loss}:1", perm=back)


@dataclass(frozen=True)
class SoftmaxCrossEntropyLoss(Op):
    """loss = -log_prob[label], where log_prob = x - ln Σ eˣ along `axis`.

    Results: the loss of each vector, and log_prob, from which the gradient is made: e^log_prob - one_hot(label).
    A label out of range has no class: its loss is 0.
    """

    axis: int = 1
    onnx = OnnxExpansion(_to_onnx)

    def infer(self, x: TensorType, label: TensorType) -> tuple[TensorType, TensorType]:
        """x: (N, …, C, …), label: (N, …) → (N, …), (N, …, C, …)."""
        fits = 0 <= self.axis < x.rank and label.shape == x.shape[: self.axis] + x.shape[self.axis + 1 :]
        self.check(fits, "the class numbers do not fit the scores", got=f"{x}, {label}")
        self.check(not label.dtype.is_float, "class numbers must be whole numbers", got=label)
        return x.with_shape(*label.shape), x

    def forward(self, xp: Xp, x: Array, label: Array) -> tuple[Array, Array]:
        shifted = x - x.max(axis=self.axis, keepdims=True)
        log_prob = shifted - xp.log(xp.exp(shifted).sum(axis=self.axis, keepdims=True))
        place = xp.arange(x.shape[self.axis]).reshape((-1,) + (1,) * (x.ndim - 1 - self.axis))
        chosen = xp.where(xp.expand_dims(label, self.axis) == place, log_prob, x.dtype.type(0))
        return -chosen.sum(axis=self.axis), log_prob

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        _, log_prob = ys
        x, label = log_prob.inputs
        shape = (*x.shape[: self.axis], 1, *x.shape[self.axis + 1 :])
        probability = Exp()(log_prob)
        dx: Value | None = None
        if dys[0] is not None:
            hit = OneHot(x.shape[self.axis], x.dtype, self.axis)(label)
            dx = (probability - hit) * reshape_to(dys[0], shape)
        if dys[1] is not None:
            flow = dys[1] - probability * ReduceSum((self.axis,), keepdims=True)(dys[1])
            dx = flow if dx is None else dx + flow
        return dx, None

    def flops(self, x: TensorType, label: TensorType) -> int:
        return 5 * x.size


def log_probabilities(prediction: Value, axis: int, from_logits: bool) -> Value:
    """Logarithms of the probabilities of the classes; they are divided by their sum first, as in Keras."""
    if from_logits:
        return LogSoftmax(axis)(prediction)
    return Log()(clipped(prediction / ReduceSum((axis,), keepdims=True)(prediction)))


def clipped(probability: Value) -> Value:
    """`probability` within [ε, 1 - ε]."""
    return elementwise(Minimum(), elementwise(Maximum(), probability, EPSILON), 1.0 - EPSILON)


class OfClasses(Spec):
    """Fields of cross-entropies over classes."""

    from_logits: bool = False
    """true: the prediction holds scores before the softmax. More precise than a softmax layer and `false`"""
    axis: int = -1
    """the axis of the classes"""


class OfNumbers(OfClasses):
    """Fields of cross-entropies with class numbers, and what they take of each place."""

    ignore_class: int | None = None
    """class number of places that do not count, such as 255 or -1"""

    def judge_numbers(
        self, net: Builder, prediction: Value, label: Value, smoothing: float = 0.0
    ) -> tuple[Judged, Value]:
        """-ln p of the right class, where `smoothing` is drawn to the mean over all classes; and the class numbers."""
        scores, label, axis = classes(net, prediction, label, self.axis, self.ignore_class)
        label, mask = unless(label, self.ignore_class)
        if self.from_logits:
            values, logarithms = SoftmaxCrossEntropyLoss(axis).many(scores, label)
        else:
            logarithms = log_probabilities(scores, axis, from_logits=False)
            values = -ReduceSum((axis,))(OneHot(scores.shape[axis], scores.dtype, axis)(label) * logarithms)
        if smoothing:
            values = values * (1 - smoothing) - ReduceMean((axis,))(logarithms) * smoothing
        return Judged(values, mask=mask), label


class Smoothed(Spec):
    """Field of losses with label smoothing."""

    label_smoothing: float = Field(default=0.0, ge=0, le=1)
    """share of each target that is spread evenly over all classes"""


class OfVectors(OfClasses, Smoothed):
    """Fields of cross-entropies with vectors over the classes, and what they take of each place."""

    def operands(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, Value, int]:
        """Prediction, smoothed target and the axis of the classes."""
        axis = sample_axis(prediction, self.axis, "of classes")
        prediction, target = alike(net, prediction, target)
        if self.label_smoothing:
            target = target * (1 - self.label_smoothing) + self.label_smoothing / prediction.shape[axis]
        return prediction, target, axis

    def judge_vectors(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """-Σ target · ln p."""
        prediction, target, axis = self.operands(net, prediction, target)
        return Judged(-ReduceSum((axis,))(target * log_probabilities(prediction, axis, self.from_logits)))


class OfAnswers(Spec):
    """Fields of cross-entropies of answers yes or no, and what they take of each."""

    from_logits: bool = False
    """true: the prediction holds scores before the sigmoid. More precise than a sigmoid layer and `false`"""
    label_smoothing: float = Field(default=0.0, ge=0, le=1)
    """targets are drawn so far towards ½: target · (1 - s) + ½ · s"""

    def smoothed(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, Value]:
        """Prediction and smoothed target."""
        prediction, target = alike(net, prediction, target)
        if self.label_smoothing:
            target = target * (1 - self.label_smoothing) + 0.5 * self.label_smoothing
        return prediction, target

    def losses(self, prediction: Value, target: Value) -> Value:
        """-(target · ln p + (1 - target) · ln(1 - p))."""
        if self.from_logits:
            return Softplus()(prediction) - prediction * target
        yes = clipped(prediction)
        return -(target * Log()(yes) + (1.0 - target) * Log()(1.0 - yes))

    def judge_answers(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """The losses of all numbers."""
        return Judged.numbers(self.losses(*self.smoothed(net, prediction, target)))


@LOSSES.register
class SparseCategoricalCrossentropy(OfNumbers, ClassWeighted, PairLoss):
    """-ln of the probability given to the right class, averaged; targets are class numbers.

    Prediction (N, C) probabilities, divided by their sum first, or with `from_logits` scores before the softmax; target
    (N) or (N, 1) whole numbers from 0 to C - 1. Further axes, as in (N, C, H, W) with `axis: 1`, are averaged too.
    """

    type: Literal["SparseCategoricalCrossentropy"] = "SparseCategoricalCrossentropy"
    label_smoothing: float = Field(default=0.0, ge=0, le=1)
    """share of each target that is spread evenly over all classes"""

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

    def judge(self, net: Builder, prediction: Value, label: Value) -> Judged:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        judged, label = self.judge_numbers(net, prediction, label, self.label_smoothing)
        count = prediction.shape[self.axis]
        return replace(judged, weights=self.factors_of_classes(net, label, count))


@LOSSES.register
class CategoricalCrossentropy(OfVectors, ClassWeighted, PairLoss):
    """-Σ target · ln probability over the classes, averaged; targets are vectors of probabilities.

    Prediction (N, C) probabilities, divided by their sum first, or with `from_logits` scores before the softmax; target
    (N, C), as a rule one 1 and else 0. For class numbers there is SparseCategoricalCrossentropy. The class that
    `class_weight` goes by is where the target is greatest.
    """

    type: Literal["CategoricalCrossentropy"] = "CategoricalCrossentropy"

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), from_logits=True, label_smoothing=0.1, ranges=(None, (0.0, 1.0))),
        Sample.of((3, 4), (3, 4), ranges=((0.1, 0.9), (0.0, 1.0)), weight=(3,)),
        Sample.of((2, 3, 2), (2, 3, 2), dtypes=("float32", "int32"), high=2, axis=1, ranges=((0.1, 0.9), None)),
        Sample.of((3, 4), (3, 4), from_logits=True, ranges=(None, (0.0, 1.0)), class_weight=[1.0, 2.0, 0.5, 3.0]),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C, …) → (N, …)."""
        judged = self.judge_vectors(net, prediction, target)
        return replace(judged, weights=class_of_vectors(self, net, target, self.axis))


def class_of_vectors(self: ClassWeighted, net: Builder, target: Value, axis: int) -> tuple[Value, ...]:
    """The weights of the classes where the vectors of a target are greatest."""
    if self.class_weight is None:
        return ()
    return self.factors_of_classes(net, ArgMax(axis)(target), target.shape[axis])


@LOSSES.register
class BinaryCrossentropy(OfAnswers, ClassWeighted, PairLoss):
    """-(target · ln p + (1 - target) · ln(1 - p)), averaged over all numbers: each is a question of yes or no.

    Prediction (N, …) probabilities p of yes, or with `from_logits` scores before the sigmoid; target of the same shape,
    0 or 1; (N, 1) beside (N) is accepted. `class_weight` is of the answers 0 and 1.
    """

    type: Literal["BinaryCrossentropy"] = "BinaryCrossentropy"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), from_logits=True, ranges=(None, (0.0, 1.0))),
        Sample.of((4, 1), (4,), dtypes=("float32", "int32"), high=2, ranges=((0.1, 0.9), None), weight=(4,)),
        Sample.of((4, 1), (4, 1), label_smoothing=0.2, ranges=((0.1, 0.9), (0.0, 1.0))),
        Sample.of((4, 1), (4, 1), from_logits=True, dtypes=("float32", "int32"), high=2, class_weight={1: 3.0}),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        judged = self.judge_answers(net, prediction, target)
        return replace(judged, weights=self.factors_of_answers(net, alike(net, prediction, target)[1]))
