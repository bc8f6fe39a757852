"""Base classes of losses and metrics: values for each element of a batch, their weights, and their reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Literal, Self, TypeAlias

from netspec.graph.ops.elementwise import Equal, Where, call_elementwise, cast, scalar
from netspec.graph.ops.reduce import ReduceMean, ReduceSum, reshape_to
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require
from netspec.schema.specs.kinds import LossFields, MetricFields

TableRow: TypeAlias = Mapping[str, float]
MetricResult: TypeAlias = float | TableRow | Mapping[str, TableRow]
"""Result of a metric: a number, numbers by name, or a table with named rows and columns."""
PredictionKind: TypeAlias = Literal["classes", "binary", "values", "frames", "boxes"]
"""Meaning of a prediction: scores or probabilities of classes along an axis, or of binary answers; real numbers; scores
of classes and a blank at each frame of a sequence (CTC); or boxes with class probabilities."""


@dataclass(frozen=True)
class ElementLosses:
    """Losses, or measured values, of a batch: `values` (N, …), one per element."""

    values: Value
    group_size: int = 1
    """Number of adjacent values on the last axis whose mean is one loss, as in Keras."""
    weights: tuple[Value, ...] = ()
    """Factors of the values in addition to the sample weights, such as class weights."""
    mask: Value | None = None
    """Bool: elements that are False are left out of all means."""
    uses_prediction_mask: bool = True
    """Whether the prediction's mask applies to the values."""

    @classmethod
    def per_feature(cls, values: Value, *weights: Value) -> ElementLosses:
        """Create losses from values for each element of a prediction; the mean over the last axis is one loss."""
        return cls(values, values.shape[-1] if len(values.shape) > 1 else 1, weights)

    def weighted(self, builder: Builder) -> tuple[Value, Value | None, Value | None]:
        """The values times all weights and masks; the product of weights and masks; the mask. None stands for ones.

        The mask combines the prediction's mask with the loss's own.
        """
        all_weights = [*self.weights, *([] if builder.sample_weight is None else [builder.sample_weight])]
        prediction_mask = builder.mask() if self.uses_prediction_mask else None
        masks = [mask for mask in (prediction_mask, self.mask) if mask is not None]
        weights = _product([align_weights(builder.floating(x), self.values) for x in all_weights])
        mask = _product([align_weights(builder.floating(x), self.values) for x in masks])
        factors = [factor for factor in (weights, mask) if factor is not None]
        values = self.values if not factors else cast(self.values, builder.dtype)
        for factor in factors:
            values = values * factor
        return values, _product(factors), mask


def _product(factors: list[Value]) -> Value | None:
    product: Value | None = None
    for factor in factors:
        product = factor if product is None else product * factor
    return product


def align_weights(weights: Value, values: Value) -> Value:
    """Reshape weights (N, …) to broadcast with values (N, …): leading axes of the same size, or of size 1.

    A last axis of size 1 that the values don't have is dropped, as in Keras.
    """
    require(
        values.shape != () or weights.shape == (),
        "`sample_weight` and masks need a loss with one value per sample",
        got="one value for the whole batch",
        hint="set `axis`",
    )
    shape = weights.shape
    if 1 < len(shape) == len(values.shape) + 1 and shape[-1] == 1:
        shape = shape[:-1]
    fits = len(shape) <= len(values.shape) and all(
        weight_size in (1, size) for weight_size, size in zip(shape, values.shape, strict=False)
    )
    require(
        fits,
        "the weights do not match the values",
        expected="(batch)"
        + (
            f", or the leading sizes of {batch_shape(values.shape)}, each of which may be 1" if values.shape[1:] else ""
        ),
        got=batch_shape(weights.shape),
    )
    return reshape_to(weights, (*shape, *(1,) * (len(values.shape) - len(shape))))


def broadcast_sum(factor: Value, values: Value) -> Value:
    """The sum of a factor after broadcasting it to `values`."""
    total = ReduceSum()(factor)
    repeats = prod(values.shape) // prod(factor.shape)
    return total if repeats == 1 else total * float(repeats)


def safe_ratio(total: Value, count: Value) -> Value:
    """total / count; 0 if the count is 0."""
    is_zero = call_elementwise(Equal(), count, 0.0)
    return call_elementwise(Where(), is_zero, 0.0, total / call_elementwise(Where(), is_zero, 1.0, count))


