"""Mixed precision: which values may be stored in 16 bits, which must not, and that no conversion is superfluous."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.backends.device_registry import CpuDevice, open_device
from netspec.backends.onednn.library import open_library
from netspec.backends.program import Program
from netspec.backends.states import States
from netspec.compile import Compiler, ProgramKind, make_plan
from netspec.errors import InputError
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.fused import EpilogueFused
from netspec.graph.graph import Graph
from netspec.graph.ops.convolution import Conv, ConvTranspose
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.layer_normalization import LayerNormalization
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.shape import Reorder, Reshape
from netspec.graph.ops.softmax import Softmax
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Relu, Tanh
from netspec.graph.ops.window import Window
from netspec.graph.types import DType
from netspec.graph.value import Scope, Value, in_scope
from netspec.passes.mixed_precision import narrowable_values
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from tests.passes.graphs import typed

NET: dict[str, Any] = {
    "netspec": 1,
    "inputs": {"image": {"shape": [3, 8, 8]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [
        {"name": "conv1", "type": "Conv2D", "filters": 8, "kernel_size": 3, "padding": "same", "use_bias": False},
        {"name": "norm", "type": "BatchNormalization"},
        {"name": "act", "type": "Activation", "activation": "relu"},
        {"name": "conv2", "type": "Conv2D", "filters": 8, "kernel_size": 3, "padding": "same"},
        {"name": "sum", "type": "Add", "from": ["conv2", "act"]},
        {"name": "pool", "type": "MaxPooling2D"},
        {"name": "drop", "type": "Dropout", "rate": 0.5},
        {"name": "flat", "type": "Flatten"},
        {"name": "logits", "type": "Dense", "units": 5, "kernel_regularizer": {"type": "L2", "l2": 0.01}},
    ],
    "outputs": ["logits"],
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
}


@pytest.fixture(scope="module")
def plan() -> ExecutionPlan:
    """The plan of a training step in bfloat16 with the kernels of the CPU."""
    return training_plan(DType.BFLOAT16, 4)


LIBRARY = open_library()
needs_narrow_products = pytest.mark.skipif(
    LIBRARY is not None and "avx512" not in LIBRARY.instruction_set,
    reason="oneDNN multiplies in 16 bits only with AVX-512, and its float32 kernels are the fastest here",
)


def training_plan(precision: DType, batch_size: int) -> ExecutionPlan:
    solver = SGD(type="SGD", momentum=0.9)
    compiler = Compiler(load_net(NET), solver=solver, dtype=precision, device=open_device("null"))
    return compiler.plan(ProgramKind.TRAIN, batch_size)


def x(*shape: int) -> Value:
    return Input("x", typed(shape))()


def test_values_around_products_may_be_narrowed() -> None:
    operand = x(4, 6)
    product = MatMul()(operand, State("w", typed((6, 5)))())
    flat = Reshape((20,))(Relu()(product))
    last = MatMul()(Reshape((1, 20))(flat), State("v", typed((20, 5)))())
    assert narrowable_values(Graph({"y": last})) == {operand, product, *flat.inputs, flat, *last.inputs[:1]}


def test_values_around_a_transposed_convolution_may_be_narrowed() -> None:
    operand, conv = x(2, 3, 4, 4), Conv(Window((3, 3), (2, 2), ((1, 0), (1, 0)), (1, 1)))
    upsampled = ConvTranspose(conv, typed((2, 5, 8, 8)))(operand, State("w", typed((3, 5, 3, 3)))())
    reader = Conv(conv.window)(upsampled, State("v", typed((1, 5, 3, 3)))())
    assert narrowable_values(Graph({"y": reader})) == {operand, upsampled}


def test_input_with_other_readers_is_not_narrowed() -> None:
    operand = x(5, 5)
    product = MatMul()(operand, operand)
    assert narrowable_values(Graph({"y": MatMul()(product, product), "z": ReduceSum()(operand)})) == {product}


def test_operands_of_exact_ops_are_not_narrowed() -> None:
    product = MatMul()(x(5, 5), State("w", typed((5, 5)))())
    assert product not in narrowable_values(Graph({"y": MatMul()(Softmax()(product), product.inputs[1])}))


def test_results_and_their_operands_are_not_narrowed() -> None:
    product = MatMul()(x(5, 5), State("w", typed((5, 5)))())
    assert product not in narrowable_values(Graph({"y": Reshape((25,))(Tanh()(product))}))
    assert product not in narrowable_values(Graph({}, {"w": product * 0.1}))


@pytest.mark.parametrize("scope", [Scope("loss", noun="loss"), Scope("dense", phase="update")])
def test_losses_updates_and_their_operands_are_not_narrowed(scope: Scope) -> None:
    product = MatMul()(x(5, 5), State("w", typed((5, 5)))())
    with in_scope(scope):
        other = MatMul()(Relu()(product), State("v", typed((5, 5)))())
    narrowable = narrowable_values(Graph({"y": ReduceSum()(other)}))
    assert narrowable.isdisjoint({product, other, other.inputs[0]})


def test_row_statistics_are_not_narrowed() -> None:
    rows = MatMul()(x(4, 6), State("w", typed((6, 5)))())
    gamma = State("gamma", typed((5,)))()
    y, mean, variance = LayerNormalization().call_multi(rows, gamma, gamma)
    narrowable = narrowable_values(Graph({"y": MatMul()(y, State("v", typed((5, 5)))()), "m": -mean, "v": -variance}))
    assert y in narrowable
    assert narrowable.isdisjoint({mean, variance})


def test_states_stay_float32(plan: ExecutionPlan) -> None:
    assert {value.dtype for value in plan.graph.states().values()} == {DType.FLOAT32}
    assert all(plan.layouts[value].dtype is None for value in plan.graph.updates.values())


@needs_narrow_products
def test_activations_and_gradients_are_stored_in_16_bits_but_not_the_loss(plan: ExecutionPlan) -> None:
    large = [
        value for node in plan.order for value in node.outputs if value.dtype == DType.FLOAT32 and len(value.shape) == 4
    ]
    large = [value for value in large if value.shape[0] == 4 and not value.op.traits.source]
    wide = [value for value in large if plan.layouts[value].dtype is None]
    assert {value.op.name for value in wide if not isinstance(value.op, Reorder)} <= {"RandomUniform"}
    losses = [value for node in plan.order if node.scope.noun == "loss" for value in node.outputs]
    assert losses
    reread = {value for node in plan.order if isinstance(node.op, Reorder) for value in node.outputs}
    assert all(plan.layouts[value].dtype is None for value in losses if value not in reread)


@needs_narrow_products
def test_operands_of_float32_kernels_are_not_narrowed(plan: ExecutionPlan) -> None:
    """No copy converts a 16-bit value to float32, since it could have been stored in float32."""
    for node in plan.order:
        if isinstance(node.op, Reorder) and plan.layouts[node.inputs[0]].dtype is not None:
            assert plan.layouts[node.outputs[0]].dtype == plan.layouts[node.inputs[0]].dtype, node


def test_readers_share_a_conversion(plan: ExecutionPlan) -> None:
    conversions = [
        (node.inputs[0], plan.layouts[node.outputs[0]]) for node in plan.order if isinstance(node.op, Reorder)
    ]
    assert len(conversions) == len(set(conversions))


@needs_narrow_products
def test_memory_plan_uses_stored_types(plan: ExecutionPlan) -> None:
    for value, storage in plan.memory.storage.items():
        assert storage.size >= plan.layouts[value].nbytes(value.type)
    # With 4 samples, oneDNN's padding of channels to 16 may take more memory than 16 bits save.
    narrow, wide = (training_plan(precision, 16).memory for precision in (DType.BFLOAT16, DType.FLOAT32))
    assert narrow.lower_bound < wide.lower_bound


def test_fused_ops_compute_in_float32() -> None:
    """If x·w were rounded to 8 bits before the addition, which nearly cancels it, all digits would be lost."""
    w, far = State("w", typed((1, 1)))(), State("far", typed((8, 1)))()
    y = Add()(MatMul()(Reshape((8, 1))(x(8)), w), far)
    graph = Graph({"y": MatMul()(y, w)})
    device = CpuDevice()
    plan = make_plan(graph, device, DType.BFLOAT16)
    if not any(isinstance(node.op, EpilogueFused) for node in plan.order):
        pytest.skip("no kernel here adds within the product")
    states = States({"w": w.type, "far": far.type}, device)
    states.assign("w", np.ones((1, 1)))
    states.assign("far", np.full((8, 1), -1024.0))
    (actual,) = Program(plan, device, states)({"x": np.arange(8) + 1024.0 + 0.0}).values()
    exact = np.array([1024.0 + k for k in range(8)], np.float32)
    rounded = exact.astype("bfloat16").astype(np.float32)  # the operand is rounded, but not the product
    np.testing.assert_array_equal(actual[:, 0], rounded - 1024.0)


def test_device_without_the_type_rejects_the_precision() -> None:
    device = open_device("reference")
    device.low_precision_dtypes = ()
    with pytest.raises(InputError, match="does not compute in bfloat16"):
        Compiler(load_net(NET), dtype=DType.BFLOAT16, device=device)
