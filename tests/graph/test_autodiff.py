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


def test_what_the_loss_does_not_depend_on_has_gradient_zero():
    x, unused = variable("x", 3), variable("unused", 2)
    _, gradient = gradients(ReduceSum()(x), [x, unused])
    assert isinstance(gradient.op, Fill)
    np.testing.assert_array_equal(evaluate([gradient], {})[0], np.zeros(2))


def test_gradients_of_a_value_with_many_users_add_up():
    x = variable("x", 2)
    (gradient,) = gradients(ReduceSum()(x * x + x * 3.0 - Exp()(x)), [x])
    np.testing.assert_allclose(
        evaluate([gradient], {"x": np.array([0.5, -1.0])})[0], [4 - np.exp(0.5), 1 - np.exp(-1)], rtol=1e-15
    )


def test_a_value_can_be_used_twice_by_one_node():
    x = variable("x")
    (gradient,) = gradients(x * x, [x])
    assert evaluate([gradient], {"x": np.float64(3)})[0] == 6


def test_the_loss_itself_has_gradient_one():
    x = variable("x")
    assert evaluate(gradients(x, [x]), {})[0] == 1


def test_gradients_stop_at_the_values_asked_for():
    """d/dh of f(h) does not look behind h, even where h is computed from another value asked for."""
    x = variable("x", 2)
    h = Exp()(x)
    by_x, by_h = gradients(ReduceSum()(h * h), [x, h])
    array = np.array([0.1, 0.2])
    values = evaluate([by_h], {"x": array})
    np.testing.assert_allclose(values[0], 2 * np.exp(array), rtol=1e-15)
    assert isinstance(by_x.op, Fill), "all of x's influence goes through h, which was asked for"


def test_nothing_flows_through_whole_numbers_and_conditions():
    x = variable("x", 3)
    whole = Cast(DType.FLOAT64)(Cast(DType.INT32)(x))
    chosen = Where()(Greater()(x, x * 2.0), x * 3.0, x * 5.0)
    (gradient,) = gradients(ReduceSum()(chosen + whole), [x])
    np.testing.assert_array_equal(evaluate([gradient], {"x": np.array([-1.0, 1.0, 2.0])})[0], [3, 5, 5])


def test_broadcast_operands_get_their_gradient_summed():
    x, b = variable("x", 4, 3), variable("b", 3)
    dx, db = gradients(ReduceSum()(x * b), [x, b])
    feeds = {"x": np.arange(12.0).reshape(4, 3), "b": np.array([1.0, 2.0, 3.0])}
    by_x, by_b = evaluate([dx, db], feeds)
    np.testing.assert_array_equal(by_x, np.tile(feeds["b"], (4, 1)))
    np.testing.assert_array_equal(by_b, feeds["x"].sum(0))


def test_only_what_was_asked_for_is_computed():
    x, w = variable("x", 2, 3), variable("w", 2, 3)
    (by_w,) = gradients(ReduceSum()(Exp()(x) * w), [w])
    # The gradient by w is e^x · 1: nothing of it differentiates the exponential.
    backward = [node for node in topological_order([by_w]) if node.scope.phase == "backward"]
    assert not any(isinstance(node.op, Exp) for node in backward)


def test_gradient_nodes_run_in_the_backward_phase_of_their_layer():
    x = variable("x", 3)
    with in_scope(Scope("act", "Activation")):
        y = Relu()(x)
    (gradient,) = gradients(ReduceSum()(y), [x])
    assert (gradient.node.scope.layer, gradient.node.scope.phase) == ("act", "backward")


def test_pullback_leaves_out_what_has_no_gradient_given():
    x = variable("x", 3)
    y, z = Exp()(x), x * 2.0
    assert pullback([y, z], [None, None], [x]) == [None]
    (only,) = pullback([y, z], [None, Fill(1.0, z.type)()], [x])
    assert only is not None
    np.testing.assert_array_equal(evaluate([only], {"x": np.zeros(3)})[0], [2, 2, 2])


def test_the_loss_must_be_a_scalar():
    x = variable("x", 3)
    with pytest.raises(ValueError, match="must be a scalar"):
        gradients(x, [x])


@dataclass(frozen=True)
class Opaque(Op):
    """An op that forgot its gradient."""

    def infer(self, x: TensorType) -> TensorType:
        return x


def test_an_op_without_a_gradient_says_so():
    x = variable("x", 3)
    with pytest.raises(NoGradientError, match="Opaque has no gradient"):
        gradients(ReduceSum()(Opaque()(x)), [x])
