"""Products with looked-up rows are done on the table, where that has fewer rows: the same numbers, fewer of them."""

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


def graph(batch: tuple[int, ...], transpose_b: bool = False) -> tuple[Graph, dict[str, np.ndarray]]:
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
    found = gradients(ReduceSum()(y * weights), [table, kernel, bias])
    return Graph({"y": y, **{f"d{i}": one for i, one in enumerate(found)}}), feeds


def products(one: Graph) -> list[int]:
    """How many rows the products go over."""
    return [max(_rows(value) for value in node.inputs) for node in one.nodes() if isinstance(node.op, MatMul)]


def _rows(value: Value) -> int:
    return int(np.prod(value.shape[:-1]))


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("batch", [(6,), (2, 7)])
def test_products_go_over_the_table_and_the_numbers_are_the_same(batch: tuple[int, ...], transpose_b: bool) -> None:
    before, feeds = graph(batch, transpose_b)
    after = run_passes(before, (Simplify(), CommonSubexpressions()), check=True)
    assert max(products(before)) == np.prod(batch)
    assert max(products(after)) <= max(ROWS, WIDTH, UNITS)
    assert sum(node.op.name == "ScatterRows" for node in after.nodes()) <= 2  # of the flow, once; and the bias's
    expected, got = run(before, feeds, {})[0], run(after, feeds, {})[0]
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-12, atol=1e-14)


def test_a_table_with_more_rows_than_are_looked_up_stays_as_it_is() -> None:
    before, _ = graph((3,))
    after = run_passes(before, (Simplify(),), check=True)
    assert products(after) == products(before)
