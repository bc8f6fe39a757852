"""Evaluate a graph by the reference kernels, operation by operation, and find the first value that is not finite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from netspec.graph.fused import node_scopes
from netspec.graph.graph import Graph
from netspec.graph.op import as_tuple
from netspec.graph.ops.source import Constant, Input, State
from netspec.graph.types import DType
from netspec.graph.value import Node, Scope, Value


@dataclass(frozen=True)
class TensorRange:
    """Smallest and largest finite element of a tensor, and how many elements are not finite."""

    name: str
    """Kind of the tensor: an input, a state, or the operation that computed it."""
    type: str
    min: float | None
    max: float | None
    """None if no element is finite."""
    elements: int
    nan: int
    inf: int

    @property
    def non_finite(self) -> str:
        """Number of elements that are not finite: "inf in 8 of 160 elements"."""
        counts = [f"{kind} in {count:,}" for count, kind in ((self.nan, "nan"), (self.inf, "inf")) if count]
        return f"{' and '.join(counts)} of {self.elements:,} elements"

    def __str__(self) -> str:
        span = "no finite element" if self.min is None else f"{self.min:.6g} to {self.max:.6g}"
        bad = [f"{count:,} {kind}" for count, kind in ((self.nan, "nan"), (self.inf, "inf")) if count]
        return f"{self.name} ({self.type}): {span}" + (f"; {', '.join(bad)} of {self.elements:,}" if bad else "")


@dataclass(frozen=True)
class BadOperation:
    """The first operation of a step with a result that is not finite."""

    node: Node
    operands: tuple[TensorRange, ...]
    results: tuple[TensorRange, ...]
    reaches: tuple[str, ...] = ()
    """Names of the results of the step, and of the states, whose new values are not finite because of it."""

    @property
    def scope(self) -> Scope:
        """The layer to which the operation belongs."""
        return node_scopes(self.node)[0]

    @property
    def layer(self) -> str:
        """The layer as messages name it: "layer `fc1` (Dense)"."""
        return layer_text(self.scope)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        scope = self.scope
        return {
            "op": self.node.op.name, "layer": scope.layer, "kind": scope.kind, "phase": scope.phase,
            "location": str(scope.location) if scope.location else None,
            "operands": [asdict(operand) for operand in self.operands],
            "results": [asdict(result) for result in self.results], "reaches": list(self.reaches),
        }  # fmt: skip


def layer_text(scope: Scope) -> str:
    """Name a layer in a message."""
    if not scope.layer:
        return (scope.kind and f"the update ({scope.kind})") or "the sum of the losses"
    return f"{scope.noun} `{scope.layer}` ({scope.kind})"


def interpret(
    graph: Graph, feeds: Mapping[str, Any], dtypes: Mapping[Value, str] | None = None
) -> Iterator[tuple[Node, Sequence[Any], Sequence[Any]]]:
    """Yield each node of a graph with its operands and results; `feeds` has inputs and states by name.

    Results are freed after their last use. `dtypes` rounds some values to a narrower type when they are stored.
    """
    nodes, rounded = graph.nodes(), dtypes or {}
    last = {value: index for index, node in enumerate(nodes) for value in node.inputs}
    arrays: dict[Value, Any] = {}
    for index, node in enumerate(nodes):
        operands = [arrays[value] for value in node.inputs]
        with np.errstate(all="ignore"):
            if isinstance(node.op, (Input, State)):
                results: tuple[Any, ...] = (np.asarray(feeds[node.op.label]).astype(str(node.outputs[0].dtype)),)
            else:
                results = as_tuple(node.op.forward(np, *operands))
            results = tuple(
                np.asarray(result).astype(rounded[value]).astype(str(value.dtype)) if value in rounded else result
                for value, result in zip(node.outputs, results, strict=True)
            )
        yield node, operands, results
        arrays.update(zip(node.outputs, results, strict=True))
        for value in node.inputs:
            if last[value] == index:
                arrays.pop(value, None)


def first_bad_operation(
    graph: Graph, feeds: Mapping[str, Any], dtypes: Mapping[Value, str] | None = None
) -> BadOperation | None:
    """Return the first node with a result that is not finite although its operands are; None if all are finite.

    Constants and attention masks may be infinite, so a result counts only if it makes a loss or a new state not finite.
    """
    names = {value: name for name, value in {**graph.outputs, **graph.updates}.items()}
    cause: dict[Value, BadOperation] = {}
    reached: dict[int, list[str]] = {}
    first: dict[int, BadOperation] = {}
    for node, operands, results in interpret(graph, feeds, dtypes):
        for value, result in zip(node.outputs, results, strict=True):
            if not value.dtype.is_float or isinstance(node.op, Constant) or np.isfinite(result).all():
                continue
            origin = next((cause[operand] for operand in node.inputs if operand in cause), None)
            if origin is None:
                origin = BadOperation(
                    node, tuple(_range(value, array) for value, array in zip(node.inputs, operands, strict=True)),
                    tuple(_range(value, array) for value, array in zip(node.outputs, results, strict=True)),
                )  # fmt: skip
            cause[value] = origin
            first.setdefault(node.serial if origin.node is node else origin.node.serial, origin)
            if value in names:
                reached.setdefault(origin.node.serial, []).append(names[value])
    if not reached:
        return None
    serial = min(reached)
    origin = first[serial]
    return BadOperation(origin.node, origin.operands, origin.results, tuple(reached[serial]))


def storage_types(values: frozenset[Value], dtype: DType) -> dict[Value, str]:
    """Return the type in which each value is stored; NumPy has no bfloat16, whose range is that of float32."""
    return dict.fromkeys(values, "float16") if dtype is DType.FLOAT16 else {}


def _range(value: Value, array: Any) -> TensorRange:
    op = value.node.op
    name = f"`{op.label}`" if isinstance(op, (Input, State)) else value.node.op.name
    if value.node.scope.layer and not isinstance(op, (Input, State, Constant)):
        name += f" of {layer_text(value.node.scope)}"
    values = np.asarray(array)
    if not value.dtype.is_float:
        has = bool(values.size)
        low, high = (float(values.min()), float(values.max())) if has else (None, None)
        return TensorRange(name, str(value.type), low, high, values.size, 0, 0)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    nan = int(np.isnan(values).sum())
    return TensorRange(name, str(value.type), low, high, values.size, nan, int(values.size - finite.size - nan))
