"""Types, values, and the errors of ops while a graph is built."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.errors import Location, SpecError
from netspec.graph.graph import Graph
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.shape import Concat, Reshape
from netspec.graph.ops.source import Constant, Fill, Input, constant
from netspec.graph.ops.unary import Exp
from netspec.graph.types import DType, TensorType, broadcast_shapes
from netspec.graph.value import Scope, Value, in_scope

SHAPES = st.lists(st.integers(1, 3), max_size=4).map(tuple)


def variable(label: str, *shape: int) -> Value:
    return Input(label, TensorType(shape, DType.FLOAT32))()


@given(SHAPES, SHAPES, SHAPES)
def test_broadcast_shapes_matches_numpy(a, b, c):
    try:
        expected = np.broadcast_shapes(a, b, c)
    except ValueError:
        expected = None
    assert broadcast_shapes(a, b, c) == expected


def test_size_of_a_tensor_type():
    tensor_type = TensorType((2, 3, 4), DType.INT64)
    assert (tensor_type.rank, tensor_type.size, tensor_type.nbytes, str(tensor_type)) == (3, 24, 192, "int64[2, 3, 4]")
    assert TensorType((), DType.BOOL).size == 1


def test_arithmetic_with_python_numbers():
    x = variable("x", 2)
    graph = Graph({"y": -(1 + x * 2 - 3 / (4 - x)) / 5})
    assert graph.outputs["y"].type == x.type


def test_shape_mismatch_names_layer_line_operands_and_chain():
    with in_scope(Scope("image", "input")):
        x = variable("image", 8, 3)
    with in_scope(Scope("first", "Activation")):
        h = Exp()(x)
    where = Location("net.yaml", 7, 5, "  - {name: second, type: Dense}")
    with in_scope(Scope("second", "Dense", where)), pytest.raises(SpecError) as caught:
        MatMul()(h, variable("w", 4, 2))
    assert caught.value.render() == (
        "net.yaml:7:5: error: layer `second` (Dense): inner sizes of a matrix product differ\n"
        "  7 |   - {name: second, type: Dense}\n"
        "    |     ^\n"
        "  expected: 3 rows on the right\n"
        "  got: float32[8, 3] @ float32[4, 2]\n"
        "  operands: float32 (batch, 3), float32 of shape [4, 2]\n"
        "  came from: image (batch, 3) → first (batch, 3)"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: variable("a", 2, 3) + variable("b", 4), r"the shapes of the operands of `\+` do not broadcast"),
        (lambda: Reshape((7,))(variable("a", 2, 3)), "cannot reshape 6 elements"),
        (lambda: Concat(1)(variable("a", 2, 3), variable("b", 3, 3)), "operands differ outside axis 1"),
        (lambda: MatMul()(variable("a", 3), variable("b", 3, 3)), "a matrix product needs matrices"),
    ],
)
def test_shape_mismatch_messages(make, message):
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize(
    "array", [np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 2), 7, np.int32), np.float64(3)]
)
def test_constant_keeps_type_shape_and_values(array):
    value = constant(array)
    assert isinstance(value.op, Fill if np.unique(array).size == 1 else Constant)
    array_again = value.op.forward(np)
    np.testing.assert_array_equal(array_again, array)
    assert (array_again.shape, array_again.dtype) == (np.shape(array), array.dtype)


def test_rewrite_keeps_unchanged_nodes():
    x = variable("x", 2)
    unchanged, changed = Exp()(x), Exp()(x * 2.0)
    graph = Graph({"kept": unchanged, "changed": changed})
    rewritten = graph.rewrite(lambda node, inputs: (inputs[0],) if node is changed.node else None)
    assert rewritten.outputs["kept"] is unchanged
    assert rewritten.outputs["changed"] is changed.inputs[0]
