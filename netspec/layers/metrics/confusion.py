"""Metrics of right and wrong answers at thresholds: their numbers, Precision, Recall, the best of one given another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.onnx_map import NoOnnx
from netspec.graph.op import Array, NoGradient, Xp
from netspec.graph.ops.elementwise import Where, elementwise
from netspec.graph.ops.shape import Slice
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt, need
from netspec.layers.judging import Figure, MetricSpec
from netspec.layers.metrics.counting import Counts, Levels, Thresholds, positives
from netspec.layers.targets import alike
from netspec.schema.kinds import METRICS
from netspec.schema.spec import Spec

LEFT_OUT = -1e30
"""Stands for a score that is not among the greatest; it is over no threshold, the least of which is half of it."""

ANSWERS = Sample.of((6, 2), (6, 2), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None))
WEIGHTED = Sample.of(
    (6, 1), (6,), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None), weight=(6,), thresholds=[0.3, 0.6]
)


@dataclass(frozen=True)
class AmongGreatest(NoGradient):
    """Whether an element is one of the k greatest along the last axis, of equal ones the first; as bool."""

    k: int
    onnx = NoOnnx("metrics are not exported")

    def infer(self, x: TensorType) -> TensorType:
        self.check(x.rank >= 1 and self.k <= x.shape[-1], f"there are not {self.k} elements", got=x)
        return x.with_dtype(DType.BOOL)

    def forward(self, xp: Xp, x: Array) -> Array:
        rank = (-x).argsort(axis=-1, kind="stable").argsort(axis=-1, kind="stable")
        return rank < self.k


def rate(counted: Any, thresholds: tuple[float, ...]) -> Figure:
    """The number of the only threshold, or those of several by them."""
    if len(thresholds) == 1:
        return float(counted[0, 0])
    return {f"{threshold:g}": float(one) for threshold, one in zip(thresholds, counted[0], strict=True)}


class AtThresholds(MetricSpec):
    """Base of metrics at thresholds that are given."""

    thresholds: Thresholds = (0.5,)
    """a prediction greater than this means yes; one number, or several, each of which has a result of its own. For
    scores before the sigmoid: 0"""

    samples: ClassVar[tuple[Sample, ...]] = (ANSWERS, WEIGHTED)

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → how many are over so many thresholds, (1, 2, thresholds + 1)."""
        prediction, target = alike(net, prediction, target)
        return (positives(net, Levels.of(*self.thresholds), prediction, target),)


@METRICS.register
class TruePositives(AtThresholds):
    """How many numbers are over the threshold where the target says yes.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape; (N, 1) beside (N) is accepted.
    """

    type: Literal["TruePositives"] = "TruePositives"

    def result(self, *totals: Any) -> Figure:
        """A number, or one for each threshold."""
        return rate(Counts.of(*totals).tp, self.thresholds)


@METRICS.register
class FalsePositives(AtThresholds):
    """How many numbers are over the threshold where the target says no.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape; (N, 1) beside (N) is accepted.
    """

    type: Literal["FalsePositives"] = "FalsePositives"

    def result(self, *totals: Any) -> Figure:
        """A number, or one for each threshold."""
        return rate(Counts.of(*totals).fp, self.thresholds)


@METRICS.register
class TrueNegatives(AtThresholds):
    """How many numbers are not over the threshold where the target says no.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape; (N, 1) beside (N) is accepted.
    """

    type: Literal["TrueNegatives"] = "TrueNegatives"

    def result(self, *totals: Any) -> Figure:
        """A number, or one for each threshold."""
        return rate(Counts.of(*totals).tn, self.thresholds)


@METRICS.register
class FalseNegatives(AtThresholds):
    """How many numbers are not over the threshold where the target says yes.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape; (N, 1) beside (N) is accepted.
    """

    type: Literal["FalseNegatives"] = "FalseNegatives"

    def result(self, *totals: Any) -> Figure:
        """A number, or one for each threshold."""
        return rate(Counts.of(*totals).fn, self.thresholds)


class OneClass(Spec):
    """Field of metrics that may look at one class alone."""

    class_id: int | None = Field(default=None, ge=0)
    """the only class that counts, its place on the last axis; default: all"""

    def picked(self, *values: Value) -> tuple[Value, ...]:
        """The values of the class."""
        if self.class_id is None:
            return values
        need(len(values[0].shape) >= 2, "there are no classes to pick one of", got=values[0].type)
        axis, count = len(values[0].shape) - 1, values[0].shape[-1]
        need(self.class_id < count, f"there is no class {self.class_id}", expected=f"`class_id` below {count}")
        return tuple(Slice(axis, self.class_id, self.class_id + 1)(one) for one in values)


