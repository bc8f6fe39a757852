"""Gradient clipping: by the norm of each gradient, by the global norm, by value.

Norms are L2. Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent neural networks",
arXiv:1211.5063; the three forms and their names are Keras's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add

from netspec.graph.ops.elementwise import Maximum, Minimum, cast, scalar
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.unary import Sqrt
from netspec.graph.value import Value, in_scope
from netspec.solvers.transform import Param, ParamSlots, ParamUpdate, Slots, Step, Updates, UpdateTransform, for_each


def shrink(limit: float, squares: Value) -> Value:
    """Return the factor limit / max(‖g‖, limit), from ‖g‖²: 1 within the limit, and without division by 0."""
    bound = scalar(limit, squares.dtype)
    return bound / Maximum()(Sqrt()(squares), bound)


def sum_of_squares(update: Value) -> Value:
    """Return Σ g², a scalar."""
    return ReduceSum()(update * update)


@dataclass(frozen=True)
class ClipByNorm(UpdateTransform):
    """g ← g · limit / max(‖g‖, limit), for each parameter separately"""

    limit: float

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        return update * shrink(self.limit, sum_of_squares(update)), slots


@dataclass(frozen=True)
class ClipByGlobalNorm(UpdateTransform):
    """g ← g · limit / max(‖all g‖, limit): all gradients are scaled by one factor, which keeps the direction"""

    limit: float

    def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
        dtype = step.learning_rate.dtype
        sharded, replicated = list[Value](), list[Value]()
        for param, squares in zip(step.params, self._squares(updates, step), strict=True):
            summands = sharded if step.pieces is None or param.name in step.pieces else replicated
            summands.append(cast(squares, dtype))
        total = step.total(reduce(add, sharded) if sharded else scalar(0.0, dtype))
        factor = shrink(self.limit, reduce(add, replicated, total))

        def rule(_: Param, update: Value, slots: dict[str, Value]) -> tuple[Value, dict[str, Value]]:
            return update * cast(factor, update.dtype), slots

        return for_each(updates, slots, step, rule)

    def _squares(self, updates: Updates, step: Step) -> Iterable[Value]:
        for param, update in zip(step.params, updates, strict=True):
            with in_scope(param.scope):
                squares = sum_of_squares(update)
            yield squares


@dataclass(frozen=True)
class ClipByValue(UpdateTransform):
    """g ← min(max(g, -limit), limit), for each element"""

    limit: float

    def update_one(self, step: Step, param: Param, update: Value, slots: ParamSlots) -> ParamUpdate:
        low, high = scalar(-self.limit, update.dtype), scalar(self.limit, update.dtype)
        return Minimum()(Maximum()(update, low), high), slots
