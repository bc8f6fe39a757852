"""Matrix products that are split among workers: each gets its part of the gradient of one worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest

from netspec.compile import LOSS, WEIGHT, build
from netspec.compile.build import NetGraph
from netspec.compile.steps import forward_graph, updated_start
from netspec.distributed.partitioning.tensor_parallel import split_net, split_parameters, splittable_layers
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.ops.all_reduce import CommunicationOp
from netspec.graph.ops.collectives import AllGather, AllToAll, AxisPartition, BlockingCollective, ReduceScatter
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.ops.source import Input, State
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Value
from netspec.schema.load import load_net

BATCH = np.random.default_rng(0).standard_normal((9, 6)), np.arange(9, dtype=np.int32) % 4
NET: dict[str, Any] = {
    "netspec": 1,
    "inputs": {"x": {"shape": [6]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [
        {"name": "fc1", "type": "Dense", "units": 8, "activation": "gelu",
         "kernel_regularizer": {"type": "L1L2", "l1": 0.01, "l2": 0.02}},
        {"name": "drop", "type": "Dropout", "rate": 0.4},
        {"name": "noise", "type": "GaussianNoise", "stddev": 0.1},
        {"name": "fc2", "type": "Dense", "units": 12,
         "kernel_regularizer": {"type": "OrthogonalRegularizer"}},
        {"name": "prelu", "type": "PReLU", "alpha_initializer": {"type": "Constant", "value": 0.2}},
        {"name": "some", "type": "Dropout", "rate": 0.3, "noise_shape": [None, 1]},
        {"name": "norm", "type": "LayerNormalization", "from": "some"},
        {"name": "sum", "type": "Add", "from": ["some", "norm"]},
        {"name": "logits", "type": "Dense", "units": 4},
    ],
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
}  # fmt: skip
SPEC = load_net(NET)


def differentiated(built: NetGraph) -> Graph:
    """Return a worker's part of the loss, and its gradients."""
    forward = forward_graph(SPEC, built)
    weighed = forward.outputs[LOSS] * built.builder.input(WEIGHT, TensorType((), DType.FLOAT64))
    starts = {name: updated_start(forward, name, info) for name, info in built.builder.states.items() if info.trainable}
    return Graph({LOSS: weighed, **dict(zip(starts, gradients(weighed, list(starts.values())), strict=True))})


