"""Losses of probabilities beside cross-entropy: divergence, counts, focal and robust forms, Caffe's."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, Minimum, Pow, elementwise
from netspec.graph.ops.functions import Exp, Log, Sigmoid
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import OneHot
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.judging import Judged, PairLoss
from netspec.layers.losses.crossentropy import OfAnswers, OfVectors, class_of_vectors, clipped, log_probabilities
from netspec.layers.targets import EPSILON, ClassWeighted, alike, classes
from netspec.schema.kinds import LOSSES
from netspec.schema.spec import Spec

SMALLEST = 1e-20
"""Least probability whose logarithm Caffe's losses take."""


def divergences(net: Builder, prediction: Value, target: Value) -> Judged:
    """Σ target · ln(target / prediction) along the last axis, both within [ε, 1]."""
    axis = sample_axis(prediction, -1, "of classes")
    p, t = (elementwise(Minimum(), elementwise(Maximum(), one, EPSILON), 1.0) for one in alike(net, prediction, target))
    return Judged(ReduceSum((axis,))(t * (Log()(t) - Log()(p))))


def poisson_losses(net: Builder, prediction: Value, target: Value) -> Judged:
    """prediction - target · ln(prediction + ε) of each number."""
    prediction, target = alike(net, prediction, target)
    return Judged.numbers(prediction - target * Log()(prediction + EPSILON))


@LOSSES.register
class KLDivergence(PairLoss):
    """Σ target · ln(target / prediction), averaged: how far the predicted distributions are from those of the targets.

    Prediction and target (N, …, C), vectors of probabilities along the last axis. Kullback and Leibler 1951.
    """

    type: Literal["KLDivergence"] = "KLDivergence"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), ranges=((0.1, 0.9), (0.1, 0.8))),
        Sample.of((2, 3, 4), (2, 3, 4), ranges=((0.1, 0.9), (0.1, 0.8)), weight=(2, 3)),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C) → (N, …)."""
        return divergences(net, prediction, target)


@LOSSES.register
class Poisson(PairLoss):
    """prediction - target · ln prediction, averaged over all numbers: targets are counts with that mean.

    Prediction (N, …) expected counts, target counts of the same shape; (N, 1) beside (N) is accepted.
    """

    type: Literal["Poisson"] = "Poisson"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), ranges=((0.1, 3.0), None)),)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return poisson_losses(net, prediction, target)


class Focal(Spec):
    """Fields of focal losses, and their factor. Lin et al. 2017, arXiv:1708.02002."""

    alpha: float = Field(default=0.25, ge=0, le=1)
    """factor that balances the classes"""
    gamma: float = Field(default=2.0, ge=0)
    """how much what is right already is passed over; 0 for not at all"""

    def times_focus(self, losses: Value, probability: Value) -> Value:
        """losses · (1 - probability)^gamma"""
        if self.gamma == 0:
            return losses
        rest = 1.0 - probability
        if self.gamma != int(self.gamma):  # a root has no gradient at 0
            rest = elementwise(Maximum(), rest, EPSILON)
        return losses * Pow(self.gamma)(rest)


@LOSSES.register
class CategoricalFocalCrossentropy(Focal, OfVectors, ClassWeighted, PairLoss):
    """-alpha · Σ (1 - p)^gamma · target · ln p over the classes, averaged; targets are vectors of probabilities.

    Prediction (N, C) probabilities p, divided by their sum first, or with `from_logits` scores before the softmax;
    target (N, C), as a rule one 1 and else 0.
    """

    type: Literal["CategoricalFocalCrossentropy"] = "CategoricalFocalCrossentropy"

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), from_logits=True, label_smoothing=0.1, ranges=(None, (0.0, 1.0))),
        Sample.of((3, 4), (3, 4), gamma=1.5, alpha=0.4, ranges=((0.1, 0.9), (0.0, 1.0)), weight=(3,)),
        Sample.of((2, 3, 2), (2, 3, 2), gamma=0.0, axis=1, ranges=((0.1, 0.9), (0.0, 1.0))),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C, …) → (N, …)."""
        scores, smoothed, axis = self.operands(net, prediction, target)
        logarithms = log_probabilities(scores, axis, self.from_logits)
        focused = self.times_focus(smoothed * logarithms, Exp()(logarithms))
        weights = class_of_vectors(self, net, target, self.axis)
        return Judged(ReduceSum((axis,))(focused) * -self.alpha, weights=weights)


