"""Metrics of probabilities: means of what the losses of the same names take of each place."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.judging import Judged, PairMetric
from netspec.layers.losses.crossentropy import OfAnswers, OfNumbers, OfVectors
from netspec.layers.losses.probabilistic import divergences, poisson_losses
from netspec.schema.kinds import METRICS


@METRICS.register
class BinaryCrossentropyMetric(OfAnswers, PairMetric):
    """Mean of -(target · ln p + (1 - target) · ln(1 - p)) over all numbers of the set.

    Prediction (N, …) probabilities p of yes, or with `from_logits` scores before the sigmoid; target of the same shape,
    0 or 1; (N, 1) beside (N) is accepted.
    """

    type: Literal["BinaryCrossentropy"] = "BinaryCrossentropy"

    samples: ClassVar = (
        Sample.of((4, 1), (4,), dtypes=("float32", "int32"), high=2, ranges=((0.1, 0.9), None), weight=(4,)),
        Sample.of((4, 3), (4, 3), from_logits=True, label_smoothing=0.2, ranges=(None, (0.0, 1.0))),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return self.judge_answers(net, prediction, target)


@METRICS.register
class CategoricalCrossentropyMetric(OfVectors, PairMetric):
    """Mean of -Σ target · ln probability over the classes; targets are vectors of probabilities.

    Prediction (N, C) probabilities, divided by their sum first, or with `from_logits` scores; target (N, C).
    """

    type: Literal["CategoricalCrossentropy"] = "CategoricalCrossentropy"

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), from_logits=True, label_smoothing=0.1, ranges=(None, (0.0, 1.0))),
        Sample.of((3, 4), (3, 4), ranges=((0.1, 0.9), (0.0, 1.0)), weight=(3,)),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C, …) → (N, …)."""
        return self.judge_vectors(net, prediction, target)


@METRICS.register
class SparseCategoricalCrossentropyMetric(OfNumbers, PairMetric):
    """Mean of -ln of the probability given to the right class; targets are class numbers.

    Prediction (N, C) probabilities, divided by their sum first, or with `from_logits` scores; target (N) or (N, 1)
    whole numbers. Places of the class `ignore_class` count in no mean.
    """

    type: Literal["SparseCategoricalCrossentropy"] = "SparseCategoricalCrossentropy"

    samples: ClassVar = (
        Sample.of((3, 4), (3,), dtypes=("float32", "int32"), from_logits=True, weight=(3,)),
        Sample.of((3, 4, 2), (3, 2), dtypes=("float32", "int32"), axis=1, ranges=((0.1, 0.9), None)),
        Sample.of((4, 4), (4,), dtypes=("float32", "int32"), from_logits=True, ignore_class=2),
    )

    def judge(self, net: Builder, prediction: Value, label: Value) -> Judged:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        return self.judge_numbers(net, prediction, label)[0]


@METRICS.register
class KLDivergenceMetric(PairMetric):
    """Mean of Σ target · ln(target / prediction): how far the predicted distributions are from those of the targets.

    Prediction and target (N, …, C), vectors of probabilities along the last axis.
    """

    type: Literal["KLDivergence"] = "KLDivergence"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), ranges=((0.1, 0.9), (0.1, 0.8)), weight=(4,)),)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C) → (N, …)."""
        return divergences(net, prediction, target)


@METRICS.register
class PoissonMetric(PairMetric):
    """Mean of prediction - target · ln prediction over all numbers of the set.

    Prediction (N, …) expected counts, target counts of the same shape; (N, 1) beside (N) is accepted.
    """

    type: Literal["Poisson"] = "Poisson"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), ranges=((0.1, 3.0), None)),)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return poisson_losses(net, prediction, target)
