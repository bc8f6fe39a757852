"""A small training problem for solvers: three parameters in two layers, their gradients by autodiff.

loss = ½ Σ c · (w - target)², so that ∂loss/∂w = c · (w - target) can be written down in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Input, State, constant
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, Value, in_scope
from netspec.schema.specs.spec import Registry
from netspec.solvers.base import Param, Solution, SolverSpec
from netspec.solvers.schedules.base import ScheduleSpec
from tests.interpret import Arrays, run

SHAPES = {"conv/kernel": (3, 2, 2), "conv/bias": (3,), "fc/kernel": (2, 4)}
MULTIPLIERS = {"conv/kernel": (1.0, 1.0), "conv/bias": (2.0, 0.0), "fc/kernel": (0.5, 3.0)}
PLAIN = dict.fromkeys(SHAPES, (1.0, 1.0))


def samples(registry: Registry[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return (type, fields) of every sample of every registered class."""
    return [(cls.model_fields["type"].default, sample) for cls in registry for sample in cls.samples]


@dataclass(frozen=True)
class Quadratic:
    """The constants of the problem, in float64."""

    start: Arrays
    target: Arrays
    curvature: Arrays

    @classmethod
    def random(cls, seed: int = 7) -> Quadratic:
        rng = np.random.default_rng(seed)
        return cls(
            {name: rng.normal(size=shape) for name, shape in SHAPES.items()},
            {name: rng.normal(size=shape) for name, shape in SHAPES.items()},
            {name: rng.uniform(0.5, 2.0, size=shape) for name, shape in SHAPES.items()},
        )

    def gradient(self, name: str, w: Any) -> Any:
        """∂loss/∂w"""
        return self.curvature[name] * (w - self.target[name])

    def graph(self, dtype: str) -> tuple[dict[str, Value], dict[str, Value]]:
        """Return the parameters and their gradients, as graph values."""
        values, loss = {}, None
        for name, shape in SHAPES.items():
            layer = name.split("/")[0]
            with in_scope(Scope(layer, "parameter")):
                values[name] = State(name, TensorType(shape, DType(dtype)))()
            with in_scope(Scope(layer, "Dense")):
                error = values[name] - constant(self.target[name].astype(dtype))
                summand = ReduceSum()(constant(self.curvature[name].astype(dtype)) * error * error) * 0.5
            loss = summand if loss is None else loss + summand
        assert loss is not None
        return values, dict(zip(values, gradients(loss, list(values.values())), strict=True))


@dataclass(frozen=True)
class Training:
    """The update graph of a solver on the problem."""

    graph: Graph
    solution: Solution
    quadratic: Quadratic
    dtype: str
    first_of_solver: int
    """The solver created the nodes whose `serial` is higher."""
    schedules: int
    momenta: Sequence[ScheduleSpec]
    values: dict[str, Value]
    """The parameters."""

    def steps(self, rates: Sequence[float | Sequence[float]]) -> Iterator[Arrays]:
        """Yield the states after each step, one for each learning rate, or for each list of rates of the schedules."""
        states = {name: array.astype(self.dtype) for name, array in self.quadratic.start.items()}
        for slot in self.solution.slots:
            shape, kind = slot.value.shape, str(slot.value.dtype)
            initial = states[slot.param] if slot.initial is None else np.full(shape, slot.initial)
            states[slot.label] = initial.astype(kind)
        for count, rate in enumerate(rates, start=1):
            scheduled = [*np.broadcast_to(np.asarray(rate, self.dtype), self.schedules)]
            scheduled += [np.asarray(momentum.value(count - 1, len(rates)), self.dtype) for momentum in self.momenta]
            inputs = {f"scheduled/{index}": value for index, value in enumerate(scheduled)}
            inputs["step"] = np.asarray(count, self.dtype)
            _, states = run(self.graph, inputs, states)
            yield states


def training(
    solver: SolverSpec,
    multipliers: dict[str, tuple[float, float]] = PLAIN,
    dtype: str = "float64",
    quadratic: Quadratic | None = None,
) -> Training:
    """Build the update graph of `solver` on the problem."""
    quadratic = quadratic or Quadratic.random()
    values, grads = quadratic.graph(dtype)
    scalar = TensorType((), DType(dtype))
    params = [Param(name, values[name], grads[name], *multipliers[name]) for name in values]
    count, momenta = len(solver.schedules()), solver.momenta()
    rates = [Input(f"scheduled/{n}", scalar)() for n in range(count + len(momenta))]
    step = Input("step", scalar)()
    solution = solver.build(params, rates, step)
    graph = Graph(updates={**solution.updates, **solution.slot_updates})
    return Training(graph, solution, quadratic, dtype, step.node.serial, count, momenta, values)
