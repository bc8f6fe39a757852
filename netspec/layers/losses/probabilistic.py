"""Losses of probabilities other than cross-entropy: divergence, Poisson, Gaussian, focal, generalized, Caffe's."""

from __future__ import annotations

from dataclasses import replace
from math import log, pi
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Greater, Maximum, Minimum, Pow, Where, call_elementwise
from netspec.graph.ops.reduce import ReduceSum, reshape_to
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.unary import Exp, Log, Sigmoid
from netspec.graph.types import batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require, sample_axis
from netspec.layers.losses.crossentropy import (
    BinaryTargets,
    ClassVectorTargets,
    class_of_vectors,
    clip_probability,
    log_probabilities,
)
from netspec.layers.losses_and_metrics import ElementLosses, LossSpec, PairLoss, PredictionKind
from netspec.layers.targets import EPSILON, ClassWeighted, align_target, class_scores
from netspec.schema.specs.kinds import LOSSES
from netspec.schema.specs.spec import Spec

SMALLEST = 1e-20
"""Smallest probability whose logarithm Caffe's losses take."""


@LOSSES.register
class KLDivergence(PairLoss):
    """Mean of Σ target · ln(target / prediction): the divergence of the predicted from the target distributions.

    Prediction and target (N, …, C) are vectors of probabilities along the last axis. Kullback and Leibler 1951.
    """

    type: Literal["KLDivergence"] = "KLDivergence"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), ranges=((0.1, 0.9), (0.1, 0.8))),
        Sample.of((2, 3, 4), (2, 3, 4), ranges=((0.1, 0.9), (0.1, 0.8)), weight=(2, 3)),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …, C) → (N, …)."""
        axis = sample_axis(prediction, -1, "for classes")
        p, t = (
            call_elementwise(Minimum(), call_elementwise(Maximum(), x, EPSILON), 1.0)
            for x in align_target(builder, prediction, target)
        )
        return ElementLosses(ReduceSum((axis,))(t * (Log()(t) - Log()(p))))


@LOSSES.register
class Poisson(PairLoss):
    """prediction - target · ln prediction, averaged over all elements: Poisson negative log-likelihood of counts.

    Prediction (N, …): expected counts, or with `log_input` their logarithms. Target: counts of the same shape; (N, 1)
    with (N) is accepted. With `log_input` it is PyTorch's PoissonNLLLoss.
    """

    type: Literal["Poisson"] = "Poisson"
    log_input: bool = False
    """`true`: the prediction is the log of the expected count, and the loss is e^prediction - target · prediction."""
    full: bool = False
    """`true`: add Stirling's approximation of ln(target!) for targets above 1."""
    epsilon: float = Field(default=EPSILON, gt=0)
    """Added to the prediction before its logarithm is taken; PyTorch adds 1e-8."""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), ranges=((0.1, 3.0), None)),
        Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), log_input=True, full=True, weight=(4,)),
        Sample.of((4, 1), (4,), ranges=((0.1, 3.0), (0.1, 4.0)), full=True, epsilon=1e-8),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        prediction, count = align_target(builder, prediction, target)
        if self.log_input:
            losses = Exp()(prediction) - count * prediction
        else:
            losses = prediction - count * Log()(prediction + self.epsilon)
        if self.full:
            above = call_elementwise(Maximum(), count, 1.0)
            stirling = above * Log()(above) - above + Log()(above * (2 * pi)) * 0.5
            losses = losses + call_elementwise(Where(), call_elementwise(Greater(), count, 1.0), stirling, 0.0)
        return ElementLosses.per_feature(losses)


