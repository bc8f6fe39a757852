"""FBetaScore and F1Score: the harmonic mean of precision and recall, of each class or of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr

from netspec.graph.ops.elementwise import Equal, Greater, call_elementwise, cast
from netspec.graph.ops.reduce import ReduceMax, ReduceSum
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require
from netspec.layers.losses_and_metrics import ElementLosses, MetricResult, MetricSpec
from netspec.layers.targets import EPSILON, align_target, one_hot_target
from netspec.schema.specs.kinds import METRICS

SAMPLES = (
    Sample.of((6, 3), (6, 3), dtypes=("float32", "int32"), high=2),
    Sample.of((6, 3), (6, 3), dtypes=("float32", "int32"), high=2, average="macro", weight=(6,)),
    Sample.of((6, 3), (6, 3), dtypes=("float32", "int32"), high=2, average="micro", threshold=0.5),
    Sample.of((6, 3), (6, 3), dtypes=("float32", "int32"), high=2, average="weighted", threshold=0.1),
)


class FScore(MetricSpec):
    """Base of F1Score and FBetaScore."""

    average: Literal["micro", "macro", "weighted"] | None = None
    """`macro`: the mean over the classes; `weighted`: the mean weighted by their positive targets; `micro`: from
    the answers of all classes; default: a score for each class."""
    threshold: float | None = Field(default=None, gt=0, le=1)
    """Predictions greater than this are positive; default: the highest score of each sample is positive."""

    _names: tuple[str, ...] = PrivateAttr(default=())
    """Names of the classes, from the data."""

    def with_class_names(self, names: Sequence[str]) -> Self:
        """Return the metric with names for its scores of each class."""
        named = self.model_copy()
        named._names = tuple(names)
        return named

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction: (N, C), target: (N, C) or (N) → true positives, predicted and actual positives, (C) each."""
        prediction, target = align_target(builder, prediction, one_hot_target(builder, prediction, target))
        require(len(prediction.shape) == 2, "the scores must be a matrix", expected="(N, C)", got=prediction.type)
        if self.threshold is None:
            is_predicted = Equal()(prediction, ReduceMax((1,), keepdims=True)(prediction))
        else:
            is_predicted = call_elementwise(Greater(), prediction, self.threshold)
        predicted = cast(is_predicted, target.dtype)
        total = ReduceSum((0,))
        return tuple(total(ElementLosses(x).weighted(builder)[0]) for x in (predicted * target, predicted, target))

    def score(self, beta: float, true_positives: Any, predicted: Any, actual: Any) -> MetricResult:
        """Compute the score from the totals."""
        if self.average == "micro":
            true_positives, predicted, actual = (
                total.sum(keepdims=True) for total in (true_positives, predicted, actual)
            )
        precision, recall = true_positives / (predicted + EPSILON), true_positives / (actual + EPSILON)
        scores = (1 + beta**2) * precision * recall / (beta**2 * precision + recall + EPSILON)
        if self.average == "weighted":
            return float((scores * actual).sum() / (actual.sum() + EPSILON))
        if self.average is not None:
            return float(scores.mean())
        names = self._names if len(self._names) == len(scores) else range(len(scores))
        return {str(name): float(score) for name, score in zip(names, scores, strict=True)}


@METRICS.register
class F1Score(FScore):
    """2 · precision · recall / (precision + recall), of each class or, with `average`, of all.

    Prediction (N, C) probabilities; target (N, C), 0 or 1, or class indices (N).
    """

    type: Literal["F1Score"] = "F1Score"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    samples: ClassVar = SAMPLES

    def result(self, *totals: Any) -> MetricResult:
        """One value, or one per class."""
        return self.score(1.0, *totals)


@METRICS.register
class FBetaScore(FScore):
    """(1 + beta²) · precision · recall / (beta² · precision + recall), of each class or, with `average`, of all.

    Prediction (N, C) probabilities; target (N, C), 0 or 1, or class indices (N).
    """

    type: Literal["FBetaScore"] = "FBetaScore"
    monitor_mode: ClassVar[Literal["max"]] = "max"
    beta: float = Field(default=1.0, gt=0)
    """Weight of recall relative to precision."""

    samples: ClassVar = (
        *SAMPLES[:1],
        Sample.of((6, 3), (6, 3), dtypes=("float32", "int32"), high=2, beta=2.0, average="macro"),
    )

    def result(self, *totals: Any) -> MetricResult:
        """One value, or one per class."""
        return self.score(self.beta, *totals)
