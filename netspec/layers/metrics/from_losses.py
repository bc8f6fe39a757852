"""`LossMetric`, which averages a loss over the whole set, and the metrics derived from losses of the same names."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar, Literal

from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.losses import hinge, probabilistic, regression
from netspec.layers.losses.crossentropy import (
    BinaryCrossentropy,
    BinaryTargets,
    CategoricalCrossentropy,
    ClassIndexTargets,
    ClassVectorTargets,
    SparseCategoricalCrossentropy,
)
from netspec.layers.losses_and_metrics import ElementLosses, MetricResult, PairLoss, PairMetric
from netspec.schema.specs.kinds import METRICS, MetricFields

WEIGHTED = Sample.of((4, 3), (4, 3), weight=(4,))


class LossMetric(PairMetric):
    """Base of metrics that average `loss`, built with the metric's fields and default values of its other fields."""

    loss: ClassVar[type[PairLoss]]
    monitor_mode: ClassVar[Literal["min"]] = "min"

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → losses (N, …)."""
        loss_fields = type(self).model_fields.keys() - MetricFields.model_fields.keys() - {"type"}
        return self.loss(**{name: getattr(self, name) for name in loss_fields}).per_element(builder, prediction, target)


def _totals(errors: Any) -> list[float]:
    return [float(errors.sum(dtype="float64")), errors.size]


@METRICS.register
class MeanSquaredErrorMetric(LossMetric):
    """Mean of (prediction - target)² over all elements of the evaluated data.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["MeanSquaredError"] = "MeanSquaredError"
    loss: ClassVar = regression.MeanSquaredError
    unit_power: ClassVar[int] = 2
    samples: ClassVar = (*regression.SAMPLES, WEIGHTED)

    def error_totals(self, prediction: Any, target: Any) -> Any:
        """Sum and number of the squared errors."""
        return _totals((prediction - target) ** 2)


@METRICS.register
class RootMeanSquaredErrorMetric(LossMetric):
    """√ of the mean of (prediction - target)² over all elements of the evaluated data.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["RootMeanSquaredError"] = "RootMeanSquaredError"
    loss: ClassVar = regression.MeanSquaredError
    unit_power: ClassVar[int] = 1
    samples: ClassVar = (WEIGHTED,)

    def error_totals(self, prediction: Any, target: Any) -> Any:
        """Sum and number of the squared errors."""
        return _totals((prediction - target) ** 2)

    def result(self, *totals: Any) -> MetricResult:
        return sqrt(self.mean(*totals))


@METRICS.register
class MeanAbsoluteErrorMetric(LossMetric):
    """Mean of |prediction - target| over all elements of the evaluated data.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["MeanAbsoluteError"] = "MeanAbsoluteError"
    loss: ClassVar = regression.MeanAbsoluteError
    unit_power: ClassVar[int] = 1
    samples: ClassVar = regression.SAMPLES

    def error_totals(self, prediction: Any, target: Any) -> Any:
        """Sum and number of the absolute errors."""
        return _totals(abs(prediction - target))


@METRICS.register
class MeanAbsolutePercentageErrorMetric(LossMetric):
    """Mean of 100 · |prediction - target| / max(|target|, 1e-7) over all elements of the evaluated data.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["MeanAbsolutePercentageError"] = "MeanAbsolutePercentageError"
    loss: ClassVar = regression.MeanAbsolutePercentageError
    samples: ClassVar = regression.MeanAbsolutePercentageError.samples


@METRICS.register
class MeanSquaredLogarithmicErrorMetric(LossMetric):
    """Mean of (ln(1 + prediction) - ln(1 + target))² over all elements of the evaluated data.

    Prediction and target are not negative and have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["MeanSquaredLogarithmicError"] = "MeanSquaredLogarithmicError"
    loss: ClassVar = regression.MeanSquaredLogarithmicError
    samples: ClassVar = regression.MeanSquaredLogarithmicError.samples


@METRICS.register
class LogCoshErrorMetric(LossMetric):
    """Mean of ln cosh(prediction - target) over all elements of the evaluated data.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted.
    """

    type: Literal["LogCoshError"] = "LogCoshError"
    loss: ClassVar = regression.LogCosh
    samples: ClassVar = regression.LogCosh.samples


@METRICS.register
class CosineSimilarityMetric(regression.CosineAxis, PairMetric):
    """Mean cosine of the angle between prediction and target: 1 if they point the same way.

    Prediction and target have one shape (N, …, C, …) and hold vectors along `axis`. The loss is the negative of this.
    """

    type: Literal["CosineSimilarity"] = "CosineSimilarity"
    monitor_mode: ClassVar[Literal["max"]] = "max"
    samples: ClassVar = regression.CosineSimilarity.samples

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …, C, …) → cosines (N, …)."""
        return ElementLosses(regression.cosines(builder, prediction, target, self.axis))


@METRICS.register
class HingeMetric(LossMetric):
    """Mean of max(0, 1 - prediction · target) over all elements of the evaluated data.

    Prediction (N, …): scores. Target of the same shape: -1 or 1, or 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["Hinge"] = "Hinge"
    loss: ClassVar = hinge.Hinge
    samples: ClassVar = hinge.SAMPLES


