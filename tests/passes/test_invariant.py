"""Invariant nodes: their selection, their position before all others, and the memory of their results."""

from __future__ import annotations

from netspec.graph.graph import Graph
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import Reshape, Transpose
from netspec.graph.ops.source import Fill, Input, State
from netspec.graph.ops.unary import Exp, Relu
from netspec.passes.invariant import invariant_nodes
from tests.passes.graphs import typed
from tests.passes.test_memory import check, kinds, planned

x = Input("x", typed((2, 3)))()
frozen, moving = State("frozen", typed((2, 3)))(), State("moving", typed((2, 3)))()


def names(graph: Graph) -> list[str]:
    return sorted(node.op.name for node in invariant_nodes(graph) if not node.op.traits.source)


def test_nodes_of_constants_and_unchanged_states_are_invariant() -> None:
    exponent = Exp()(frozen) * Fill(2.0, typed((2, 3)))()
    graph = Graph({"y": x * exponent, "z": Relu()(moving) + exponent}, {"moving": moving + x})
    assert names(graph) == ["Exp", "Mul"]
    assert names(Graph({"z": Relu()(moving) + exponent})) == ["Add", "Exp", "Mul", "Relu"]
    assert names(Graph({"y": x * 2.0})) == []


def test_invariant_nodes_come_first_and_their_results_are_kept() -> None:
    inner = Exp()(frozen)
    turned = Reshape((3, 2))(Transpose((1, 0))(inner))
    graph = Graph({"y": MatMul()(x, turned)})
    plan = planned(graph, workspace=100)
    check(plan)
    first = [node.op.name for node in plan.order[: plan.invariant_count] if not node.op.traits.source]
    assert first == ["Exp", "Transpose"]  # the reshape has no effect
    where = {node.op.name: plan.memory.storage[node.outputs[0]].kind for node in plan.order}
    assert (where["Exp"], where["Transpose"], where["MatMul"]) == ("arena", "invariant", "arena")
    assert plan.memory.invariant_bytes == 64


def test_view_of_an_invariant_result_keeps_it() -> None:
    plan = planned(Graph({"y": Reshape((6,))(Exp()(frozen)), "z": Reshape((2, 3))(x)}))
    check(plan)
    assert {plan.memory.storage[value].kind for value in plan.graph.outputs.values()} == {"invariant", "arena"}


def test_invariant_results_are_never_overwritten() -> None:
    """An overwritten result would be lost in the next run, which does not recompute it."""
    frozen_result = Exp()(frozen)
    plan = planned(Graph({"y": Relu()(frozen_result + x)}, {"moving": frozen_result}))
    check(plan)
    assert kinds(plan) == {"moving": "invariant"}
    assert [name for _, name in plan.memory.copies] == ["moving"]


def test_invariant_nodes_before_the_guard_write_no_state() -> None:
    graph = Graph({}, {"moving": moving + Exp()(frozen)}, guard=ReduceSum()(x))
    plan = planned(graph)
    check(plan)
    assert 0 < plan.invariant_count < plan.before_guard_count
    assert kinds(plan) == {"moving": "state:moving"}
