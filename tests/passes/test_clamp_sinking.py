"""A clamp moves behind a selection: equal values and gradients, but less stored memory."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.backends.device_registry import NullDevice
from netspec.compile import make_plan
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.ops.pooling import MaxPool
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Relu, Tanh
from netspec.graph.ops.window import Window
from netspec.graph.value import Value
from netspec.passes.base import run_passes
from netspec.passes.clamp_sinking import SinkClamps
from tests.interpret import run
from tests.passes.graphs import same_bits, typed

SHAPE = (4, 3, 9, 9)
X = Input("x", typed(SHAPE))()
HALVES = Window((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))
THIRDS = Window((3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1))
SCATTERED = Window((2, 2), (1, 1), ((4, 4), (4, 4)), (8, 8))
"""A window that may contain only padding: then the largest element is -inf, of which ReLU would make 0."""


def sunk(graph: Graph) -> Graph:
    return run_passes(graph, [SinkClamps()], check=True)


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes() if not node.op.traits.source]


def pooled(window: Window) -> Value:
    return MaxPool(window).call_multi(Relu()(X))[0]


def test_relu_sinks_below_max_pooling() -> None:
    assert ops(Graph({"y": pooled(HALVES)})) == ["Relu", "MaxPool"]
    assert ops(sunk(Graph({"y": pooled(HALVES)}))) == ["MaxPool", "Relu"]
    stacked = MaxPool(HALVES).call_multi(pooled(THIRDS))[0]
    assert ops(sunk(Graph({"y": stacked}))) == ["MaxPool", "MaxPool", "Relu"]


def test_clamps_that_must_not_sink() -> None:
    relu = Relu()(X)
    y, indices = MaxPool(HALVES).call_multi(relu)
    read_elsewhere = Graph({"y": y, "z": Tanh()(relu)})
    fetched = Graph({"y": y, "z": relu})
    with_places = Graph({"y": y, "places": indices + indices})
    of_padding = Graph({"y": pooled(SCATTERED)})
    no_clamp = Graph({"y": MaxPool(HALVES).call_multi(Tanh()(X))[0]})
    for graph in (read_elsewhere, fetched, with_places, of_padding, no_clamp):
        assert ops(sunk(graph)) == ops(graph)


@pytest.mark.parametrize("window", [HALVES, THIRDS], ids=["apart", "overlapping"])
def test_values_and_gradients_keep_their_bits(window: Window) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-3, 3, SHAPE).astype(np.float32)  # many equal elements, and many zeros
    weight = State("w", typed(pooled(window).shape))()
    weights = random.standard_normal(weight.shape, dtype=np.float32)

    def results(graph: Graph) -> dict[str, np.ndarray]:
        (gradient,) = gradients(ReduceSum()(graph.outputs["y"] * weight), [X])
        return run(Graph({**graph.outputs, "dx": gradient}), {"x": x}, {"w": weights})[0]

    graph = Graph({"y": pooled(window)})
    expected, actual = results(graph), results(sunk(graph))
    assert np.count_nonzero(expected["dx"]) > 10
    same_bits(actual, expected)


def test_pooled_activation_is_not_stored() -> None:
    """The gradient needs only the indices and the small result; before the pass, it needed the large one."""
    x, w = Input("x", typed((8, 8, 32, 32)))(), State("w", typed((8, 8, 32, 32)))()

    def stored_activations(graph: Graph) -> int:
        """Bytes in use when the guard is read."""
        loss = ReduceSum()(graph.outputs["y"])
        (gradient,) = gradients(loss, [w])
        plan = make_plan(Graph({}, {"w": w - gradient}, guard=loss), NullDevice())
        return plan.memory.live_bytes[plan.before_guard_count]

    graph = Graph({"y": MaxPool(HALVES).call_multi(Relu()(x * w))[0]})
    large, small = x.type.nbytes, x.type.nbytes // 4
    assert stored_activations(graph) >= large + large + small, "x, for the gradient; ReLU's result; the places"
    assert stored_activations(sunk(graph)) < large + 3 * small