class LossSpec(LossFields):
    """Base of losses: `build` returns the loss of the batch, a scalar."""

    samples: ClassVar[tuple[Sample, ...]] = ()
    prediction_kind: ClassVar[PredictionKind | None] = None
    """Meaning of the first input of the loss, by which predictions are derived from it; None: unknown."""

    def build(self, builder: Builder, *inputs: Any, **_: Any) -> Value:
        """Build the scalar loss from prediction and target."""
        raise NotImplementedError  # subclasses implement it

    def reduce(self, builder: Builder, losses: ElementLosses) -> Value:
        """Reduce the losses to the loss of the batch, by the field `reduction`."""
        values, weights, mask = losses.weighted(builder)
        size, batch = prod(values.shape), values.shape[0] if values.shape else 1
        match self.reduction:
            case "sum":
                return _times(ReduceSum()(values), 1 / losses.group_size)
            case "batch_size":
                return _times(ReduceSum()(values), 1 / (losses.group_size * batch))
            case "mean_with_sample_weight" if weights is not None:
                return safe_ratio(ReduceSum()(values), broadcast_sum(weights, values))
            case "sum_over_batch_size" | "mean" if mask is not None:
                return safe_ratio(ReduceSum()(values), broadcast_sum(mask, values))
        return ReduceMean()(values) if size > 1 else reshape_to(values, ())


class PairLoss(LossSpec):
    """Base of losses that compare a prediction with a target: `per_element` gives the losses of all elements."""

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """The losses of all elements."""
        raise NotImplementedError  # subclasses implement it

    def build(self, builder: Builder, prediction: Value, target: Value) -> Value:
        """prediction, target: (N, …) → scalar."""
        return self.reduce(builder, self.per_element(builder, prediction, target))


def _times(x: Value, factor: float) -> Value:
    return x if factor == 1 else x * factor


class MetricSpec(MetricFields):
    """Base of metrics: totals of each batch are computed in the graph, the result is computed from their sums.

    `build` returns arrays that are summed over all batches and workers; `result` computes the metric from these totals,
    so it is exact over the full dataset for any batch size. A metric that `collects` keeps rows instead: see
    `collect`.
    """

    samples: ClassVar[tuple[Sample, ...]] = ()
    collects: ClassVar[bool] = False
    """Whether the results of batches are concatenated along axis 0, not summed."""
    mean_baseline: ClassVar[float | None] = None
    """The result if each prediction is the mean of the targets; None if that result depends on the targets."""

    def build(self, builder: Builder, *inputs: Any, **_: Any) -> tuple[Value, ...]:
        """Build the totals of one batch from prediction and target."""
        raise NotImplementedError  # subclasses implement it

    def collect(self, *values: Any) -> tuple[Any, ...]:
        """Return the rows to keep of the arrays that `build` returns for a batch, for a metric that `collects`.

        It is called outside the graph, with NumPy arrays. `result` then gets the rows of all batches.
        """
        raise NotImplementedError(f"{type(self).__name__} does not collect")

    def target_counts(self, target: Any) -> Any:
        """Return how many elements of the targets (N, …) of a batch each constant prediction matches, (predictions,).

        None if the metric is not a share of right answers. It is called outside the graph, with a NumPy array.
        """
        return None

    def error_totals(self, prediction: Any, target: Any) -> Any:
        """Return the sum of the errors (N, …) of a prediction and their number, from which `result` is computed.

        None if the metric is not a mean of errors. It is called outside the graph, with NumPy arrays.
        """
        return None

    def with_class_names(self, names: Sequence[str]) -> Self:
        """Return the metric with the names that the data has for the classes of its target."""
        return self

    def with_unit_scale(self, scale: float) -> Self:
        """Return the metric for a normalized target; errors times `scale` are in the unit of the data."""
        return self

    def result(self, *totals: Any) -> MetricResult:
        """Compute the metric from the totals of all batches."""
        raise NotImplementedError  # subclasses implement it


class MeanMetric(MetricSpec):
    """Base of metrics that are a weighted mean over all elements."""

    def totals(self, builder: Builder, measured: ElementLosses) -> tuple[Value, ...]:
        """Sum of values and of weights; int64, which is exact, if values are bool and have no weights."""
        values, weights, _ = measured.weighted(builder)
        if weights is not None:
            return ReduceSum()(values), broadcast_sum(weights, values)
        count = scalar(prod(values.shape), DType.INT64)
        return ReduceSum()(cast(values, DType.INT64) if values.dtype == DType.BOOL else values), count

    def result(self, *totals: Any) -> MetricResult:
        """The quotient of the totals."""
        return self.mean(*totals)

    @staticmethod
    def mean(total: Any, count: Any) -> float:
        """The quotient of the totals; 0 if the count is 0."""
        return float(total) / float(count) if float(count) else 0.0


class PairMetric(MeanMetric):
    """Base of metrics that compare a prediction with a target: `per_element` gives the values to average."""

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """bool or float values of all elements."""
        raise NotImplementedError  # subclasses implement it

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → sum of the weighted values, sum of the weights."""
        return self.totals(builder, self.per_element(builder, prediction, target))
