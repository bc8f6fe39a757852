"""Counts of positive and negative targets by the number of thresholds that the prediction exceeds.

Every element falls between two thresholds; the totals count the elements in each interval. The number of right or wrong
answers at any threshold is a sum of these, so that metrics of many thresholds need only one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from netspec.graph.ops.elementwise import Equal, Greater, Maximum, Minimum, Where, call_elementwise, cast, scalar
from netspec.graph.ops.linear import ScatterRows
from netspec.graph.ops.reduce import Broadcast, ReduceSum, reshape_to
from netspec.graph.ops.source import constant
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder
from netspec.layers.checks import as_items, is_number
from netspec.layers.losses_and_metrics import ElementLosses
from netspec.schema.specs.spec import describe, problem


def _thresholds(value: Any) -> Any:
    thresholds = as_items(value, lambda item: is_number(item) and 0 <= item <= 1, "a number from 0 to 1")
    if len(set(thresholds)) < len(thresholds):
        raise problem("has a number twice", expected="each number once", got=describe(value))
    return tuple(sorted(map(float, thresholds)))


Thresholds = Annotated[tuple[float, ...], BeforeValidator(_thresholds, json_schema_input_type=float | list[float])]
"""One threshold or several, from 0 to 1 and in order."""

Count = Annotated[int, Field(gt=0)]


@dataclass(frozen=True)
class ThresholdGrid:
    """Thresholds in ascending order: `values` or, if that is None, `count` evenly spaced ones from 0 to 1."""

    values: tuple[float, ...] | None
    count: int
    closed: bool = False
    """Whether the first is slightly below 0 and the last slightly over 1, so that all elements are over the first and
    none over the last."""

    @classmethod
    def of(cls, *values: float) -> ThresholdGrid:
        """Create a grid of these thresholds."""
        return cls(tuple(sorted(values)), len(values))

    def exceeded(self, x: Value) -> Value:
        """Number of thresholds that each element exceeds, as int64. NaN exceeds no threshold ≥ 0."""
        if self.values is not None:
            levels = constant(_array(self.values, x))
            over = Greater()(reshape_to(x, (*x.shape, 1)), levels)
            return ReduceSum((len(x.shape),))(cast(over, DType.INT64))
        within = call_elementwise(Where(), call_elementwise(Greater(), x, 0.0), x, 0.0)
        position = call_elementwise(Minimum(), within, 1.0) * float(self.count - 1)
        truncated = cast(position, DType.INT64)
        rounded = truncated + cast(Greater()(position, cast(truncated, x.dtype)), DType.INT64)
        return call_elementwise(Maximum(), rounded, 1) if self.closed else rounded


def _array(values: tuple[float, ...], like: Value) -> Any:
    import numpy as np

    return np.array(values, str(like.dtype))


def weighted_bincount(index: Value, rows: int, weights: Value | None) -> Value:
    """Histogram of `index` over the integers below `rows`, or the sums of the weights, which broadcast."""
    if weights is None:
        ones = Broadcast(index.shape)(scalar(1, DType.INT64))
    else:
        ones = Broadcast(index.shape)(weights)
    size = prod(index.shape)
    return ScatterRows(rows)(reshape_to(ones, (size,)), reshape_to(index, (size,)))


def threshold_counts(builder: Builder, grid: ThresholdGrid, prediction: Value, target: Value, groups: int = 1,
                     extra_weights: tuple[Value, ...] = ()) -> Value:  # fmt: skip
    """Totals (groups, 2, thresholds + 1): elements by target and number of thresholds exceeded.

    With several groups, each element of the last axis is a group. `extra_weights` multiply the sample weights.
    """
    _, weights, _ = ElementLosses(prediction, weights=extra_weights).weighted(builder)
    bins = grid.count + 1
    no = cast(call_elementwise(Equal(), target, 0.0), DType.INT64)
    index = grid.exceeded(prediction) + (1 - no) * bins
    if groups > 1:
        import numpy as np

        index = index + constant(np.arange(groups) * (2 * bins))
    return reshape_to(weighted_bincount(index, groups * 2 * bins, weights), (groups, 2, bins))


@dataclass(frozen=True)
class Counts:
    """Right and wrong answers at each threshold, (groups, thresholds)."""

    tp: Any
    fp: Any
    tn: Any
    fn: Any

    @classmethod
    def of(cls, total: Any) -> Counts:
        """Compute counts from the totals that `threshold_counts` builds, summed over batches."""
        from_above = total[..., ::-1].cumsum(-1)[..., ::-1]
        over, all_ = from_above[..., 1:], from_above[..., :1]
        (fp, tp), (no, yes) = (over[:, 0], over[:, 1]), (all_[:, 0], all_[:, 1])
        return cls(tp, fp, no - fp, yes - tp)

    @property
    def precision(self) -> Any:
        """Share of positive targets among positive predictions."""
        return safe_quotient(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> Any:
        """Share of positive predictions among positive targets: the sensitivity."""
        return safe_quotient(self.tp, self.tp + self.fn)

    @property
    def specificity(self) -> Any:
        """Share of negative predictions among negative targets."""
        return safe_quotient(self.tn, self.tn + self.fp)


def safe_quotient(a: Any, b: Any) -> Any:
    """a / b; 0 if b is 0."""
    import numpy as np

    a, b = np.broadcast_arrays(np.asarray(a, float), b)
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)