@LOSSES.register
class GaussianNLL(LossSpec):
    """½ (ln variance + (prediction - target)² / variance), averaged over all elements: PyTorch's GaussianNLLLoss.

    `from: [prediction, target, variance]`: predicted means (N, …), targets of the same shape, and predicted variances
    of that shape, or without its last axis, or with size 1 there. A softplus makes a layer's output positive. Nix and
    Weigend 1994.
    """

    type: Literal["GaussianNLL"] = "GaussianNLL"
    prediction_kind: ClassVar[PredictionKind] = "values"
    full: bool = False
    """`true`: add the constant ½ ln 2π."""
    epsilon: float = Field(default=1e-6, gt=0)
    """Smallest variance: lower values are replaced by it, and have no gradient."""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), (4, 3), ranges=(None, None, (0.1, 2.0))),
        Sample.of((4, 3), (4, 3), (4, 1), ranges=(None, None, (0.1, 2.0)), full=True, weight=(4,)),
        Sample.of((4, 3), (4, 3), (4,), ranges=(None, None, (0.1, 2.0)), epsilon=0.5, reduction="sum"),
    )

    def build(self, builder: Builder, prediction: Value, target: Value, variance: Value) -> Value:
        """prediction, target: (N, …), variance: (N, …), (N, …, 1) or without the last axis → scalar."""
        prediction, target = align_target(builder, prediction, target)
        shape = prediction.shape
        variance_shape = variance.shape if len(variance.shape) == len(shape) else (*variance.shape, 1)
        require(
            variance_shape in (shape, (*shape[:-1], 1)),
            "the variance does not match the prediction",
            expected=f"{batch_shape(shape)}; the last axis may also have size 1, or be left out",
            got=variance.type,
        )
        variance = call_elementwise(Maximum(), reshape_to(builder.floating(variance), variance_shape), self.epsilon)
        error = prediction - target
        losses = (Log()(variance) + error * error / variance) * 0.5
        return self.reduce(builder, ElementLosses.per_feature(losses + 0.5 * log(2 * pi) if self.full else losses))


class Focal(Spec):
    """Fields of focal losses, and their factor. Lin et al. 2017, arXiv:1708.02002."""

    alpha: float = Field(default=0.25, ge=0, le=1)
    """Factor that balances the classes."""
    gamma: float = Field(default=2.0, ge=0)
    """Focusing parameter: how much easy elements are down-weighted; 0: not at all."""

    def times_focus(self, losses: Value, probability: Value) -> Value:
        """losses · (1 - probability)^gamma"""
        if self.gamma == 0:
            return losses
        complement = 1.0 - probability
        if self.gamma != int(self.gamma):  # a root has no gradient at 0
            complement = call_elementwise(Maximum(), complement, EPSILON)
        return losses * Pow(self.gamma)(complement)


