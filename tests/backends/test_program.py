"""Programs against an interpreter without a plan; checks of inputs; states after a failed run."""

from __future__ import annotations

import tracemalloc
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from netspec.backends.device_registry import open_device
from netspec.backends.failures import first_inside
from netspec.backends.program import NonFiniteLoss, Program
from netspec.backends.states import States
from netspec.compile import make_plan
from netspec.errors import InputError, Location, RunError
from netspec.graph.fused import fuse_between, node_scopes
from netspec.graph.graph import Graph
from netspec.graph.op import Op
from netspec.graph.ops.linear import Gather
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import Reshape
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Exp, Log, Relu
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, in_scope
from tests.interpret import Arrays, run
from tests.passes.graphs import feeds, graphs, same_bits, typed


def program(graph: Graph, start: Arrays) -> Program:
    """Compile the graph for the reference kernels, whose results are exactly known; its states are `start`."""
    device = open_device("reference")
    types = {name: TensorType(array.shape, DType(str(array.dtype))) for name, array in start.items()}
    states = States(types, device)
    for name, array in start.items():
        states.assign(name, array)
    return Program(make_plan(graph, device), device, states)


@given(graph=graphs())
def test_steps_agree_with_the_interpreter(graph: Graph) -> None:
    inputs, _, states = feeds(graph)
    result = program(graph, states)
    for step in range(3):
        with np.errstate(all="ignore"):
            outputs, following = run(graph, inputs, states)
            guard = (
                0.0 if graph.guard is None else float(run(Graph({"guard": graph.guard}), inputs, states)[0]["guard"])
            )
        if not np.isfinite(guard):
            with pytest.raises(NonFiniteLoss):
                result(inputs)
            same_bits(dict(result.states), states)
            return
        same_numbers(result(inputs), outputs)
        same_numbers(dict(result.states), following)
        states, inputs = following, {name: array + np.float32(step) for name, array in inputs.items()}


def same_numbers(first: Arrays, other: Arrays) -> None:
    """Check for equal values; the sign of a zero may differ, since the pass `simplify` does not keep it."""
    assert first.keys() == other.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


a, b = State("a", typed((2, 3)))(), State("b", typed((2, 3)))()
A, B = (np.arange(6, dtype="float32").reshape(2, 3) + 10 * n for n in range(2))


def test_two_states_swap() -> None:
    result = program(Graph({"old": a}, {"a": b, "b": a}), {"a": A, "b": B})
    np.testing.assert_array_equal(result({})["old"], A)
    same_bits(dict(result.states), {"a": B, "b": A})


def test_three_states_rotate() -> None:
    c, C = State("c", typed((2, 3)))(), A - 7
    result = program(Graph({}, {"a": b, "b": c, "c": a}), {"a": A, "b": B, "c": C})
    result({})
    same_bits(dict(result.states), {"a": B, "b": C, "c": A})


def test_fetched_state_is_from_before_the_step() -> None:
    result = program(Graph({"whole": a, "flat": Reshape((6,))(a), "new": a + 1.0}, {"a": a + 1.0}), {"a": A})
    same_bits(result({}), {"whole": A, "flat": A.reshape(6), "new": A + 1})
    same_bits(result({}), {"whole": A + 1, "flat": A.reshape(6) + 1, "new": A + 2})


def test_updates_that_are_inputs_constants_and_other_updates() -> None:
    x, new = Input("x", typed((2, 3)))(), Relu()(a) * 2.0
    zeros = Reshape((2, 3))(Input("flat", typed((6,)))()) * 0.0
    graph = Graph({}, {"a": new, "b": new, "c": x, "d": zeros})
    start = dict.fromkeys("abcd", A)
    result = program(graph, start)
    result({"x": B, "flat": A.reshape(6)})
    same_bits(dict(result.states), {"a": 2 * A, "b": 2 * A, "c": B, "d": np.zeros_like(A)})


def test_programs_share_states() -> None:
    first = program(Graph({"y": a}, {"a": a + 1.0}), {"a": A})
    other = Program(make_plan(Graph({"sum": ReduceSum()(a)}), first.device), first.device, first.states)
    assert other({})["sum"] == 15
    first({})
    assert other({})["sum"] == 21


