"""The smallest interpreter of a graph: calls `Op.forward` of each node, in order. It serves as an oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from netspec.graph.graph import Graph, topological_order
from netspec.graph.ops.source import Input, State
from netspec.graph.value import Value

name_of = cache(str)
"""Name of NumPy's element type."""
Arrays = dict[str, np.ndarray]


def environment(roots: Sequence[Value], feeds: Mapping[str, Any]) -> dict[Value, np.ndarray]:
    """Return all values that `roots` are computed from; `feeds` has inputs and states by name.

    Checks that each result has the type that the op has inferred. The given arrays are not changed.
    """
    arrays: dict[Value, np.ndarray] = {}
    for node in topological_order(roots):
        if isinstance(node.op, (Input, State)):
            results = feeds[node.op.label]
        else:
            results = node.op.forward(np, *(arrays[value] for value in node.inputs))
        for value, result in zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=True):
            # As in planned memory, since sums over strided views round differently.
            array = np.asarray(result, order="C")
            assert (array.shape, name_of(array.dtype)) == (value.shape, value.dtype), f"{value!r} is {array.dtype}"
            arrays[value] = array
    return arrays


def evaluate(values: Sequence[Value], feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the arrays of `values`, for inputs and states by name."""
    arrays = environment(values, feeds)
    return [arrays[value] for value in values]


def run(graph: Graph, inputs: Mapping[str, Any], states: Mapping[str, Any]) -> tuple[Arrays, Arrays]:
    """Return the outputs of a graph, and the states after the step, for these inputs and states."""
    arrays = environment(graph.roots(), {**inputs, **states})
    outputs = {name: arrays[value] for name, value in graph.outputs.items()}
    return outputs, {**states, **{name: arrays[value] for name, value in graph.updates.items()}}