class AmongAnswers(OneClass, MetricSpec):
    """Base of Precision and Recall."""

    thresholds: Thresholds | None = None
    """a prediction greater than this means yes; one number, or several, each of which has a result of its own. Default:
    0.5, or with `top_k` none. For scores before the sigmoid: 0"""
    top_k: PositiveInt | None = None
    """so many scores along the last axis, the greatest, may mean yes; default: all"""

    samples: ClassVar[tuple[Sample, ...]] = (
        ANSWERS,
        WEIGHTED,
        Sample.of((6, 4), (6, 4), dtypes=("float32", "int32"), high=2, top_k=2),
        Sample.of(
            (6, 4), (6, 4), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None), top_k=3, class_id=2,
            thresholds=0.2,
        ),
    )  # fmt: skip

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → how many are over so many thresholds, (1, 2, thresholds + 1)."""
        prediction, target = alike(net, prediction, target)
        if self.top_k is not None:
            count = prediction.shape[-1]
            expected = f"`top_k` up to {count}"
            need(
                self.top_k <= count,
                f"there are not {self.top_k} classes",
                expected=expected,
                got=f"top_k: {self.top_k}",
            )
            prediction = elementwise(Where(), AmongGreatest(self.top_k)(prediction), prediction, LEFT_OUT)
        prediction, target = self.picked(prediction, target)
        return (positives(net, Levels.of(*self._levels), prediction, target),)

    @property
    def _levels(self) -> tuple[float, ...]:
        return self.thresholds or ((0.5,) if self.top_k is None else (LEFT_OUT / 2,))


@METRICS.register
class Precision(AmongAnswers):
    """Share of right ones of the numbers that are over the threshold.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape; (N, 1) beside (N) is accepted.
    """

    type: Literal["Precision"] = "Precision"

    def result(self, *totals: Any) -> Figure:
        """A number, or one for each threshold."""
        return rate(Counts.of(*totals).precision, self._levels)


@METRICS.register
class Recall(AmongAnswers):
    """Share of the numbers where the target says yes that are over the threshold.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape; (N, 1) beside (N) is accepted.
    """

    type: Literal["Recall"] = "Recall"

    def result(self, *totals: Any) -> Figure:
        """A number, or one for each threshold."""
        return rate(Counts.of(*totals).recall, self._levels)


class BestOf(OneClass, MetricSpec):
    """Base of metrics that are the best of one rate among the thresholds at which another is good enough."""

    num_thresholds: PositiveInt = 200
    """how many thresholds are tried, evenly from 0 to 1; 1 for the only threshold 0.5"""

    samples: ClassVar[tuple[Sample, ...]] = ()

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → how many are over so many thresholds, (1, 2, thresholds + 1)."""
        prediction, target = self.picked(*alike(net, prediction, target))
        levels = Levels.of(0.5) if self.num_thresholds == 1 else Levels(None, self.num_thresholds)
        return (positives(net, levels, prediction, target),)

    @staticmethod
    def best(rates: Any, given: Any, least: float) -> float:
        """The greatest rate where the given one is at least so great; 0 where it never is."""
        return float(rates[given >= least].max(initial=0.0))


def samples_of(name: str) -> tuple[Sample, ...]:
    """Samples of a class whose field `name` is the rate that is given."""
    first: dict[str, Any] = {name: 0.4}
    second: dict[str, Any] = {name: 0.6, "num_thresholds": 20, "class_id": 1}
    plain = Sample.of((8, 2), (8, 2), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None))
    return replace(plain, fields=first), replace(plain, fields=second, weight=(8,))


@METRICS.register
class SensitivityAtSpecificity(BestOf):
    """The best sensitivity (share of the yeses that is found) at a threshold with at least a given specificity.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape. Specificity: the share of the noes that is found.
    """

    type: Literal["SensitivityAtSpecificity"] = "SensitivityAtSpecificity"
    specificity: float = Field(ge=0, le=1)
    """the least specificity"""

    samples: ClassVar = samples_of("specificity")

    def result(self, *totals: Any) -> Figure:
        """A number."""
        counts = Counts.of(*totals)
        return self.best(counts.recall, counts.specificity, self.specificity)


@METRICS.register
class SpecificityAtSensitivity(BestOf):
    """The best specificity (share of the noes that is found) at a threshold with at least a given sensitivity.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape. Sensitivity: share of the yeses that is found.
    """

    type: Literal["SpecificityAtSensitivity"] = "SpecificityAtSensitivity"
    sensitivity: float = Field(ge=0, le=1)
    """the least sensitivity"""

    samples: ClassVar = samples_of("sensitivity")

    def result(self, *totals: Any) -> Figure:
        """A number."""
        counts = Counts.of(*totals)
        return self.best(counts.specificity, counts.recall, self.sensitivity)


@METRICS.register
class PrecisionAtRecall(BestOf):
    """The best precision at a threshold with at least a given recall.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape.
    """

    type: Literal["PrecisionAtRecall"] = "PrecisionAtRecall"
    recall: float = Field(ge=0, le=1)
    """the least recall"""

    samples: ClassVar = samples_of("recall")

    def result(self, *totals: Any) -> Figure:
        """A number."""
        counts = Counts.of(*totals)
        return self.best(counts.precision, counts.recall, self.recall)


@METRICS.register
class RecallAtPrecision(BestOf):
    """The best recall at a threshold with at least a given precision.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape.
    """

    type: Literal["RecallAtPrecision"] = "RecallAtPrecision"
    precision: float = Field(ge=0, le=1)
    """the least precision"""

    samples: ClassVar = samples_of("precision")

    def result(self, *totals: Any) -> Figure:
        """A number."""
        counts = Counts.of(*totals)
        return self.best(counts.recall, counts.precision, self.precision)
