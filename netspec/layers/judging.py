"""What losses and metrics are built on: values of the places of a batch, their weights, and what is made of them all.

A loss or metric says in `judge` what it finds of each place. Weights of samples, of classes and masks are factors of
that; `LossSpec` reduces it to the one number that training makes small, `MeanMetric` to totals over the whole set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, TypeAlias

from netspec.graph.ops.elementwise import Equal, Where, cast, elementwise, scalar
from netspec.graph.ops.reduce import ReduceMean, ReduceSum, reshape_to
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import need
from netspec.schema.kinds import LossFields, MetricFields

Row: TypeAlias = Mapping[str, float]
Figure: TypeAlias = float | Row | Mapping[str, Row]
"""What a metric comes to: a number, numbers by their names, or a table, its rows and columns by their names."""


@dataclass(frozen=True)
class Judged:
    """What is found of a batch: `values` (N, …), one for each place, or for each number of it."""

    values: Value
    each: int = 1
    """So many values side by side on the last axis are one loss, which is their mean, as in Keras."""
    weights: tuple[Value, ...] = ()
    """Factors of the values beside the weights of the samples: of classes, say."""
    mask: Value | None = None
    """bool: where it is false, a value is of no place at all and counts in no mean."""
    places: bool = True
    """Whether the values are of places of the prediction, whose mask is theirs then."""

    @classmethod
    def numbers(cls, values: Value, *weights: Value) -> Judged:
        """Of each number of a prediction: those along its last axis are one loss."""
        return cls(values, values.shape[-1] if len(values.shape) > 1 else 1, weights)

    def weighted(self, net: Builder) -> tuple[Value, Value | None, Value | None]:
        """The values times all weights; all weights, and which places count, where not all are 1.

        Masks are those of the prediction and of what the loss itself leaves out.
        """
        given = [*self.weights, *([] if net.sample_weight is None else [net.sample_weight])]
        masks = [one for one in (net.mask() if self.places else None, self.mask) if one is not None]
        weights = _product([beside(net.floating(one), self.values) for one in given])
        mask = _product([beside(net.floating(one), self.values) for one in masks])
        factors = [one for one in (weights, mask) if one is not None]
        values = self.values if not factors else cast(self.values, net.dtype)
        for factor in factors:
            values = values * factor
        return values, _product(factors), mask


def _product(factors: list[Value]) -> Value | None:
    made: Value | None = None
    for factor in factors:
        made = factor if made is None else made * factor
    return made


def beside(weights: Value, values: Value) -> Value:
    """Weights (N, …) beside values (N, …): their axes are the first of the values', each of the same size or of size 1.

    A last axis of size 1 that the values have not is left out, as in Keras.
    """
    shape, sizes = weights.shape, list(values.shape[1:])
    if 1 < len(shape) == len(values.shape) + 1 and shape[-1] == 1:
        shape = shape[:-1]
    fits = len(shape) <= len(values.shape) and all(
        one in (1, size) for one, size in zip(shape, values.shape, strict=False)
    )
    need(
        fits,
        "the weights do not fit what is weighted",
        expected="one number per sample" + (f", or the first of the sizes {sizes}, or 1 for some" if sizes else ""),
        got=f"{list(weights.shape[1:])} per sample",
        hint=None if values.shape else "one number is found of the whole batch: give the loss an `axis`",
    )
    return reshape_to(weights, (*shape, *(1,) * (len(values.shape) - len(shape))))


def sum_over(factor: Value, values: Value) -> Value:
    """The sum of a factor over all values that it is multiplied with."""
    total = ReduceSum()(factor)
    repeats = prod(values.shape) // prod(factor.shape)
    return total if repeats == 1 else total * float(repeats)


def ratio(total: Value, count: Value) -> Value:
    """total / count; 0 where the count is 0."""
    none = elementwise(Equal(), count, 0.0)
    return elementwise(Where(), none, 0.0, total / elementwise(Where(), none, 1.0, count))


class LossSpec(LossFields):
    """Base of losses: `build` gives the loss of the batch, a scalar, by way of `reduced`."""

    samples: ClassVar[tuple[Sample, ...]] = ()

    def build(self, net: Builder, *inputs: Any, **_: Any) -> Value:
        """The scalar loss from what is compared."""
        raise NotImplementedError  # abstract: subclasses say

    def reduced(self, net: Builder, judged: Judged) -> Value:
        """The loss of the batch, as `reduction` says."""
        values, weights, mask = judged.weighted(net)
        size, batch = prod(values.shape), values.shape[0] if values.shape else 1
        match self.reduction:
            case "sum":
                return _scaled(ReduceSum()(values), 1 / judged.each)
            case "batch_size":
                return _scaled(ReduceSum()(values), 1 / (judged.each * batch))
            case "mean_with_sample_weight" if weights is not None:
                return ratio(ReduceSum()(values), sum_over(weights, values))
            case "sum_over_batch_size" | "mean" if mask is not None:
                return ratio(ReduceSum()(values), sum_over(mask, values))
        return ReduceMean()(values) if size > 1 else reshape_to(values, ())


class PairLoss(LossSpec):
    """Base of losses that compare a prediction with a target: `judge` gives the losses of all places."""

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """The losses of all places."""
        raise NotImplementedError  # abstract: subclasses say

    def build(self, net: Builder, prediction: Value, target: Value) -> Value:
        """prediction, target: (N, …) → scalar."""
        return self.reduced(net, self.judge(net, prediction, target))


def _scaled(x: Value, factor: float) -> Value:
    return x if factor == 1 else x * factor


class MetricSpec(MetricFields):
    """Base of metrics: batches are summed up in the graph, the result is read off the sums.

    `build` gives arrays that are added over all batches (and workers); `result` turns the totals into the figure, so
    that it is exact over the whole set whatever the batch size.
    """

    samples: ClassVar[tuple[Sample, ...]] = ()

    def build(self, net: Builder, *inputs: Any, **_: Any) -> tuple[Value, ...]:
        """Totals of one batch, from prediction and target."""
        raise NotImplementedError  # abstract: subclasses say

    def result(self, *totals: Any) -> Figure:
        """The figure from the totals of all batches."""
        raise NotImplementedError  # abstract: subclasses say


class MeanMetric(MetricSpec):
    """Base of metrics that are the mean of something over all places, each times its weight."""

    def summed(self, net: Builder, judged: Judged) -> tuple[Value, ...]:
        """Both totals; in int64, exact over any set, where values are true or false and none is weighted."""
        values, weights, _ = judged.weighted(net)
        if weights is not None:
            return ReduceSum()(values), sum_over(weights, values)
        count = scalar(prod(values.shape), DType.INT64)
        return ReduceSum()(cast(values, DType.INT64) if values.dtype == DType.BOOL else values), count

    def result(self, *totals: Any) -> Figure:
        """Their quotient."""
        return self.mean(*totals)

    @staticmethod
    def mean(total: Any, count: Any) -> float:
        """The quotient of the totals; 0 where nothing was counted."""
        return float(total) / float(count) if float(count) else 0.0


class PairMetric(MeanMetric):
    """Base of metrics that compare a prediction with a target: `judge` gives what is averaged."""

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """bool or float values of all places."""
        raise NotImplementedError  # abstract: subclasses say

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → sum of the weighted values, sum of the weights."""
        return self.summed(net, self.judge(net, prediction, target))
