"""Recomputation: bit-identical results, less memory, and no more arithmetic than necessary."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.backends.device_registry import open_device
from netspec.compile import PASSES, Compiler, ProgramKind, make_plan
from netspec.graph.autodiff import gradients
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.graph import Graph
from netspec.graph.layout import PLAIN
from netspec.graph.op import Traits
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.random import RNG_TYPE, RandomUniform
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Tanh
from netspec.graph.value import Node, Value
from netspec.graph.verify import verify, verify_layouts
from netspec.passes.base import run_passes
from netspec.passes.memory import plan_memory
from netspec.passes.recompute import RecomputeVariant, recompute
from netspec.passes.schedule import schedule
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import LoopSpec
from netspec.solvers.sgd import SGD
from netspec.tools.specs import load_spec
from tests.interpret import run
from tests.passes.graphs import feeds, graphs, same_bits, typed
from tests.passes.test_memory import check

NETS = Path(__file__).parents[2] / "benchmarks" / "nets"
BYTES = 4 * 64 * 64


@cache
def planned(variant: RecomputeVariant) -> ExecutionPlan:
    graph = variant.graph
    scheduled = schedule(graph)
    memory = plan_memory(
        graph, scheduled.order, {}, before_guard_count=scheduled.before_guard_count, layouts=variant.layouts,
        invariant_count=scheduled.invariant_count,
    )  # fmt: skip
    return ExecutionPlan(
        graph, scheduled.order, scheduled.invariant_count, scheduled.before_guard_count, {}, variant.layouts, memory
    )


def plain(graph: Graph) -> RecomputeVariant:
    graph = run_passes(graph, PASSES)
    return RecomputeVariant(graph, {value: PLAIN for node in graph.nodes() for value in node.outputs}, {})


def within(graph: Graph, limit: int) -> RecomputeVariant:
    recomputed = recompute(plain(graph), lambda candidate: planned(candidate).memory.nbytes, limit)
    verify(recomputed.graph)
    verify_layouts(recomputed.graph, recomputed.layouts)
    return recomputed


def tower(depth: int, *, products: bool, skips: bool = False) -> Graph:
    """Return layers of products and activations, or of activations alone; gradients need the results of layers."""
    flow: Value = Input("x", typed((64, 64)))()
    weights = {f"w{number}": State(f"w{number}", typed((64, 64)))() for number in range(depth)}
    for weight in weights.values():
        before, flow = flow, MatMul()(flow, weight) if products else flow * weight
        flow = Tanh()(flow)
        flow = flow + before if skips else flow
    loss = ReduceSum()(flow)
    updates = zip(weights.items(), gradients(loss, list(weights.values())), strict=True)
    return Graph({"loss": loss}, {name: weight - gradient for (name, weight), gradient in updates}, guard=loss)


def peak(variant: RecomputeVariant) -> int:
    return planned(variant).memory.nbytes


def test_nothing_is_recomputed_if_all_fits() -> None:
    graph = tower(8, products=True)
    assert not within(graph, peak(plain(graph))).recomputed


@pytest.mark.parametrize("skips", [False, True])
def test_cheap_results_are_recomputed_only_as_needed(skips: bool) -> None:
    graph = tower(12, products=False, skips=skips)
    full_peak = peak(plain(graph))
    some, more = within(graph, full_peak - 2 * BYTES), within(graph, full_peak - 4 * BYTES)
    assert peak(some) <= full_peak - 2 * BYTES
    assert peak(more) <= full_peak - 4 * BYTES
    assert 0 < some.flops < more.flops
    assert all(node.scope.phase == "backward" for node in more.recomputed)


@pytest.mark.parametrize("products", [False, True])
def test_whether_a_step_fits_takes_fewer_plans(products: bool) -> None:
    variant = plain(tower(12, products=products))
    limit = peak(variant) - 2 * BYTES

    def plans(*, minimal: bool) -> int:
        planned_variants = []

        def peak_of(candidate: RecomputeVariant) -> int:
            planned_variants.append(candidate)
            return peak(candidate)

        assert peak(recompute(variant, peak_of, limit, minimal=minimal)) <= limit
        return len(planned_variants)

    assert plans(minimal=False) < plans(minimal=True)


def test_products_are_recomputed_only_if_cheap_results_do_not_suffice() -> None:
    graph = tower(16, products=True)
    full_peak = peak(plain(graph))

    def products(variant: RecomputeVariant) -> int:
        return sum(node.op.name == "MatMul" for node in variant.recomputed)

    few, least = within(graph, full_peak - 2 * BYTES), within(graph, 0)
    assert 0 < products(least) < 16
    assert peak(least) < 0.6 * full_peak, "about two roots of the depth instead of the depth"
    assert peak(few) <= full_peak - 2 * BYTES
    assert few.flops <= least.flops


def test_recomputation_runs_as_late_as_possible() -> None:
    """Recomputed nodes follow the guard, and are spread out: the gradients of late layers only need late results."""
    plan = planned(within(tower(16, products=True), 0))
    repeated = [index for index, node in enumerate(plan.order) if node.scope.phase == "backward" and node.op == Tanh()]
    first, last = repeated[0], repeated[-1]
    assert first >= plan.before_guard_count
    assert last - first > (len(plan.order) - plan.before_guard_count) / 4


@given(graph=graphs(), limit=st.sampled_from([0, 1 << 10, 1 << 12]))
def test_recomputation_keeps_results_bit_identical(graph: Graph, limit: int) -> None:
    before = plain(graph)
    after = within(graph, limit)
    check(planned(after))
    inputs, _, states = feeds(graph)
    with np.errstate(all="ignore"):
        expected, actual = run(before.graph, inputs, states), run(after.graph, inputs, states)
    same_bits(actual[0], expected[0])
    same_bits(actual[1], expected[1])


class Impure(Tanh):
    """An op that may give a different result each time."""

    traits = Traits(pure=False)


def test_impure_nodes_are_not_recomputed() -> None:
    x, w = Input("x", typed((64, 64)))(), State("w", typed((64, 64)))()
    noise = Impure()(x)
    loss = ReduceSum()(Tanh()(noise * w))
    (gradient,) = gradients(loss, [w])
    recomputed = within(Graph({}, {"w": w - gradient}, guard=loss), 0)
    assert not any(isinstance(node.op, Impure) for node in recomputed.recomputed)


def test_random_numbers_are_recomputed_identically() -> None:
    x, w, counter = Input("x", typed((64, 64)))(), State("w", typed((64, 64)))(), Input("$rng", RNG_TYPE)()
    flow: Value = x
    for stream in range(6):
        flow = Tanh()(flow * w) * RandomUniform(typed((64, 64)), stream)(counter)
    loss = ReduceSum()(flow)
    (gradient,) = gradients(loss, [w])
    graph = Graph({"loss": loss}, {"w": w - gradient}, guard=loss)
    recomputed = within(graph, 0)
    assert any(isinstance(node.op, RandomUniform) for node in recomputed.recomputed)
    rng = np.array([1, 2, 0])
    given_ = {"x": np.ones((64, 64), np.float32), "$rng": rng}, {"w": np.ones((64, 64), np.float32)}
    same_bits(run(recomputed.graph, *given_)[1], run(graph, *given_)[1])


def loop(**fields: object) -> LoopSpec:
    return LoopSpec.model_validate({"max_steps": 1, **fields})


def training(net: str, loop: LoopSpec | None, device: str) -> Compiler:
    spec = load_spec(NETS / f"{net}.yaml")
    assert isinstance(spec, NetSpec)
    return Compiler(spec, solver=SGD(type="SGD", momentum=0.9), device=device, loop=loop)


@pytest.mark.exhaustive
def test_mobilenet_fits_into_two_thirds_for_little_arithmetic() -> None:
    compiler = training("mobilenet_v1", None, "null")
    graph = compiler.graph(ProgramKind.TRAIN, 16)
    full_plan = make_plan(graph, compiler.device)
    part = make_plan(graph, compiler.device, limit=2 * full_plan.memory.nbytes // 3)
    assert part.memory.nbytes <= 2 * full_plan.memory.nbytes // 3
    assert part.recompute_saved_bytes == full_plan.memory.arena_bytes - part.memory.arena_bytes

    def flops(nodes: list[Node]) -> int:
        return sum(node.op.flops(*(value.type for value in node.inputs)) for node in nodes)

    assert 0 < flops(list(part.recomputed)) < 0.03 * flops(list(full_plan.choices))


@pytest.mark.exhaustive
def test_recomputed_steps_of_resnet_are_bit_identical() -> None:
    """With the fastest kernels, and with layouts and fused groups."""
    open_device("cpu")
    random = np.random.default_rng(0)
    feed = {
        "image": random.standard_normal((4, 3, 32, 32), dtype=np.float32), "label": np.arange(4, dtype=np.int32),
        "$learning_rate": np.array(0.1), "$step": np.array(1.0), "$rng": np.array([0, 0, 0]),
    }  # fmt: skip
    results = []
    for config in (None, loop(recompute="all")):
        compiler = training("resnet20", config, "cpu")
        program = compiler.program(ProgramKind.TRAIN, 4)
        for _ in range(3):
            program(feed)
        results.append((program.plan, {name: compiler.states[name] for name in compiler.states}))
    (plan, states), (spared, same) = results
    assert spared.recomputed
    assert spared.memory.arena_bytes < 0.7 * plan.memory.arena_bytes
    same_bits(same, states)
