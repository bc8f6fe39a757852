"""The memory plan: no live value is overwritten, and the arena is close to the lower bound."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from netspec.backends.device_registry import NullDevice
from netspec.compile import PASSES, make_plan
from netspec.graph.execution_plan import ALIGNMENT, ExecutionPlan, Storage
from netspec.graph.graph import Graph, topological_order
from netspec.graph.op import Op
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import Reshape, Transpose
from netspec.graph.ops.source import Fill, Input, State
from netspec.graph.ops.unary import Relu
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.passes.arena import assign_offsets, peak_live_bytes
from netspec.passes.base import run_passes
from netspec.passes.elementwise_fusion import FuseElementwise
from netspec.passes.invariant import invariant_nodes
from netspec.passes.memory import plan_memory
from netspec.passes.multi_tensor import GroupMultiTensor
from netspec.passes.schedule import schedule
from tests.passes.graphs import graphs, typed


def everything(op: Op, types: Sequence[TensorType]) -> bool:
    """A device whose kernels accept every op."""
    return True


def planned(graph: Graph, workspace: int = 0, *, fused: bool = False) -> ExecutionPlan:
    """Plan a graph whose kernels all need `workspace` bytes of workspace."""
    fusing = (FuseElementwise(everything), GroupMultiTensor(everything)) if fused else ()
    graph = run_passes(graph, (*PASSES, *fusing), check=True)
    scheduled = schedule(graph)
    scratch = {node: workspace for node in scheduled.order if not node.op.traits.source and not node.op.traits.view}
    memory = plan_memory(
        graph, scheduled.order, scratch, before_guard_count=scheduled.before_guard_count,
        invariant_count=scheduled.invariant_count,
    )  # fmt: skip
    return ExecutionPlan(
        graph, scheduled.order, scheduled.invariant_count, scheduled.before_guard_count, {}, {}, memory
    )


def place_of(storage: Storage, size: int) -> tuple[str, int, int]:
    """Return the buffer, and the first and last byte."""
    return (storage.kind, storage.offset, storage.offset + size)


def overlap(piece: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return piece[0] == other[0] and piece[1] < other[2] and other[1] < piece[2]


def base(value: Value) -> Value:
    """Return the value that this one is a view of."""
    while value.op.traits.view:
        value = value.inputs[0]
    return value


def check(plan: ExecutionPlan) -> None:
    """Simulate the step with sets of live values that are computed from the graph alone.

    Results of invariant nodes are live from the start, since most runs do not recompute them.
    """
    memory, end = plan.memory, len(plan.order)
    last = {} if plan.graph.guard is None else {base(plan.graph.guard): plan.before_guard_count - 1}
    last.update(dict.fromkeys(map(base, replace(plan.graph, guard=None).roots()), end))
    for index, node in enumerate(plan.order):
        for value in node.inputs:
            last[base(value)] = max(index, last.get(base(value), 0))
    for value in [value for value in last if isinstance(value.op, Input)]:
        # The search for the first non-finite value needs the inputs.
        last[value] = max(last[value], plan.before_guard_count - 1)
    where = {value: place_of(storage, value.type.nbytes) for value, storage in memory.storage.items()}
    invariant = set(plan.order[: plan.invariant_count])
    lasting = {base(value) for node in plan.order[plan.invariant_count :] for value in node.inputs}
    lasting |= set(map(base, plan.graph.roots()))
    lasting = {value for value in lasting if value.node in invariant and not value.op.traits.source}
    needed = lasting | {value for value in last if isinstance(value.op, (Input, State)) or value.op.traits.source}
    last.update(dict.fromkeys(lasting, end))
    for index, node in enumerate(plan.order):
        scratch = memory.workspace.get(node)
        for value in () if node.op.traits.source or node.op.traits.view else node.outputs:
            if value not in where:
                assert value not in last
                continue
            if where[value][0].startswith("state:"):
                assert index >= plan.before_guard_count, "a state is written before the guard"
            for other in needed | set(node.outputs):
                if other is value or other not in where or not overlap(where[value], where[other]):
                    continue
                assert last[other] <= index, f"{node} writes over {other}"
                assert other not in node.outputs, f"two results of {node} share memory"
                allowed = node.op.inplace_operands(value.index, node.inputs)
                over = [operand for operand in allowed if operand.type == value.type and where[operand] == where[value]]
                used = base(other) in map(base, node.inputs)
                assert not used or over, f"{node} writes over what it reads"
        if scratch is not None:
            span = place_of(scratch, scratch.size)
            touched = [value for value in (*node.inputs, *node.outputs) if value in where]
            assert not any(overlap(span, where[value]) for value in (*needed, *touched) if value in where)
        needed |= {value for value in node.outputs if value in last}
        needed = {value for value in needed if last[value] > index}
        for value in node.outputs:
            if node.op.traits.view:
                assert memory.storage[value] is memory.storage[base(value)]
    copied = {name for _, name in memory.copies}
    for name, value in plan.graph.updates.items():
        assert (name in copied) != (memory.storage[value].kind == f"state:{name}")
    for storage in {
        id(operand): operand for operand in (*memory.storage.values(), *memory.workspace.values())
    }.values():
        limits = {"arena": memory.arena_bytes, "constant": memory.constant_bytes, "invariant": memory.invariant_bytes}
        limit = limits.get(storage.kind)
        assert limit is None or (storage.offset % ALIGNMENT == 0 and storage.offset + storage.size <= limit)
    assert max(memory.live_bytes, default=0) <= memory.lower_bound <= memory.arena_bytes


@given(graph=graphs(), workspace=st.sampled_from([0, 1, 100]), fused=st.booleans())
def test_no_live_value_is_overwritten(graph: Graph, workspace: int, fused: bool) -> None:
    check(planned(graph, workspace, fused=fused))


@given(graph=graphs())
def test_order_is_valid_with_the_guard_first_and_readers_before_updates(graph: Graph) -> None:
    plan = planned(graph)
    place_in = {node: index for index, node in enumerate(plan.order)}
    assert set(place_in) == set(plan.graph.nodes())
    assert all(place_in[value.node] < index for node, index in place_in.items() for value in node.inputs)
    guard = [plan.graph.guard] if plan.graph.guard is not None else []
    invariant = {node for node in invariant_nodes(plan.graph) if not node.op.traits.source}
    first = {node for node in plan.order[: plan.invariant_count] if not node.op.traits.source}
    assert first == invariant
    assert set(plan.order[plan.invariant_count : plan.before_guard_count]) == set(topological_order(guard)) - set(
        plan.order[: plan.invariant_count]
    )


pieces = st.lists(
    st.builds(
        lambda size, first, length: Storage(size * ALIGNMENT, first, first + length, "arena"),
        st.integers(0, 5), st.integers(0, 12), st.integers(0, 6),
    ),
    max_size=30,
)  # fmt: skip


@given(pieces=pieces)
def test_live_storages_do_not_overlap(pieces: list[Storage]) -> None:
    total = assign_offsets(pieces)
    for index, piece in enumerate(pieces):
        assert piece.offset + piece.size <= total
        for other in pieces[:index]:
            if piece.first_use <= other.last_use and other.first_use <= piece.last_use:
                assert piece.offset + piece.size <= other.offset or other.offset + other.size <= piece.offset
    alive = [sum(piece.size for piece in pieces if piece.first_use <= step <= piece.last_use) for step in range(20)]
    assert max(alive) <= total


def test_arena_is_near_the_lower_bound() -> None:
    """Sorting by size alone makes one in ten of these arenas more than 2 % larger than the peak of live bytes."""
    larger = 0
    for seed in range(100):
        random = Random(seed)
        pieces = []
        for _ in range(random.randint(5, 120)):
            first, longest = random.randint(0, 60), random.choice([3, 30])
            size = ALIGNMENT * random.choice([1, 2, 3, 5, 8, 13, 50, 100])
            pieces.append(Storage(size, first, first + random.randint(0, longest), "arena"))
        larger += assign_offsets(pieces) > 1.02 * peak_live_bytes(pieces)
    assert larger <= 4


def kinds(plan: ExecutionPlan) -> dict[str, str]:
    """Return the location in which each new state is computed."""
    return {name: plan.memory.storage[value].kind for name, value in plan.graph.updates.items()}


a, b = State("a", typed((2, 3)))(), State("b", typed((2, 3)))()


def test_update_in_place_of_a_state_with_other_readers() -> None:
    """Readers run before the update: gradients by the input need the old weights."""
    new = a * 2.0
    graph = Graph({"y": ReduceSum()(Relu()(Reshape((6,))(a))), "z": a * 3.0}, {"a": new})
    assert kinds(planned(graph)) == {"a": "state:a"}


def test_two_updates_that_read_each_other() -> None:
    plan = planned(Graph({}, {"a": a + b, "b": a * b}))
    assert sorted(kinds(plan).values()) in (["arena", "state:a"], ["arena", "state:b"])
    check(plan)


def test_only_inplace_ops_overwrite_the_state_they_read() -> None:
    square = State("square", typed((3, 3)))()
    flat = Reshape((9,))(square)
    assert kinds(planned(Graph({}, {"square": square * 2.0}))) == {"square": "state:square"}
    assert kinds(planned(Graph({}, {"square": MatMul()(square, square)}))) == {"square": "arena"}
    assert kinds(planned(Graph({}, {"square": Transpose((1, 0))(square)}))) == {"square": "arena"}
    # Consecutive reshapes to the original shape are simplified away.
    assert kinds(planned(Graph({}, {"square": Relu()(Reshape((3, 3))(flat))}))) == {"square": "state:square"}


def test_swapped_and_rotated_states() -> None:
    c = State("c", typed((2, 3)))()
    for updates in ({"a": b, "b": a}, {"a": b, "b": c, "c": a}):
        plan = planned(Graph({}, updates))
        check(plan)
        assert len(plan.memory.copies) == 1, "one old value has to be put aside, and no more"


def test_one_value_updates_two_states() -> None:
    new = a + b
    plan = planned(Graph({}, {"a": new, "b": new}))
    assert [name for _, name in plan.memory.copies] == ["b"]
    assert kinds(plan)["a"] == "state:a"


def test_states_are_not_written_before_the_guard() -> None:
    new = a + 1.0
    plan = planned(Graph({"loss": ReduceSum()(new)}, {"a": new}, guard=ReduceSum()(new)))
    assert kinds(plan) == {"a": "arena"}
    assert [name for _, name in plan.memory.copies] == ["a"]


def test_inputs_outlive_the_part_before_the_guard() -> None:
    """The search for the first non-finite value replays the step from the inputs, which must not be overwritten."""
    x = Input("x", typed((2, 3)))()
    y = Transpose((1, 0))(Transpose((1, 0))(Relu()(x * 2.0)))
    plan = planned(Graph({}, {"a": a + 1.0}, guard=ReduceSum()(y)))
    assert plan.memory.storage[x].last_use == plan.before_guard_count - 1
    check(plan)


def test_update_that_is_copied_is_not_overwritten() -> None:
    """`new` cannot be written in place, since `a` and `b` are swapped; computing its readers must not overwrite it."""
    new = Relu()(b)
    plan = planned(Graph({"y": Relu()(new * 2.0)}, {"a": new, "b": a}))
    check(plan)


def test_chain_of_values_reuses_one_storage() -> None:
    x = Input("x", typed((2, 3)))()
    y = x + 1.0
    for _ in range(10):
        y = Relu()(y) * 2.0
    plan = planned(Graph({"y": y}))
    assert plan.memory.arena_bytes == 2 * ALIGNMENT, "the input, and one value that changes in place"


def test_equal_constants_are_stored_once() -> None:
    x = Input("x", typed((2, 3)))()
    plan = planned(Graph({"y": x * Fill(0.5, typed(()))() + Fill(0.5, typed(()))()}))
    assert plan.memory.constant_bytes == ALIGNMENT


def test_each_gradient_is_freed_after_its_update() -> None:
    """Ten gradients of equal size, each of which is only used by one update: few are live at a time."""
    x = Input("x", typed((1000,)))()
    updates: dict[str, Value] = {}
    flow: Value = x
    for number in range(10):
        state = State(f"w{number}", typed((1000,)))()
        flow = Relu()(flow * state)
        updates[f"w{number}"] = state + flow * -0.1
    plan = planned(Graph({}, updates))
    assert not plan.memory.copies
    assert plan.memory.arena_bytes <= 4 * 4032  # x, the flow, the next flow, and the change of one update


def test_nothing_is_allocated_to_plan_a_large_net() -> None:
    huge = Input("x", typed((1 << 19, 1 << 19)))()
    plan = make_plan(Graph({"y": Relu()(huge) * 2.0}), NullDevice())
    assert plan.memory.arena_bytes >= 1 << 40


def deep_net(length: int) -> tuple[Graph, int]:
    """Return a chain of about `length` values with shortcuts and updates, like a residual net."""
    x = skipped = Input("x", typed((64, 8)))()
    updates: dict[str, Value] = {}
    for _ in range(length // 6):
        state = State(f"w{len(updates)}", typed((64, 8)))()
        x = Relu()(x * state)
        x = Reshape((64, 8))(x + skipped)
        updates[f"w{len(updates)}"] = state + x * 0.1
        if len(updates) % 5 == 0:
            skipped = x
    graph = Graph({"y": x}, updates, guard=ReduceSum()(x))
    return graph, len(graph.nodes())


def test_planning_takes_well_under_a_second() -> None:
    graph, nodes = deep_net(3000)
    assert nodes >= 3000
    gc.freeze()  # the garbage collector skips objects of earlier tests
    try:
        began = time.process_time()
        plan = planned(graph)
        took = time.process_time() - began
    finally:
        gc.unfreeze()
    assert not plan.memory.copies
    assert took < 3.0, f"{took:.2f} s; it is about 0.15 s on a quiet machine, passes and the verifier included"


def test_placing_many_long_lives() -> None:
    many = [Storage(64 * (1 + i % 37), i, i + 1 + (i * 7919) % 300, "arena") for i in range(3000)]
    began = time.process_time()
    assign_offsets(many)
    assert time.process_time() - began < 3.0, "about 0.15 s on a quiet machine"
