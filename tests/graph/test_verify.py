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


def test_a_sound_graph_passes_and_is_returned():
    x = Input("x", VECTOR)()
    graph = Graph({"y": Exp()(x)}, {"s": State("s", VECTOR)() + x})
    assert verify(graph) is graph


def wrong_type() -> Graph:
    return Graph({"y": Node(Exp(), (Input("x", VECTOR)(),), (TensorType((4,), DType.FLOAT32),), Scope()).outputs[0]})


def operand_made_later() -> Graph:
    y = Exp()(Input("x", VECTOR)())
    y.node.inputs = (Exp()(Input("x2", VECTOR)()),)
    return Graph({"y": y})


def strange_value() -> Graph:
    x = Input("x", VECTOR)()
    return Graph({"y": Exp()(Value(x.node, 0, VECTOR))})


def two_of_a_name() -> Graph:
    return Graph({"y": Input("x", VECTOR)() + Input("x", VECTOR)()})


def update_of_another_type() -> Graph:
    state = State("s", VECTOR)()
    return Graph({"y": state}, {"s": Input("x", TensorType((2,), DType.FLOAT32))()})


def guard_of_a_vector() -> Graph:
    x = Input("x", VECTOR)()
    return Graph({"y": x}, guard=x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (wrong_type, r"has types \['float32\[4\]'\], but infers \['float32\[3\]'\]"),
        (operand_made_later, "comes before its operand"),
        (strange_value, "which is not a result of its node"),
        (two_of_a_name, "two nodes have the name 'x'"),
        (update_of_another_type, r"the update of 's' is float32\[2\], but the state is float32\[3\]"),
        (guard_of_a_vector, "must be a float scalar"),
    ],
)
def test_catches_what_no_pass_may_make(make: Callable[[], Graph], message: str) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        verify(make())
