"""Cases: every sample of every layer, loss and metric, built into a graph with values for its inputs and states.

Nothing here knows a class by its name. Classes are found in the registries; inputs are drawn from their samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

import netspec.layers  # noqa: F401  registers the classes
from netspec.backends.op_call import generator, spread
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.random import RNG_INPUT, RNG_TYPE
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, Value, in_scope
from netspec.layers.base import Builder, LayerSpec, Sample
from netspec.schema.specs.kinds import LAYERS, LOSSES, METRICS
from netspec.schema.specs.spec import Registry

KINDS: dict[str, Registry[Any]] = {"layer": LAYERS, "loss": LOSSES, "metric": METRICS}

WEIGHT = "sample_weight"
"""Name of the input that samples are weighted by."""


@dataclass(frozen=True)
class SampleCase:
    """One sample of one class."""

    kind: str
    type: str
    number: int
    sample: Sample = field(hash=False)

    @property
    def id(self) -> str:
        """`layer-Dense-0`."""
        return f"{self.kind}-{self.type}-{self.number}"

    @property
    def fields(self) -> dict[str, Any]:
        """The sample as it would be written in YAML."""
        weight = {} if self.sample.weight is None else {"sample_weight": WEIGHT}
        return {"type": self.type, "name": "sample", **self.sample.fields, **weight}

    def spec(self) -> Any:
        """The sample as a spec."""
        return KINDS[self.kind].parse(self.fields)


def cases(*kinds: str, only: str | None = None) -> list[SampleCase]:
    """All samples of these kinds of classes, or those of one class."""
    return [
        SampleCase(kind, name, number, sample)
        for kind in kinds
        for name in ([only] if only else KINDS[kind].names())
        for number, sample in enumerate(KINDS[kind][name].samples)
    ]


@dataclass
class SampleGraph:
    """A case as a graph of one precision, with values for its inputs and states."""

    case: SampleCase
    builder: Builder
    outputs: tuple[Value, ...]
    feeds: dict[str, np.ndarray]
    scalar: Value
    """The scalar to differentiate: the loss, or the outputs of a layer times fixed numbers; plus penalties."""
    wrt: dict[str, Value]
    """Float inputs and states, and the fixed numbers that outputs are multiplied by."""

    @cached_property
    def gradients(self) -> list[Value]:
        """Gradient of `scalar` by each of `wrt`."""
        return gradients(self.scalar, list(self.wrt.values()))

    @cached_property
    def second(self) -> tuple[Value, list[Value]]:
        """The inner product of all gradients with fixed random numbers, and its gradient by each of `wrt`."""
        terms = [
            ReduceSum()(gradient * self.fixed(f"second/{name}", gradient.type))
            for name, gradient in zip(self.wrt, self.gradients, strict=True)
        ]
        total, *rest = terms
        for term in rest:
            total = total + term
        return total, gradients(total, list(self.wrt.values()))

    def fixed(self, name: str, kind: TensorType) -> Value:
        """An input of the graph that holds fixed random numbers."""
        self.feeds[name] = generator(self.case.id + name).uniform(-1, 1, kind.shape).astype(str(kind.dtype))
        return self.builder.input(name, kind)

    def graph(self, *, order: int = 2) -> Graph:
        """Build a graph of outputs, updates of states, and derivatives up to `order`."""
        named = {f"output{i}": value for i, value in enumerate(self.outputs)}
        if self.case.kind != "metric":
            if order > 0:
                named |= {f"gradient/{name}": value for name, value in zip(self.wrt, self.gradients, strict=True)}
            if order > 1:
                named |= {f"second/{name}": value for name, value in zip(self.wrt, self.second[1], strict=True)}
        return Graph(named, dict(self.builder.updates), self.scalar)


def open_case(case: SampleCase, builder: Builder, size: int | None = None) -> tuple[Scope, list[Value]]:
    """Declare the inputs `x0`, `x1`, …, masks `mask0`, … and sample weight of a case; return its scope and the inputs.

    `size` replaces the batch size of the sample.
    """
    sample = case.sample

    def declared(label: str, shape: tuple[int, ...], dtype: DType) -> Value:
        return builder.input(label, TensorType(shape if size is None else (size, *shape[1:]), dtype))

    dtypes = [builder.dtype if name == "float32" else DType(name) for name in sample.dtypes]
    inputs = [
        declared(f"x{i}", shape, dtype) for i, (shape, dtype) in enumerate(zip(sample.shapes, dtypes, strict=True))
    ]
    masks = [shape and declared(f"mask{i}", shape, DType.BOOL) for i, shape in enumerate(sample.masks)]
    weight = None if sample.weight is None else declared(WEIGHT, sample.weight, builder.dtype)
    return builder.enter(case.spec(), "sample", [mask or None for mask in masks], weight), inputs


@cache
def built(case: SampleCase, training: bool, dtype: DType = DType.FLOAT64) -> SampleGraph:
    """The case as a graph. The values are the same for both precisions and both forms."""
    sample, spec, net = case.sample, case.spec(), Builder(training, dtype)
    feeds: dict[str, np.ndarray] = {}
    scope, inputs = open_case(case, net)
    for index, (shape, name) in enumerate(zip(sample.shapes, sample.dtypes, strict=True)):
        random, label = generator(f"{case.id}/{index}"), f"x{index}"
        if name == "float32":
            value_range = sample.ranges[index] if index < len(sample.ranges) else None
            feeds[label] = spread(random, shape, *(value_range or (-2.0, 2.0)), offset=0.37 + 0.11 * index).astype(
                str(dtype)
            )
        else:
            feeds[label] = random.integers(sample.low, sample.high, shape).astype(name)
    for index, mask in enumerate(sample.masks):
        if mask is not None:
            feeds[f"mask{index}"] = drawn_mask(generator(f"{case.id}/mask{index}"), mask)
    if sample.weight is not None:
        feeds[WEIGHT] = spread(generator(f"{case.id}/{WEIGHT}"), sample.weight, 0.2, 2.0).astype(str(dtype))
    with in_scope(scope):
        graph = apply_spec(spec, net, inputs)
    outputs = graph if isinstance(graph, tuple) else (graph,)
    for name, state in net.states.items():
        low = 0.5 if state.role == "statistic" else -1.5  # variances are positive
        kind = str(dtype if state.value.dtype.is_float else state.value.dtype)
        feeds[name] = spread(generator(f"{case.id}/{name}"), state.value.shape, low, 1.5).astype(kind)
    feeds[RNG_INPUT] = np.array([7, 3, 0], str(RNG_TYPE.dtype))
    inputs += [] if net.sample_weight is None else [net.sample_weight]
    wrt = {value.op.label: value for value in inputs if value.dtype.is_float}  # type: ignore[attr-defined]  # inputs
    wrt |= {name: state.value for name, state in net.states.items() if state.value.dtype.is_float}
    result = SampleGraph(case, net, outputs, feeds, outputs[0], wrt)
    result.scalar = scalar_of(result)
    return result


def apply_spec(spec: Any, builder: Builder, inputs: list[Value]) -> Any:
    """Apply a layer, loss or metric to the inputs."""
    return spec.call(builder, *inputs) if isinstance(spec, LayerSpec) else spec.build(builder, *inputs)


def drawn_mask(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A random mask with at least one True along the last axis."""
    mask = random.integers(0, 2, shape).astype(bool)
    rows = mask.reshape(-1, shape[-1])
    rows[np.arange(len(rows)), random.integers(0, shape[-1], len(rows))] = True
    return mask


def scalar_of(graph: SampleGraph) -> Value:
    """Return `SampleGraph.scalar`. The fixed numbers join `wrt`, so double backward also tests the gradient by dy."""
    terms = [cast(value, graph.builder.dtype) for value in graph.outputs]
    if graph.case.kind == "metric":
        terms = [ReduceSum()(value) for value in terms]
    if graph.case.kind == "layer":
        for i, y in enumerate(terms):
            weights = graph.wrt[f"weights/{i}"] = graph.fixed(f"weights/{i}", y.type)
            terms[i] = ReduceSum()(y * weights)
    total, *rest = [*terms, *graph.builder.penalties]
    for term in rest:
        total = total + term
    return total


def all_forms() -> Iterator[tuple[SampleCase, bool]]:
    """Every case, for training and not."""
    for case in cases(*KINDS):
        for training in (True, False):
            yield case, training