@LOSSES.register
class CategoricalFocalCrossentropy(Focal, ClassVectorTargets, ClassWeighted, PairLoss):
    """Mean of -alpha · Σ (1 - p)^gamma · target · ln p over the classes. Targets are vectors of probabilities.

    Prediction (N, C): probabilities p, which are first divided by their sum, or with `from_logits` scores before the
    softmax. Target (N, C), usually 1 for one class and 0 for the others.
    """

    type: Literal["CategoricalFocalCrossentropy"] = "CategoricalFocalCrossentropy"
    prediction_kind: ClassVar[PredictionKind] = "classes"

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), from_logits=True, label_smoothing=0.1, ranges=(None, (0.0, 1.0))),
        Sample.of((3, 4), (3, 4), gamma=1.5, alpha=0.4, ranges=((0.1, 0.9), (0.0, 1.0)), weight=(3,)),
        Sample.of((2, 3, 2), (2, 3, 2), gamma=0.0, axis=1, ranges=((0.1, 0.9), (0.0, 1.0))),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …, C, …) → (N, …)."""
        scores, smoothed, axis = self.operands(builder, prediction, target)
        logarithms = log_probabilities(scores, axis, self.from_logits)
        focused = self.times_focus(smoothed * logarithms, Exp()(logarithms))
        weights = class_of_vectors(self, builder, target, self.axis)
        return ElementLosses(ReduceSum((axis,))(focused) * -self.alpha, weights=weights)


@LOSSES.register
class BinaryFocalCrossentropy(Focal, BinaryTargets, ClassWeighted, PairLoss):
    """Mean of (1 - q)^gamma · binary cross-entropy over all elements, where q is the right answer's probability.

    Prediction (N, …): probabilities, or with `from_logits` scores before the sigmoid. Target of the same shape: 0 or 1;
    (N, 1) with (N) is accepted.
    """

    type: Literal["BinaryFocalCrossentropy"] = "BinaryFocalCrossentropy"
    prediction_kind: ClassVar[PredictionKind] = "binary"
    apply_class_balancing: bool = False
    """`true`: losses of targets 1 are multiplied by `alpha`, others by 1 - alpha."""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), from_logits=True, ranges=(None, (0.0, 1.0))),
        Sample.of(
            (4, 1), (4,), dtypes=("float32", "int32"), high=2, ranges=((0.1, 0.9), None), apply_class_balancing=True,
            gamma=1.5, weight=(4, 1),
        ),
    )  # fmt: skip

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        x, t = self.smoothed(builder, prediction, target)
        yes = Sigmoid()(x) if self.from_logits else clip_probability(x)
        focused = self.times_focus(self.losses(x, t), t * yes + (1.0 - t) * (1.0 - yes))
        if self.apply_class_balancing:
            focused = focused * (t * self.alpha + (1.0 - t) * (1 - self.alpha))
        weights = self.binary_weight_factors(builder, align_target(builder, prediction, target)[1])
        return replace(ElementLosses.per_feature(focused), weights=weights)


class TargetProbability(Spec):
    """Axis field of losses that use the probability of the right class without normalizing it."""

    axis: int = -1
    """The axis of the classes."""

    def target_probability(self, builder: Builder, prediction: Value, label: Value) -> tuple[Value, Value]:
        """The probability of the right class (N, …), and the class indices."""
        scores, label, axis = class_scores(builder, prediction, label, self.axis)
        return ReduceSum((axis,))(scores * OneHot(scores.shape[axis], scores.dtype, axis)(label)), label


@LOSSES.register
class CategoricalGeneralizedCrossEntropy(TargetProbability, ClassWeighted, PairLoss):
    """Mean of (1 - p^q) / q, where p is the probability of the right class: between cross-entropy and absolute error.

    Prediction (N, …, C, …): probabilities. Target (N, …): class indices, some of which may be wrong. Zhang and Sabuncu
    2018, arXiv:1805.07836.
    """

    type: Literal["CategoricalGeneralizedCrossEntropy"] = "CategoricalGeneralizedCrossEntropy"
    prediction_kind: ClassVar[PredictionKind] = "classes"
    q: float = Field(default=0.5, gt=0, lt=1)
    """Near 0 the loss is like cross-entropy; near 1 like the absolute error, which tolerates wrong labels better."""

    samples: ClassVar = (
        Sample.of((4, 4), (4,), dtypes=("float32", "int32"), ranges=((0.1, 0.9), None)),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int32"), ranges=((0.1, 0.9), None), axis=1, q=0.7),
    )

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        probability, label = self.target_probability(builder, prediction, label)
        powers = Pow(self.q)(call_elementwise(Maximum(), probability, EPSILON))
        weights = self.class_weight_factors(builder, label, prediction.shape[self.axis])
        return ElementLosses((1.0 - powers) * (1 / self.q), weights=weights)


@LOSSES.register
class MultinomialLogistic(TargetProbability, ClassWeighted, PairLoss):
    """Mean of -ln p, where p is the predicted probability of the right class: Caffe's MultinomialLogisticLoss.

    Prediction (N, …, C, …): probabilities, which are not divided by their sum; p is at least 1e-20. Target (N, …):
    class indices.
    """

    type: Literal["MultinomialLogistic"] = "MultinomialLogistic"
    prediction_kind: ClassVar[PredictionKind] = "classes"

    samples: ClassVar = (Sample.of((4, 4), (4,), dtypes=("float32", "int32"), ranges=((0.1, 0.9), None)),)

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        probability, label = self.target_probability(builder, prediction, label)
        weights = self.class_weight_factors(builder, label, prediction.shape[self.axis])
        return ElementLosses(-Log()(call_elementwise(Maximum(), probability, SMALLEST)), weights=weights)
