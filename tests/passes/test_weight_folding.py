"""Folding into weights: which ops are folded, and which stay."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from netspec.graph.graph import Graph
from netspec.graph.ops.batch_normalization import BatchNormalization
from netspec.graph.ops.convolution import Conv
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Relu
from netspec.graph.ops.window import Window
from netspec.graph.value import Value
from netspec.passes.base import run_passes
from netspec.passes.invariant import invariant_nodes
from netspec.passes.simplify import Simplify
from netspec.passes.weight_folding import FoldIntoWeights
from tests.interpret import run
from tests.passes.graphs import feeds, typed


@cache
def state(name: str, *shape: int) -> Value:
    return State(name, typed(shape))()


def absorbed(graph: Graph) -> Graph:
    return run_passes(graph, (Simplify(), FoldIntoWeights()), check=True)


def remaining(graph: Graph) -> list[str]:
    """Return the ops of each run, without invariant nodes."""
    invariant = invariant_nodes(graph)
    return [node.op.name for node in graph.nodes() if node not in invariant and not node.op.traits.source]


def same(graph: Graph, folded: Graph) -> None:
    """Check that both agree up to rounding: sums of some 30 products of values about 1."""
    inputs, _, states = feeds(graph)
    states = {name: np.abs(array) for name, array in states.items()}
    for name, right in run(graph, inputs, states)[0].items():
        np.testing.assert_allclose(run(folded, inputs, states)[0][name], right, rtol=1e-5, atol=1e-5)


def conv(x: Value, groups: int = 1, bias: bool = True) -> Value:
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    y = Conv(window, groups)(x, state("w", 4, x.shape[1] // groups, 3, 3))
    return y + reshape_to(state("b", 4), (4, 1, 1)) if bias else y


def normalized(x: Value, axis: int = 1) -> Value:
    vectors = [state(name, x.shape[axis]) for name in ("gamma", "beta", "mean", "variance")]
    return BatchNormalization(axis)(x, *vectors)


x = Input("x", typed((2, 4, 5, 6)))()


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_batch_normalization_folds_into_the_convolution(groups: int, bias: bool) -> None:
    graph = Graph({"y": Relu()(normalized(conv(x, groups, bias)) + x)})
    folded = absorbed(graph)
    assert remaining(folded) == ["Conv", "Add", "Add", "Relu"]
    same(graph, folded)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [(3,), (2, 3)])
def test_batch_normalization_folds_into_the_matrix_product(transposed: bool, rows: tuple[int, ...]) -> None:
    a = Input("a", typed((*rows, 4)))()
    w = state("w", 5, 4) if transposed else state("w", 4, 5)
    graph = Graph({"y": normalized(MatMul(transpose_b=transposed)(a, w) + state("b", 5), axis=len(rows))})
    folded = absorbed(graph)
    assert remaining(folded) == ["MatMul", "Add"]
    same(graph, folded)


def test_scalar_factor_folds_into_weights() -> None:
    graph = Graph({"y": conv(x) * 3.0 + 1.0})
    folded = absorbed(graph)
    assert remaining(folded) == ["Conv", "Add"]
    same(graph, folded)


def test_cases_that_are_not_folded_into_weights() -> None:
    y = conv(x, bias=False)
    s = reshape_to(state("s", 4), (4, 1, 1))
    new = state("w", 4, 4, 3, 3) * 0.5
    image = state("image", 5, 6)
    moving = Input("moving", typed((4, 1, 1)))()
    for graph in (
        Graph({"y": y * s}, {"w": new}),  # the weights change at each step, so folding does not pay off
        Graph({"y": y * s}, {"s": state("s", 4) * 0.5}),
        Graph({"y": y * s, "z": y}),  # folding would compute the convolution twice
        Graph({"y": y * s, "z": Relu()(y)}),
        Graph({"y": y * image}),
        Graph({"y": y * moving}),
        Graph({"y": Relu()(y) * s}),
        Graph({"y": (y + x) * s}),  # folding would add the operation x · s
    ):
        folded = absorbed(graph)
        assert remaining(folded) == remaining(graph)
        assert folded.outputs == graph.outputs
