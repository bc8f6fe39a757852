from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from netspec.graph.autodiff import gradients, pullback
from netspec.graph.graph import topological_order
from netspec.graph.op import NoGradientError, Op
from netspec.graph.ops.elementwise import Cast, Greater, Where
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Fill, Input
from netspec.graph.ops.unary import Exp, Relu
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, Value, in_scope
from tests.interpret import evaluate


def variable(label: str, *shape: int, dtype: DType = DType.FLOAT64) -> Value:
    return Input(label, TensorType(shape, dtype))()


def test_gradient_of_an_unused_value_is_zero():
    x, unused = variable("x", 3), variable("unused", 2)
    _, gradient = gradients(ReduceSum()(x), [x, unused])
    assert isinstance(gradient.op, Fill)
    np.testing.assert_array_equal(evaluate([gradient], {})[0], np.zeros(2))


def test_gradients_of_all_users_of_a_value_are_summed():
    x = variable("x", 2)
    (gradient,) = gradients(ReduceSum()(x * x + x * 3.0 - Exp()(x)), [x])
    np.testing.assert_allclose(
        evaluate([gradient], {"x": np.array([0.5, -1.0])})[0], [4 - np.exp(0.5), 1 - np.exp(-1)], rtol=1e-15
    )


def test_gradient_of_a_value_that_a_node_reads_twice():
    x = variable("x")
    (gradient,) = gradients(x * x, [x])
    assert evaluate([gradient], {"x": np.float64(3)})[0] == 6


def test_gradient_of_the_loss_by_itself_is_one():
    x = variable("x")
    assert evaluate(gradients(x, [x]), {})[0] == 1


def test_gradients_stop_at_values_in_wrt():
    """d/dh of f(h) does not differentiate h, even if h is computed from another value in `wrt`."""
    x = variable("x", 2)
    h = Exp()(x)
    by_x, by_h = gradients(ReduceSum()(h * h), [x, h])
    array = np.array([0.1, 0.2])
    values = evaluate([by_h], {"x": array})
    np.testing.assert_allclose(values[0], 2 * np.exp(array), rtol=1e-15)
    assert isinstance(by_x.op, Fill), "all of x's influence goes through h, which is in `wrt`"


def test_no_gradient_flows_through_integers_and_conditions():
    x = variable("x", 3)
    truncated = Cast(DType.FLOAT64)(Cast(DType.INT32)(x))
    selected = Where()(Greater()(x, x * 2.0), x * 3.0, x * 5.0)
    (gradient,) = gradients(ReduceSum()(selected + truncated), [x])
    np.testing.assert_array_equal(evaluate([gradient], {"x": np.array([-1.0, 1.0, 2.0])})[0], [3, 5, 5])


def test_gradient_of_a_broadcast_operand_is_summed():
    x, b = variable("x", 4, 3), variable("b", 3)
    dx, db = gradients(ReduceSum()(x * b), [x, b])
    feeds = {"x": np.arange(12.0).reshape(4, 3), "b": np.array([1.0, 2.0, 3.0])}
    by_x, by_b = evaluate([dx, db], feeds)
    np.testing.assert_array_equal(by_x, np.tile(feeds["b"], (4, 1)))
    np.testing.assert_array_equal(by_b, feeds["x"].sum(0))


def test_backward_graph_has_no_unneeded_nodes():
    x, w = variable("x", 2, 3), variable("w", 2, 3)
    (by_w,) = gradients(ReduceSum()(Exp()(x) * w), [w])
    # The gradient by w is e^x · 1: the exponential is not differentiated.
    backward = [node for node in topological_order([by_w]) if node.scope.phase == "backward"]
    assert not any(isinstance(node.op, Exp) for node in backward)


def test_gradient_nodes_run_in_the_backward_phase_of_their_layer():
    x = variable("x", 3)
    with in_scope(Scope("act", "Activation")):
        y = Relu()(x)
    (gradient,) = gradients(ReduceSum()(y), [x])
    assert (gradient.node.scope.layer, gradient.node.scope.phase) == ("act", "backward")


def test_pullback_skips_results_without_gradient():
    x = variable("x", 3)
    y, z = Exp()(x), x * 2.0
    assert pullback([y, z], [None, None], [x]) == [None]
    (only,) = pullback([y, z], [None, Fill(1.0, z.type)()], [x])
    assert only is not None
    np.testing.assert_array_equal(evaluate([only], {"x": np.zeros(3)})[0], [2, 2, 2])


def test_gradients_require_a_scalar_loss():
    x = variable("x", 3)
    with pytest.raises(ValueError, match="must be a scalar"):
        gradients(x, [x])


@dataclass(frozen=True)
class Opaque(Op):
    """An op without a gradient."""

    def infer(self, x: TensorType) -> TensorType:
        return x


def test_op_without_gradient_raises():
    x = variable("x", 3)
    with pytest.raises(NoGradientError, match="Opaque has no gradient"):
        gradients(ReduceSum()(Opaque()(x)), [x])
