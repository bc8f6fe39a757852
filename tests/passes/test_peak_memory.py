"""The order with a lower peak is valid, never worse, and delays large gradients until memory is free."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netspec.compile import PASSES, Compiler, ProgramKind
from netspec.graph.execution_plan import ExecutionPlan, MemoryPlan
from netspec.graph.graph import Graph
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Relu, Tanh
from netspec.graph.value import Value
from netspec.passes.base import run_passes
from netspec.passes.memory import plan_memory
from netspec.passes.peak_memory import lower_peak
from netspec.passes.schedule import Schedule, schedule
from netspec.schema.bundled import zoo_root
from netspec.schema.specs.net import NetSpec
from netspec.solvers.sgd import SGD
from netspec.tools.specs import load_spec
from tests.passes.graphs import graphs, typed
from tests.passes.test_memory import check


def before_and_after(graph: Graph, workspace: int = 0) -> tuple[ExecutionPlan, ExecutionPlan]:
    """Return the plan in the order of `schedule`, and that in the order of `lower_peak`."""
    graph = run_passes(graph, PASSES)
    scheduled = schedule(graph)
    scratch = {node: workspace for node in scheduled.order if not node.op.traits.source and not node.op.traits.view}

    def plan(scheduled: Schedule) -> ExecutionPlan:
        memory = plan_memory(
            graph, scheduled.order, scratch, before_guard_count=scheduled.before_guard_count,
            invariant_count=scheduled.invariant_count,
        )  # fmt: skip
        return ExecutionPlan(
            graph, scheduled.order, scheduled.invariant_count, scheduled.before_guard_count, {}, {}, memory
        )

    return plan(scheduled), plan(lower_peak(graph, scheduled, scratch))


@given(graph=graphs(), workspace=st.sampled_from([0, 1, 500]))
def test_lower_peak_order_is_valid_and_never_worse(graph: Graph, workspace: int) -> None:
    before, after = before_and_after(graph, workspace)
    place_in = {node: index for index, node in enumerate(after.order)}
    assert place_in.keys() == set(before.order)
    assert all(place_in[value.node] < index for node, index in place_in.items() for value in node.inputs)
    assert after.order[: after.invariant_count] == before.order[: before.invariant_count]
    assert set(after.order[: after.before_guard_count]) == set(before.order[: before.before_guard_count])
    check(after)
    assert set(after.memory.copies) <= set(before.memory.copies), "what was updated in place still is"
    assert after.memory.lower_bound <= before.memory.lower_bound


def chain_with_a_large_last_weight(depth: int) -> Graph:
    """Return a net of wide activations, followed by a weight that is far larger than all of them."""
    x = Input("x", typed((100, 100)))()
    activations: list[Value] = [x]
    for _ in range(depth):
        activations.append(Tanh()(activations[-1] * 2.0))
    narrow = ReduceSum((0,), True)(activations[-1])
    weight, flow = State("w", typed((100, 4000)))(), State("dy", typed((1, 4000)))()
    loss = ReduceSum()(Relu()(MatMul()(narrow, weight)))
    back: Value = MatMul(False, True)(flow, weight) * activations[-1]
    for value in reversed(activations[:-1]):
        back = back * value
    gradient = MatMul(True, False)(narrow, flow)
    return Graph({"dx": ReduceSum()(back)}, {"w": weight + gradient * -0.1}, guard=loss)


def test_large_gradient_is_computed_after_activations_are_freed() -> None:
    before, after = before_and_after(chain_with_a_large_last_weight(20))
    activations, gradient = 20 * 40_000, 4 * 400_000
    assert before.memory.lower_bound > activations + gradient
    assert after.memory.lower_bound < 1.05 * gradient + 40_000
    assert not after.memory.copies


def test_order_that_saves_little_is_not_changed() -> None:
    graph = run_passes(chain_with_a_large_last_weight(0), PASSES)
    scheduled = schedule(graph)
    assert lower_peak(graph, scheduled) == scheduled


def memory_of(model: str, batch_size: int) -> tuple[MemoryPlan, MemoryPlan]:
    """Return the peak memory of a zoo model's planned training step, and that in the order of `schedule`."""
    spec = load_spec(zoo_root() / model / "net.yaml")
    assert isinstance(spec, NetSpec)
    compiler = Compiler(spec, solver=SGD(type="SGD", momentum=0.9), device="null")
    plan = compiler.plan(ProgramKind.TRAIN, batch_size)
    scheduled = schedule(plan.graph)
    scratch = {node: workspace.size for node, workspace in plan.memory.workspace.items()}
    before = plan_memory(
        plan.graph, scheduled.order, scratch, before_guard_count=scheduled.before_guard_count, layouts=plan.layouts,
        invariant_count=scheduled.invariant_count,
    )  # fmt: skip
    return plan.memory, before


def test_alexnet_needs_little_more_than_its_largest_gradient() -> None:
    """With all activations alive, the gradient of `fc6` (9216 × 4096) would need a third more memory."""
    after, before = memory_of("alexnet", 32)
    assert after.arena_bytes < 1.05 * 9216 * 4096 * 4
    assert after.arena_bytes < 0.75 * before.arena_bytes


def test_order_is_unchanged_if_all_activations_are_alive_at_once() -> None:
    after, before = memory_of("resnet20_cifar10", 128)
    assert after.arena_bytes == before.arena_bytes
