"""A table of the errors of predicted numbers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import PrivateAttr

from netspec.graph.ops.elementwise import cast
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.losses_and_metrics import MetricResult, MetricSpec
from netspec.layers.targets import align_target
from netspec.schema.specs.kinds import METRICS

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of the errors in the table."""


@METRICS.register
class RegressionReport(MetricSpec):
    """Errors of predicted numbers as a table: mean, mean absolute and root mean squared error, quantiles, and R².

    Prediction and target have the same shape (N, …), or the shapes (N, 1) and (N). The error of an element is
    prediction - target. R² is 1 - Σ error² / Σ (target - mean of the targets)². All errors are kept until the end of
    an evaluation.
    """

    type: Literal["RegressionReport"] = "RegressionReport"
    collects: ClassVar[bool] = True

    samples: ClassVar = (Sample.of((6, 2), (6, 2)), Sample.of((6, 1), (6,)))

    _unit_scale: float | None = PrivateAttr(default=None)

    def with_unit_scale(self, scale: float) -> Self:
        """Return the metric with a column in the unit of the data."""
        scaled = self.model_copy()
        scaled._unit_scale = scale
        return scaled

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → both in float64, of the same shape."""
        p, t = align_target(builder, prediction, target)
        return cast(p, DType.FLOAT64), cast(t, DType.FLOAT64)

    def collect(self, *values: Any) -> tuple[Any, ...]:
        """Return the errors and the targets of all elements, each (N · …)."""
        prediction, target = (value.reshape(-1) for value in values)
        return prediction - target, target

    def result(self, *totals: Any) -> MetricResult:
        import numpy as np

        errors, targets = (np.asarray(rows, np.float64) for rows in totals)
        squared, spread = float((errors**2).sum()), float(((targets - targets.mean()) ** 2).sum())
        rows = {
            "mean error": float(errors.mean()),
            "mean absolute error": float(np.abs(errors).mean()),
            "root mean squared error": float(np.sqrt((errors**2).mean())),
        }
        rows |= {f"{quantile:.0%} of errors below": float(np.quantile(errors, quantile)) for quantile in QUANTILES}
        score = {"R²": 1 - squared / spread if spread > 0 else 0.0}
        if self._unit_scale is None:
            return {**rows, **score}
        scale = self._unit_scale
        table = {name: {"value": value, "in the target's unit": value * scale} for name, value in rows.items()}
        return {**table, **{name: {"value": value} for name, value in score.items()}}
