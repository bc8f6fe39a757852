"""Losses over probabilities: SparseCategoricalCrossentropy, CategoricalCrossentropy, BinaryCrossentropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.onnx_map import GRADIENT
from netspec.graph.op import Array, Grads, Op, Xp
from netspec.graph.ops.elementwise import Maximum, Minimum, elementwise
from netspec.graph.ops.functions import Exp, Log, Softplus
from netspec.graph.ops.reduce import ReduceMean, ReduceSum, reshape_to
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.softmax import LogSoftmax
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, LossSpec, Sample, sample_axis
from netspec.layers.targets import alike, classes
from netspec.schema.kinds import LOSSES

EPSILON = 1e-7
"""Probabilities are kept this far from 0 and 1 before their logarithm is taken, as in Keras."""


@dataclass(frozen=True)
class SoftmaxCrossEntropyLoss(Op):
    """loss = -log_prob[label], where log_prob = x - ln Σ eˣ along `axis`.

    Results: the loss of each vector, and log_prob, from which the gradient is made: e^log_prob - one_hot(label).
    A label out of range has no class: its loss is 0.
    """

    axis: int = 1
    onnx = GRADIENT

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


@LOSSES.register
class SparseCategoricalCrossentropy(LossSpec):
    """-ln of the probability given to the right class, averaged; targets are class numbers.

    Prediction (N, C) probabilities, divided by their sum first, or with `from_logits` scores before the softmax; target
    (N) or (N, 1) whole numbers from 0 to C - 1. Further axes, as in (N, C, H, W) with `axis: 1`, are averaged too.
    """

    type: Literal["SparseCategoricalCrossentropy"] = "SparseCategoricalCrossentropy"
    from_logits: bool = False
    """true: the prediction holds scores before the softmax. More precise than a softmax layer and `false`"""
    axis: int = -1
    """the axis of the classes"""

    samples: ClassVar = (
        Sample.of((3, 4), (3,), dtypes=("float32", "int32"), from_logits=True),
        Sample.of((3, 4), (3, 1), dtypes=("float32", "int64"), ranges=((0.1, 0.9), None)),
        Sample.of((2, 4, 3, 2), (2, 3, 2), dtypes=("float32", "int32"), from_logits=True, axis=1),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int32"), ranges=((0.1, 0.9), None), axis=1),
    )

    def build(self, net: Builder, prediction: Value, label: Value) -> Value:
        """prediction: (N, …, C, …), label: (N, …) → scalar."""
        scores, label, axis = classes(net, prediction, label, self.axis)
        if self.from_logits:
            return ReduceMean()(SoftmaxCrossEntropyLoss(axis).many(scores, label)[0])
        hit = OneHot(scores.shape[axis], scores.dtype, axis)(label)
        return -ReduceMean()(ReduceSum((axis,))(hit * log_probabilities(scores, axis, self.from_logits)))


@LOSSES.register
class CategoricalCrossentropy(LossSpec):
    """-Σ target · ln probability over the classes, averaged; targets are vectors of probabilities.

    Prediction (N, C) probabilities, divided by their sum first, or with `from_logits` scores before the softmax; target
    (N, C), as a rule one 1 and else 0. For class numbers there is SparseCategoricalCrossentropy.
    """

    type: Literal["CategoricalCrossentropy"] = "CategoricalCrossentropy"
    from_logits: bool = False
    """true: the prediction holds scores before the softmax. More precise than a softmax layer and `false`"""
    label_smoothing: float = Field(default=0.0, ge=0, le=1)
    """share of each target that is spread evenly over all classes"""
    axis: int = -1
    """the axis of the classes"""

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), from_logits=True, label_smoothing=0.1, ranges=(None, (0.0, 1.0))),
        Sample.of((3, 4), (3, 4), ranges=((0.1, 0.9), (0.0, 1.0))),
        Sample.of((2, 3, 2), (2, 3, 2), dtypes=("float32", "int32"), high=2, axis=1, ranges=((0.1, 0.9), None)),
    )

    def build(self, net: Builder, prediction: Value, target: Value) -> Value:
        """prediction, target: (N, …, C, …) → scalar."""
        axis = sample_axis(prediction, self.axis, "of classes")
        prediction, target = alike(net, prediction, target)
        count = prediction.shape[axis]
        if self.label_smoothing:
            target = target * (1 - self.label_smoothing) + self.label_smoothing / count
        return -ReduceMean()(ReduceSum((axis,))(target * log_probabilities(prediction, axis, self.from_logits)))


@LOSSES.register
class BinaryCrossentropy(LossSpec):
    """-(target · ln p + (1 - target) · ln(1 - p)), averaged over all numbers: each is a question of yes or no.

    Prediction (N, …) probabilities p of yes, or with `from_logits` scores before the sigmoid; target of the same shape,
    0 or 1; (N, 1) beside (N) is accepted.
    """

    type: Literal["BinaryCrossentropy"] = "BinaryCrossentropy"
    from_logits: bool = False
    """true: the prediction holds scores before the sigmoid. More precise than a sigmoid layer and `false`"""
    label_smoothing: float = Field(default=0.0, ge=0, le=1)
    """targets are drawn so far towards ½: target · (1 - s) + ½ · s"""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), from_logits=True, ranges=(None, (0.0, 1.0))),
        Sample.of((4, 1), (4,), dtypes=("float32", "int32"), high=2, ranges=((0.1, 0.9), None)),
        Sample.of((4,), (4,), label_smoothing=0.2, ranges=((0.1, 0.9), (0.0, 1.0))),
    )

    def build(self, net: Builder, prediction: Value, target: Value) -> Value:
        """prediction, target: (N, …) → scalar."""
        prediction, target = alike(net, prediction, target)
        if self.label_smoothing:
            target = target * (1 - self.label_smoothing) + 0.5 * self.label_smoothing
        if self.from_logits:
            return ReduceMean()(Softplus()(prediction) - prediction * target)
        yes = clipped(prediction)
        return -ReduceMean()(target * Log()(yes) + (1.0 - target) * Log()(1.0 - yes))