def together(graphs: Sequence[Graph], feeds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Run all workers with the reference kernels; they reach the same exchanges in the same order."""
    requests: list[Any] = [None] * len(graphs)
    actual: list[dict[str, Any]] = [{} for _ in graphs]
    barrier = Barrier(len(graphs), timeout=20)

    def exchanged(rank: int, node: Node, x: Any) -> Any:
        op = node.op
        requests[rank] = op, op.pack_blocks(np, x) if isinstance(op, BlockingCollective) else x
        barrier.wait()
        assert len({type(request[0]) for request in requests}) == 1
        sent = [request[1] for request in requests]
        if isinstance(op, BlockingCollective):
            result = np.full(node.types[0].shape, np.nan)
            op.unpack_blocks(np.stack([blocks[0 if op.is_broadcast else rank] for blocks in sent]), result)
        else:
            result = sum(sent)
        barrier.wait()
        return result

    def run(rank: int) -> None:
        values = dict[Value, Any]()
        try:
            for node in graphs[rank].nodes():
                arrays = [values[value] for value in node.inputs]
                if isinstance(node.op, (Input, State)):
                    result = feeds[rank][node.op.label]
                elif isinstance(node.op, CommunicationOp):
                    result = exchanged(rank, node, arrays[0])
                else:
                    result = node.op.forward(np, *arrays)
                values.update(zip(node.outputs, result if isinstance(result, tuple) else (result,), strict=True))
                assert all(np.shape(values[result]) == result.shape for result in node.outputs)
            actual[rank] = {name: values[value] for name, value in graphs[rank].outputs.items()}
        except BaseException:
            barrier.abort()
            raise

    threads = [Thread(target=run, args=(rank,)) for rank in range(len(graphs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return actual


def built(samples: int) -> NetGraph:
    return build(SPEC, samples, training=True, dtype=DType.FLOAT64)


def fed(states: Mapping[str, Any], start: int, stop: int, size: int) -> dict[str, Any]:
    x, label = BATCH
    rows = slice(start, max(stop, start + 1))  # a worker without samples computes one with weight 0
    weight = np.array((stop - start) / size)
    return {**states, "x": x[rows], "label": label[rows], RNG_INPUT: np.array([3, 5, start]), WEIGHT: weight}


@pytest.mark.parametrize(
    ("size", "axes"),
    [
        (8, {"fc1": 1, "fc2": 1, "logits": 1}),
        (7, {"fc1": 1, "fc2": 0, "logits": 0}),
        (3, {"fc1": 0, "fc2": 1, "logits": 0}),  # the first of four workers has no sample
        (9, {"fc2": 1}),
    ],
)
@pytest.mark.parametrize("workers", [2, 4])
def test_pieces_of_gradients_equal_one_worker(size: int, axes: dict[str, int], workers: int) -> None:
    """With dropout and noise, penalties of parts and of full parameters, and parameters that are sliced by columns."""
    single = built(size)
    states = {
        name: info.initial.sample(1, name, info.value.type.shape, "float64")
        for name, info in single.builder.states.items()
    }
    (expected,) = together([differentiated(single)], [fed(states, 0, size, size)])
    split_axes = {f"{name}/kernel": axis for name, axis in axes.items()}
    graphs, feeds = [], []
    for rank in range(workers):
        start, stop = (size * worker // workers for worker in (rank, rank + 1))
        batch = max(stop - start, 1)
        part = built(batch)
        cuts = split_parameters(SPEC, part, lambda _: split_axes, workers, rank)
        graphs.append(differentiated(split_net(part, cuts, workers, rank, batch, size)))
        pieces = {name: cut.parts.slice_of(states[name], rank, cut.axis) for name, cut in cuts.items()}
        feeds.append(fed({**states, **pieces}, start, stop, size))
    actual = together(graphs, feeds)
    for name, gradient in expected.items():
        parts = [pieces[name] for pieces in actual]
        full = np.concatenate(parts, axis=split_axes[name]) if name in split_axes else sum(parts)
        # sums of some dozen products of values up to 1, in another order
        np.testing.assert_allclose(full, gradient, rtol=0, atol=1e-14 * max(1, np.abs(gradient).max()), err_msg=name)


def exchanges(axes: dict[str, int]) -> list[type]:
    """Return the collectives of the forward pass on two workers."""
    expected = {f"{name}/kernel": axis for name, axis in axes.items()}
    part = built(4)
    result = split_net(part, split_parameters(SPEC, part, lambda _: expected, 2, 0), 2, 0, 4, 8)
    return [type(node.op) for node in Graph(result.losses).nodes() if isinstance(node.op, BlockingCollective)]


def test_elementwise_ops_keep_columns() -> None:
    """The orthogonal penalty reads the whole kernel on each worker; the normalization reads samples."""
    # The first AllGather is of x, the second of the kernel.
    assert exchanges({"fc1": 1, "fc2": 0}) == [AllGather, AllGather, ReduceScatter]
    assert exchanges({"fc1": 1}) == [AllGather, AllToAll]
    assert exchanges({"logits": 0}) == [AllToAll, ReduceScatter]
    follows = {
        splittable_layer.layer: splittable_layer.preceding_kernel
        for splittable_layer in splittable_layers(SPEC, built(4))
    }
    assert follows == {"fc1": None, "fc2": "fc1/kernel", "logits": None}


def test_matrix_read_by_its_own_layer_is_not_split() -> None:
    """Without gradients, splitting saves no messages."""
    net = {**NET, "layers": [{**layer, "trainable": layer["name"] != "fc2"} for layer in NET["layers"]]}
    spec = load_net(net)
    actual = splittable_layers(spec, build(spec, 2, training=True))
    assert [factors.layer for factors in actual] == ["fc1", "logits"]
    assert [(factors.inputs, factors.units, factors.positions) for factors in actual] == [(6, 8, 1), (12, 4, 1)]


def test_parts_are_balanced() -> None:
    parts = AxisPartition.even(10, 4, 2)
    assert (parts.bounds, parts.sizes, parts.own_size, parts.max_size, parts.total) == (
        (0, 2, 5, 7, 10),
        (2, 3, 2, 3),
        2,
        3,
        10,
    )