@LOSSES.register
class BinaryFocalCrossentropy(Focal, OfAnswers, ClassWeighted, PairLoss):
    """(1 - q)^gamma times the binary cross-entropy, averaged over all numbers; q is the right answer's probability.

    Prediction (N, …) probabilities of yes, or with `from_logits` scores before the sigmoid; target of the same shape,
    0 or 1; (N, 1) beside (N) is accepted.
    """

    type: Literal["BinaryFocalCrossentropy"] = "BinaryFocalCrossentropy"
    apply_class_balancing: bool = False
    """true: losses of targets 1 are multiplied by `alpha`, others by 1 - alpha"""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), from_logits=True, ranges=(None, (0.0, 1.0))),
        Sample.of(
            (4, 1), (4,), dtypes=("float32", "int32"), high=2, ranges=((0.1, 0.9), None), apply_class_balancing=True,
            gamma=1.5, weight=(4, 1),
        ),
    )  # fmt: skip

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        x, t = self.smoothed(net, prediction, target)
        yes = Sigmoid()(x) if self.from_logits else clipped(x)
        focused = self.times_focus(self.losses(x, t), t * yes + (1.0 - t) * (1.0 - yes))
        if self.apply_class_balancing:
            focused = focused * (t * self.alpha + (1.0 - t) * (1 - self.alpha))
        weights = self.factors_of_answers(net, alike(net, prediction, target)[1])
        return replace(Judged.numbers(focused), weights=weights)


class PickedClass(Spec):
    """The axis of losses that take the probability of the right class as it stands."""

    axis: int = -1
    """the axis of the classes"""

    def picked(self, net: Builder, prediction: Value, label: Value) -> tuple[Value, Value]:
        """The probability of each right class (N, …), and the class numbers."""
        scores, label, axis = classes(net, prediction, label, self.axis)
        return ReduceSum((axis,))(scores * OneHot(scores.shape[axis], scores.dtype, axis)(label)), label


@LOSSES.register
class CategoricalGeneralizedCrossEntropy(PickedClass, ClassWeighted, PairLoss):
    """(1 - p^q) / q, averaged, p the probability of the right class: between cross-entropy and absolute error.

    Prediction (N, …, C, …) probabilities, target (N, …) class numbers, some of which may be wrong. Zhang and Sabuncu
    2018, arXiv:1805.07836.
    """

    type: Literal["CategoricalGeneralizedCrossEntropy"] = "CategoricalGeneralizedCrossEntropy"
    q: float = Field(default=0.5, gt=0, lt=1)
    """near 0 as cross-entropy, near 1 as the absolute error, which minds wrong labels less"""

    samples: ClassVar = (
        Sample.of((4, 4), (4,), dtypes=("float32", "int32"), ranges=((0.1, 0.9), None)),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int32"), ranges=((0.1, 0.9), None), axis=1, q=0.7),
    )

    def judge(self, net: Builder, prediction: Value, label: Value) -> Judged:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        probability, label = self.picked(net, prediction, label)
        powers = Pow(self.q)(elementwise(Maximum(), probability, EPSILON))
        weights = self.factors_of_classes(net, label, prediction.shape[self.axis])
        return Judged((1.0 - powers) * (1 / self.q), weights=weights)


@LOSSES.register
class MultinomialLogistic(PickedClass, ClassWeighted, PairLoss):
    """-ln p, averaged, p the probability of the right class as the prediction has it: Caffe's MultinomialLogisticLoss.

    Prediction (N, …, C, …) probabilities, which are not divided by their sum, at least 1e-20; target (N, …) class
    numbers.
    """

    type: Literal["MultinomialLogistic"] = "MultinomialLogistic"

    samples: ClassVar = (Sample.of((4, 4), (4,), dtypes=("float32", "int32"), ranges=((0.1, 0.9), None)),)

    def judge(self, net: Builder, prediction: Value, label: Value) -> Judged:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        probability, label = self.picked(net, prediction, label)
        weights = self.factors_of_classes(net, label, prediction.shape[self.axis])
        return Judged(-Log()(elementwise(Maximum(), probability, SMALLEST)), weights=weights)
