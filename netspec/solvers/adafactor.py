"""Adafactor: Adam's scaling, with second moments stored only for the rows and columns of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Maximum, Minimum, cast, scalar
from netspec.graph.ops.reduce import ReduceMean
from netspec.graph.ops.unary import Exp, Log, Sqrt
from netspec.graph.types import factored_axes
from netspec.graph.value import Value
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.clipping import sum_of_squares
from netspec.solvers.rules import DecoupledSolver
from netspec.solvers.schedules.constant import Constant, Schedule
from netspec.solvers.transform import DeclaredSlots, Param, Slots, SlotSpec, Step, Updates, UpdateTransform, for_each


def root_mean_square(x: Value) -> Value:
    """Return √(mean of x²), a scalar."""
    return Sqrt()(sum_of_squares(x) * (1.0 / x.type.size))


@dataclass(frozen=True)
class ScaleByFactors(UpdateTransform):
    """u ← u / √v, where v is a moving average of u² + epsilon, which for matrices is factored

    v = rows · columns / mean(rows), with moving averages of the means of rows and columns. The decay at update t is
    1 - t^exponent. Then u is scaled to a root mean square of at most `threshold`.
    """

    exponent: float
    epsilon: float
    threshold: float

    def init(self, param: Param) -> DeclaredSlots:
        shape = param.value.shape
        axes = factored_axes(shape)
        if axes is None:
            return {"second_moment": 0.0}
        rows, columns = (
            tuple(1 if axis == reduced else size for axis, size in enumerate(shape)) for reduced in axes[::-1]
        )
        return {"rows": SlotSpec(shape=rows), "columns": SlotSpec(shape=columns)}

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        fresh = Exp()(Log()(step.count) * self.exponent)

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            share = cast(fresh, update.dtype)
            square = update * update + self.epsilon
            axes = factored_axes(update.shape)
            if axes is None:
                second = slots["second_moment"] + (square - slots["second_moment"]) * share
                return self._clipped(update / Sqrt()(second)), {"second_moment": second}
            row, column = axes
            rows = slots["rows"] + (ReduceMean((column,), keepdims=True)(square) - slots["rows"]) * share
            columns = slots["columns"] + (ReduceMean((row,), keepdims=True)(square) - slots["columns"]) * share
            by_row = 1.0 / Sqrt()(rows / ReduceMean((row,), keepdims=True)(rows))
            by_column = 1.0 / Sqrt()(columns)
            return self._clipped(update * by_row * by_column), {"rows": rows, "columns": columns}

        return for_each(updates, slots, step, rule)

    def _clipped(self, update: Value) -> Value:
        size = root_mean_square(update) * (1.0 / self.threshold)
        return update / Maximum()(size, scalar(1.0, update.dtype))


@dataclass(frozen=True)
class DescendRelatively(UpdateTransform):
    """u ← -max(epsilon, RMS(w)) · min(lr, 1/√t) · u"""

    epsilon: float

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        slowest = 1.0 / Sqrt()(step.count)

        def rule(param: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            dtype = update.dtype
            size = Maximum()(root_mean_square(param.value), scalar(self.epsilon, dtype))
            return -(size * Minimum()(step.rate(param), cast(slowest, dtype))) * update, slots

        return for_each(updates, slots, step, rule)


@SOLVERS.register
class Adafactor(DecoupledSolver):
    """Steps scaled by averages of squared gradients, stored for matrices only as averages of rows and columns.

    β = 1 - t^beta_2_decay; s = g² + epsilon_1; vectors: v ← β · v + (1 - β) · s; others: r and c are such averages
    of the means of s along one of the two largest axes each, and v = r · c / mean(r); u = g / √v;
    u ← u / max(1, RMS(u) / clip_threshold); w ← w - max(epsilon_2, RMS(w)) · min(lr, 1/√t) · u. Shazeer and Stern 2018,
    arXiv:1804.04235, algorithms 4 and 5. As in Keras, which however always factors the last two axes (for kernels of
    convolutions they are the first two here). Unlike Hugging Face's, it has no first moment.
    """

    type: Literal["Adafactor"] = "Adafactor"
    foreign_fields: ClassVar[dict[str, str]] = {
        "relative_step": "not needed: the rate is always relative to the size of the weights, and at most 1/√t",
        "scale_parameter": "not needed: steps are always relative to the size of the weights",
        "decay_rate": "use `beta_2_decay`",
        "beta1": "Adafactor has no first moment here",
    }
    learning_rate: Schedule = Constant(initial=0.001)
    """Learning rate, relative to the root mean square of the weights: a number, or a schedule."""
    beta_2_decay: float = Field(default=-0.8, lt=0)
    """Exponent p in the decay 1 - t^p of the moving averages at update t."""
    epsilon_1: float = Field(default=1e-30, gt=0)
    """Added to the squared gradients."""
    epsilon_2: float = Field(default=1e-3, gt=0)
    """Lower bound of the root mean square of the weights."""
    clip_threshold: float = Field(default=1.0, gt=0)
    """Maximum root mean square of a scaled gradient; larger ones are scaled down to it."""
    samples: ClassVar = (
        {},
        {
            "learning_rate": 0.5,
            "beta_2_decay": -0.5,
            "epsilon_1": 1e-3,
            "epsilon_2": 2.0,
            "clip_threshold": 0.5,
            "weight_decay": 0.01,
        },
    )

    def transforms(self) -> Sequence[UpdateTransform]:
        scale = ScaleByFactors(self.beta_2_decay, self.epsilon_1, self.clip_threshold)
        return [scale, DescendRelatively(self.epsilon_2)]
