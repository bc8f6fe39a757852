from __future__ import annotations

from collections.abc import Callable

import pytest

from netspec.graph.graph import Graph
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Exp
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Scope, Value
from netspec.graph.verify import InvalidGraphError, verify

VECTOR = TensorType((3,), DType.FLOAT32)


def test_verify_returns_a_valid_graph():
    x = Input("x", VECTOR)()
    graph = Graph({"y": Exp()(x)}, {"s": State("s", VECTOR)() + x})
    assert verify(graph) is graph


def wrong_type() -> Graph:
    return Graph({"y": Node(Exp(), (Input("x", VECTOR)(),), (TensorType((4,), DType.FLOAT32),), Scope()).outputs[0]})


def operand_after_its_reader() -> Graph:
    y = Exp()(Input("x", VECTOR)())
    y.node.inputs = (Exp()(Input("x2", VECTOR)()),)
    return Graph({"y": y})


def value_of_no_node() -> Graph:
    x = Input("x", VECTOR)()
    return Graph({"y": Exp()(Value(x.node, 0, VECTOR))})


def repeated_input_name() -> Graph:
    return Graph({"y": Input("x", VECTOR)() + Input("x", VECTOR)()})


def update_of_another_type() -> Graph:
    state = State("s", VECTOR)()
    return Graph({"y": state}, {"s": Input("x", TensorType((2,), DType.FLOAT32))()})


def vector_guard() -> Graph:
    x = Input("x", VECTOR)()
    return Graph({"y": x}, guard=x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (wrong_type, r"has types \['float32\[4\]'\], but infers \['float32\[3\]'\]"),
        (operand_after_its_reader, "comes before its operand"),
        (value_of_no_node, "which is not a result of its node"),
        (repeated_input_name, "two nodes have the name 'x'"),
        (update_of_another_type, r"the update of 's' is float32\[2\], but the state is float32\[3\]"),
        (vector_guard, "must be a float scalar"),
    ],
)
def test_verify_rejects_invalid_graphs(make: Callable[[], Graph], message: str) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        verify(make())