@METRICS.register
class SquaredHingeMetric(LossMetric):
    """Mean of max(0, 1 - prediction · target)² over all elements of the evaluated data.

    Prediction (N, …): scores. Target of the same shape: -1 or 1, or 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["SquaredHinge"] = "SquaredHinge"
    loss: ClassVar = hinge.SquaredHinge
    samples: ClassVar = hinge.SAMPLES


@METRICS.register
class CategoricalHingeMetric(LossMetric):
    """Mean of max(0, 1 + greatest score of a wrong class - score of the right class) over the set.

    Prediction (N, …, C): scores. Target (N, …, C): 1 for the right class, 0 for the others.
    """

    type: Literal["CategoricalHinge"] = "CategoricalHinge"
    loss: ClassVar = hinge.CategoricalHinge
    samples: ClassVar = hinge.CategoricalHinge.samples


@METRICS.register
class BinaryCrossentropyMetric(BinaryTargets, LossMetric):
    """Mean of -(target · ln p + (1 - target) · ln(1 - p)) over all elements of the evaluated data.

    Prediction (N, …): probabilities p, or with `from_logits` scores before the sigmoid. Target of the same shape: 0 or
    1; (N, 1) with (N) is accepted.
    """

    type: Literal["BinaryCrossentropy"] = "BinaryCrossentropy"
    loss: ClassVar = BinaryCrossentropy
    samples: ClassVar = (
        Sample.of((4, 1), (4,), dtypes=("float32", "int32"), high=2, ranges=((0.1, 0.9), None), weight=(4,)),
        Sample.of((4, 3), (4, 3), from_logits=True, label_smoothing=0.2, ranges=(None, (0.0, 1.0))),
    )


@METRICS.register
class CategoricalCrossentropyMetric(ClassVectorTargets, LossMetric):
    """Mean of -Σ target · ln probability over the classes. Targets are vectors of probabilities.

    Prediction (N, C): probabilities, which are first divided by their sum, or with `from_logits` scores before the
    softmax. Target (N, C).
    """

    type: Literal["CategoricalCrossentropy"] = "CategoricalCrossentropy"
    loss: ClassVar = CategoricalCrossentropy
    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), from_logits=True, label_smoothing=0.1, ranges=(None, (0.0, 1.0))),
        Sample.of((3, 4), (3, 4), ranges=((0.1, 0.9), (0.0, 1.0)), weight=(3,)),
    )


@METRICS.register
class SparseCategoricalCrossentropyMetric(ClassIndexTargets, LossMetric):
    """Mean of -ln of the probability of the right class. Targets are class indices.

    Prediction (N, C): probabilities, which are first divided by their sum, or with `from_logits` scores before the
    softmax. Target (N) or (N, 1): integers. Elements of the class `ignore_class` are left out of the mean.
    """

    type: Literal["SparseCategoricalCrossentropy"] = "SparseCategoricalCrossentropy"
    loss: ClassVar = SparseCategoricalCrossentropy
    samples: ClassVar = (
        Sample.of((3, 4), (3,), dtypes=("float32", "int32"), from_logits=True, weight=(3,)),
        Sample.of((3, 4, 2), (3, 2), dtypes=("float32", "int32"), axis=1, ranges=((0.1, 0.9), None)),
        Sample.of((4, 4), (4,), dtypes=("float32", "int32"), from_logits=True, ignore_class=2),
    )


@METRICS.register
class KLDivergenceMetric(LossMetric):
    """Mean of Σ target · ln(target / prediction): the divergence of the predicted from the target distributions.

    Prediction and target (N, …, C) are vectors of probabilities along the last axis.
    """

    type: Literal["KLDivergence"] = "KLDivergence"
    loss: ClassVar = probabilistic.KLDivergence
    samples: ClassVar = (Sample.of((4, 3), (4, 3), ranges=((0.1, 0.9), (0.1, 0.8)), weight=(4,)),)


@METRICS.register
class PoissonMetric(LossMetric):
    """Mean of prediction - target · ln prediction over all elements of the evaluated data.

    Prediction (N, …): expected counts. Target of the same shape: counts; (N, 1) with (N) is accepted.
    """

    type: Literal["Poisson"] = "Poisson"
    loss: ClassVar = probabilistic.Poisson
    samples: ClassVar = probabilistic.Poisson.samples[:1]
