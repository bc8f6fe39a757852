"""A product with gathered rows multiplies the table instead, if the table has fewer rows."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.linear import Gather, MatMul
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.passes.base import run_passes
from netspec.passes.cse import CommonSubexpressions
from netspec.passes.simplify import Simplify
from tests.interpret import run

ROWS, WIDTH, UNITS = 4, 3, 5
RANDOM = np.random.default_rng(5)


def gather_graph(batch: tuple[int, ...], transpose_b: bool = False) -> tuple[Graph, dict[str, np.ndarray]]:
    feeds = {
        "table": RANDOM.normal(size=(ROWS, WIDTH)),
        "kernel": RANDOM.normal(size=(UNITS, WIDTH) if transpose_b else (WIDTH, UNITS)),
        "bias": RANDOM.normal(size=UNITS),
        "index": RANDOM.integers(0, ROWS, batch),
        "weights": RANDOM.normal(size=(*batch, UNITS)),
    }
    inputs = {n: Input(n, TensorType(x.shape, DType(str(x.dtype))))() for n, x in feeds.items()}
    table, kernel, bias, index, weights = inputs.values()
    y = Add()(MatMul(transpose_b=transpose_b)(Gather()(table, index), kernel), bias)
    parameter_gradients = gradients(ReduceSum()(y * weights), [table, kernel, bias])
    return Graph({"y": y, **{f"d{i}": gradient for i, gradient in enumerate(parameter_gradients)}}), feeds


def product_rows(graph: Graph) -> list[int]:
    """Number of rows of each matrix product."""
    return [max(_rows(value) for value in node.inputs) for node in graph.nodes() if isinstance(node.op, MatMul)]


def _rows(value: Value) -> int:
    return int(np.prod(value.shape[:-1]))


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("batch", [(6,), (2, 7)])
def test_products_multiply_the_table_with_equal_results(batch: tuple[int, ...], transpose_b: bool) -> None:
    before, feeds = gather_graph(batch, transpose_b)
    after = run_passes(before, (Simplify(), CommonSubexpressions()), check=True)
    assert max(product_rows(before)) == np.prod(batch)
    assert max(product_rows(after)) <= max(ROWS, WIDTH, UNITS)
    assert (
        sum(node.op.name == "ScatterRows" for node in after.nodes()) <= 2
    )  # one for the gradient of the rows, one for the bias
    expected, actual = run(before, feeds, {})[0], run(after, feeds, {})[0]
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-12, atol=1e-14)


def test_product_with_a_large_table_is_unchanged() -> None:
    before, _ = gather_graph((3,))
    after = run_passes(before, (Simplify(),), check=True)
    assert product_rows(after) == product_rows(before)
