"""Buckets: gradients are summed over workers in few messages, from contiguous memory without copies."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from netspec.backends.device_registry import open_device
from netspec.backends.program import Program
from netspec.backends.states import States
from netspec.compile import make_plan
from netspec.distributed.partitioning.bucketing import BucketGradients
from netspec.graph.graph import Graph
from netspec.graph.ops.all_reduce import AllReduce, JoinAllReduce, StartAllReduce
from netspec.graph.ops.elementwise import Add, cast
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Tanh
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value, apply
from netspec.graph.verify import verify
from netspec.passes.communication_order import OrderCommunication
from netspec.passes.schedule import schedule


def chain(sizes: list[int], dtype: DType = DType.FLOAT32) -> Graph:
    """Return a graph of sums over workers of values of these sizes, each computed from the one before; with a guard."""
    x: Value = Input("x", TensorType((1, sizes[0]), dtype))()
    guard = AllReduce(deferred=True)(Input("loss", TensorType((), dtype))())
    updates = {}
    for number, (size, following) in enumerate(zip(sizes, [*sizes[1:], 1], strict=True)):
        x = Tanh()(x)
        state = State(f"w{number}", TensorType((1, size), dtype))()
        updates[f"w{number}"] = state - AllReduce(deferred=True, contents=(f"w{number}",))(x + 1.0)
        x = MatMul()(x, Input(f"m{number}", TensorType((size, following), dtype))())
    return Graph({"loss": guard}, updates, guard)


def counts(graph: Graph) -> list[int]:
    """Return the number of values in each bucket, in the order in which the sums start."""
    return [node.op.count for node in schedule(graph).order if isinstance(node.op, StartAllReduce)]


def test_buckets_fill_in_the_order_of_computation() -> None:
    sizes = [10, 10, 10, 100, 100, 10, 10]
    result = verify(BucketGradients(first_bytes=80, bucket_bytes=400).run(chain(sizes)))
    assert counts(result) == [1, 2, 2, 1, 2]  # the guard alone; at least 80 bytes; at least 400 bytes each
    assert not any(isinstance(node.op, AllReduce) for node in result.nodes())


def test_buckets_do_not_depend_on_rebuilt_nodes() -> None:
    """If a pass rebuilds a node only on the worker with a single sample, buckets stay the same."""
    graph = OrderCommunication().run(chain([10, 100, 10, 100]))
    large = [node for node in graph.nodes() if isinstance(node.op, Add) and node.types[0].size == 100]
    young = {node: apply(node.op, node.inputs) for node in large}
    other = graph.rewrite(lambda node, inputs: young.get(node))
    assert held(other) == held(graph)
    assert held(graph) == [(), ("w0",), ("w1",), ("w2",), ("w3",)]


def held(graph: Graph) -> list[tuple[str, ...]]:
    """Return the contents of each of many small buckets."""
    result = schedule(BucketGradients(first_bytes=1, bucket_bytes=1).run(graph))
    return [node.op.contents for node in result.order if isinstance(node.op, StartAllReduce)]


def test_all_buckets_start_before_the_guard_is_read() -> None:
    result = BucketGradients(first_bytes=80, bucket_bytes=80).run(chain([10] * 8))
    actual = schedule(result)
    starts = [index for index, node in enumerate(actual.order) if isinstance(node.op, StartAllReduce)]
    joins = [index for index, node in enumerate(actual.order) if isinstance(node.op, JoinAllReduce)]
    assert max(starts) < actual.before_guard_count
    assert len([index for index in joins if index < actual.before_guard_count]) == 1  # that of the guard
    assert starts[0] < 3  # the loss is sent first, before gradients are computed


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
def test_values_of_a_bucket_are_contiguous(dtype: DType) -> None:
    sizes = [10, 100, 7, 33]
    plan = make_plan(chain(sizes, dtype), open_device("cpu"), dtype, passes=[BucketGradients()])
    (bucket,) = (node for node in plan.order if isinstance(node.op, StartAllReduce) and node.op.count == len(sizes))
    pieces = [plan.memory.storage[value] for value in bucket.inputs[: len(sizes)]]
    assert all(before.offset + before.size == after.offset for before, after in pairwise(pieces))
    results = [plan.memory.storage[value] for value in bucket.outputs[: len(sizes)]]
    assert [result.offset for result in results] == [piece.offset for piece in pieces]


def test_a_value_in_two_buffers_is_copied_to_one_of_them() -> None:
    """No value is summed twice, even if other ops read it."""
    x = Input("x", TensorType((5,), DType.FLOAT32))()
    shared = Tanh()(x)
    sums = [AllReduce(deferred=True)(shared), AllReduce(deferred=True)(shared * 2.0), AllReduce(deferred=True)(shared)]
    graph = Graph({"a": sums[0], "b": sums[1], "c": sums[2], "plain": shared + cast(x, DType.FLOAT32)})
    device = open_device("cpu")
    plan = make_plan(graph, device, passes=[BucketGradients()])
    results = Program(plan, device, States({}, device))({"x": np.arange(5, dtype=np.float32)})
    y = np.tanh(np.arange(5, dtype=np.float32))
    expected = {"a": y, "b": 2 * y, "c": y, "plain": y + np.arange(5)}
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-6)  # a few roundings of float32


def test_graph_without_sums_is_unchanged() -> None:
    graph = Graph({"y": Tanh()(Input("x", TensorType((3,), DType.FLOAT32))())})
    assert BucketGradients().run(graph) is graph