def counting(monkeypatch: pytest.MonkeyPatch, op: type[Op]) -> list[None]:
    """Return a list that grows by one element each time the op is computed."""
    calls: list[None] = []
    forward = op.forward

    def counted(self: Op, xp: Any, *arrays: Any) -> Any:
        calls.append(None)
        return forward(self, xp, *arrays)

    monkeypatch.setattr(op, "forward", counted)
    return calls


def test_invariant_nodes_rerun_only_when_states_change(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counting(monkeypatch, Exp)
    x = Input("x", typed((2, 3)))()
    result = program(Graph({"y": x * Exp()(a)}), {"a": A, "b": B})
    for _ in range(3):
        np.testing.assert_array_equal(result({"x": B})["y"], B * np.exp(A))
    assert len(calls) == 1
    result.states.assign("a", A - 1)
    for _ in range(2):
        np.testing.assert_array_equal(result({"x": A})["y"], A * np.exp(A - 1))
    assert len(calls) == 2
    assert [node.op.name for node, _ in result.timed() if node] == ["Mul"]
    assert [node.op.name for node, _ in result.timed_invariant() if node] == ["Exp"]
    assert len(calls) == 3


def test_programs_see_writes_of_others_and_writes_before_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = counting(monkeypatch, Exp)
    label = Input("label", TensorType((2,), DType.INT32))()
    stepping = program(Graph({"y": Gather()(b, label)}, {"a": a + 1.0}), {"a": A, "b": B})
    reading = Program(make_plan(Graph({"y": Exp()(a)}), stepping.device), stepping.device, stepping.states)
    np.testing.assert_array_equal(reading({})["y"], np.exp(A))
    stepping({"label": np.zeros(2, "int32")})
    for _ in range(2):
        np.testing.assert_array_equal(reading({})["y"], np.exp(A + 1))
    assert len(calls) == 2
    with pytest.raises(RunError):
        stepping({"label": np.array([0, 5])})
    np.testing.assert_array_equal(reading({})["y"], np.exp(stepping.states["a"]))


def test_own_writes_do_not_rerun_invariant_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counting(monkeypatch, Exp)
    result = program(Graph({}, {"a": a + Exp()(b)}), {"a": A, "b": A})
    for _ in range(3):
        result({})
    np.testing.assert_allclose(result.states["a"], A + 3 * np.exp(A), rtol=1e-6)
    result.states.assign("b", B - 12)
    result({})
    assert len(calls) == 2
    np.testing.assert_allclose(result.states["a"], A + 3 * np.exp(A) + np.exp(B - 12), rtol=1e-6)


def test_failed_preparation_is_reported_and_retried() -> None:
    index = State("index", TensorType((2,), DType.INT32))()
    with in_scope(Scope("words", "Embedding")):
        y = Gather()(a, index)
    result = program(Graph({"y": y * Input("x", typed((2, 3)))()}), {"a": A, "index": np.array([0, 5], "int32")})
    for _ in range(2):
        with pytest.raises(RunError, match="layer `words`"):
            result({"x": B})
    result.states.assign("index", np.array([1, 0]))
    np.testing.assert_array_equal(result({"x": B})["y"], A[[1, 0]] * B)


def test_non_finite_invariant_node_is_named_in_a_later_step() -> None:
    with in_scope(Scope("logs", "Log")):
        y = Log()(b * 2.0)
    loss = ReduceSum()(y * Input("x", typed((2, 3)))())
    result = program(Graph({"loss": loss}, {"a": a + 1.0}, guard=loss), {"a": A, "b": -B})
    for _ in range(2):
        with pytest.raises(NonFiniteLoss) as caught:
            result({"x": A})
        assert caught.value.node is not None
        assert (caught.value.node.op.name, caught.value.node.scope.layer) == ("Log", "logs")
    same_bits(dict(result.states), {"a": A, "b": -B})


def test_step_leaves_no_allocations() -> None:
    """Reference kernels allocate temporary arrays; many steps leave no more memory in use than the first ones."""
    x = Input("x", typed((1000, 10)))()
    result = program(
        Graph({"y": ReduceSum()(Relu()(x) * a_large)}, {"large": a_large * 0.5}),
        {"large": np.ones((1000, 10), "float32")},
    )
    data = {"x": np.ones((1000, 10), "float32")}
    tracemalloc.start()
    for _ in range(3):  # the first steps fill caches
        result.write(data)
        result.run()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(20):
        result.write(data)
        result.run()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # threadpoolctl leaves some 240 bytes each time that it limits BLAS.
    assert after - before < 20_000, "one array of the graph has 40,000 bytes"


a_large = State("large", typed((1000, 10)))()


@pytest.mark.parametrize(
    ("given_", "problems"),
    [
        ({}, [("the input `label` is missing", "int32[2]", None), ("the input `x` is missing", "float32[2, 3]", None)]),
        (
            {"x": np.zeros((1, 3)), "label": np.zeros(2)},
            [
                ("the input `label` has another type", "int32", "float64"),
                ("the input `x` has the wrong shape", "[2, 3]", "[1, 3]"),
            ],
        ),
        ({"x": 1.0, "label": [0, 1]}, [("the input `x` has the wrong shape", "[2, 3]", "[]")]),
    ],
)  # fmt: skip
def test_all_input_problems_are_reported_together(
    given_: dict[str, Any], problems: list[tuple[str, str, str | None]]
) -> None:
    label = Input("label", TensorType((2,), DType.INT32))()
    result = program(Graph({"y": Gather()(Input("x", typed((2, 3)))(), label)}), {})
    with pytest.raises(InputError) as caught:
        result.write(given_)
    assert sorted((problem.message, problem.expected, problem.got) for problem in caught.value.problems) == problems


def test_unread_inputs_are_ignored_and_types_converted() -> None:
    result = program(Graph({"y": Input("x", typed((2, 3)))() * 2.0}), {})
    for x in (A.astype("float64"), A.astype("uint8"), A.astype("int64"), A > 2):
        np.testing.assert_array_equal(result({"x": x, "label": None})["y"], 2.0 * x)


def test_read_returns_a_copy() -> None:
    result = program(Graph({"y": Input("x", typed((2, 3)))() * 2.0, "a": a}), {"a": A})
    first = result({"x": A})
    first["a"][...] = -1
    second = result({"x": B})
    np.testing.assert_array_equal(first["y"], 2 * A)
    np.testing.assert_array_equal(second["a"], A)


def guarded(*, scope: str) -> Graph:
    """log of x, times a state, summed; both states change."""
    x = Input("x", typed((2, 3)))()
    doubled = x * 2.0
    with in_scope(Scope(scope, "Log")):
        y = Log()(doubled)
    loss = ReduceSum()(Relu()(Relu()(y * a)) * 1.0)
    return Graph({"loss": loss}, {"a": a + 1.0, "b": b * a}, guard=loss)


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_non_finite_loss_names_its_layer_and_changes_nothing(bad: float) -> None:
    result = program(guarded(scope="logs"), {"a": -A, "b": B})
    x = np.ones((2, 3), "float32")
    result({"x": x})
    before = dict(result.states)
    x[1, 1] = bad
    with pytest.raises(NonFiniteLoss) as caught:
        result({"x": x})
    assert caught.value.node is not None
    assert (caught.value.node.op.name, caught.value.node.scope.layer) == ("Log", "logs")
    same_bits(dict(result.states), before)


def test_state_non_finite_before_the_step_is_named() -> None:
    result = program(guarded(scope="logs"), {"a": np.where(A == 3, np.float32(np.nan), A), "b": B})
    with pytest.raises(NonFiniteLoss) as caught:
        result({"x": np.ones((2, 3))})
    assert (caught.value.state, caught.value.node) == ("a", None)


def test_data_that_is_not_finite_is_named() -> None:
    result = program(guarded(scope="logs"), {"a": A, "b": B})
    with pytest.raises(NonFiniteLoss) as caught:
        result({"x": np.full((2, 3), np.inf)})
    assert caught.value.node is not None
    assert isinstance(caught.value.node.op, Input)


def test_a_kernel_that_fails_names_its_layer_and_line() -> None:
    label = Input("label", TensorType((2,), DType.INT32))()
    with in_scope(Scope("words", "Embedding", Location("net.yaml", 7, 5))):
        y = Gather()(a, label)
    result = program(Graph({"y": y * 2.0}), {"a": A})
    with pytest.raises(RunError) as caught:
        result({"label": np.array([0, 5])})
    assert caught.value.render() == (
        "net.yaml:7:5: error: layer `words` (Embedding): Gather failed: "
        "index 5 is out of bounds for axis 0 with size 2\n"
        "  operands: float32[2, 3], int32[2]"
    )
    assert isinstance(caught.value.__cause__, IndexError)
    np.testing.assert_array_equal(result({"label": np.array([0, 1])})["y"], 2 * A)  # later runs succeed


def test_the_null_device_plans_and_runs_nothing() -> None:
    device = open_device("null")
    plan = make_plan(guarded(scope="logs"), device)
    assert plan.memory.arena_bytes > 0
    assert device.allocate(1 << 60) is None
    states = States({"a": typed((2, 3)), "b": typed((2, 3))}, device)
    for use in (lambda: Program(plan, device, states), lambda: states["a"], lambda: states.assign("a", A)):
        with pytest.raises(InputError, match="the device `null` only plans"):
            use()


def test_every_array_is_aligned() -> None:
    device = open_device("cpu")
    assert device.allocate(0).nbytes == 0
    for nbytes in (1, 63, 64, 65, 100_000):
        memory = device.allocate(nbytes)
        assert memory.nbytes == nbytes
        assert memory.ctypes.data % 64 == 0
        assert not memory.any()
    result = program(guarded(scope="logs"), {"a": A, "b": B})
    assert all(array.ctypes.data % 64 == 0 for array in result._arrays.values())


def test_array_of_another_shape_is_not_broadcast_silently() -> None:
    states = States({"a": typed((2, 3))}, open_device("cpu"))
    for wrong in (1.0, np.ones(3), np.ones((1, 3)), np.ones((3, 2))):
        with pytest.raises(ValueError, match="does not fill"):
            states.assign("a", wrong)


def test_unknown_kernel_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSPEC_KERNELS", "reference,onedn")
    with pytest.raises(InputError) as caught:
        open_device("cpu")
    assert caught.value.render() == (
        "error: NETSPEC_KERNELS: there are no kernels called 'onedn'\n"
        "  expected: of cublaslt, cuda, cudnn, nccl, numba, onednn, reference, winograd, workers\n"
        "  hint: did you mean `onednn`?"
    )


def test_an_unknown_device() -> None:
    with pytest.raises(InputError) as caught:
        open_device("cpuu")
    assert caught.value.render() == (
        "error: unknown device 'cpuu'\n"
        "  expected: one of auto, cpu, cuda, null, reference; to plan for, a100, b200, h100, h200, l40s, rtx4090, t4\n"
        "  hint: did you mean `cpu`?"
    )


@pytest.mark.parametrize(("name", "entered"), [("reference", 1), ("cpu", 0)])
def test_only_array_code_runs_while_its_library_is_configured(
    monkeypatch: pytest.MonkeyPatch, name: str, entered: int
) -> None:
    device = open_device(name)
    if name == "cpu" and "numba" not in device.kernels:
        pytest.skip("there is no compiled kernel here")
    x = Input("x", TensorType((4,), DType.FLOAT32))()
    times, running = 0, device.running

    def counted() -> AbstractContextManager[object]:
        nonlocal times
        times += 1
        return running()

    monkeypatch.setattr(device, "running", counted)
    result = Program(make_plan(Graph({"y": Relu()(x)}), device), device, States({}, device))
    assert result({"x": np.array([-1.0, 0.0, 1.0, 2.0], np.float32)})["y"].tolist() == [0, 0, 1, 2]
    assert times == entered


@pytest.mark.parametrize(("value", "layer"), [(3e38, "double"), (1e30, "square"), (1.0, "both")])
def test_non_finite_value_is_attributed_inside_a_fused_node(value: float, layer: str) -> None:
    x = Input("x", typed((4,)))()
    with in_scope(Scope("double", "A")):
        doubled = x + x
    with in_scope(Scope("square", "B")):
        result = doubled * doubled
    with in_scope(Scope("both", "C")):
        node = fuse_between([x], [result]).call_multi(x)[0].node
    assert [node_scope.layer for node_scope in node_scopes(node)] == ["double", "square"]
    # `first_inside` returns the node itself if the reference finds no such value.
    assert first_inside(node, [np.full(4, value, np.float32)]).scope.layer == layer
