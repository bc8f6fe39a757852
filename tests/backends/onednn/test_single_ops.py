"""Kernels of single functions, sums and concatenations: extreme values, NaN, and when they are chosen."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.backends.device_registry import open_device
from netspec.backends.kernel_check import array, bound
from netspec.backends.onednn import primitive_descs
from netspec.backends.onednn.constants import AlgKind, Arg
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.native import OneDnnEngine
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.op_call import OpCall
from netspec.graph.fused import Fused, FusedStep
from netspec.graph.kernel import Kernel, kernel_candidates, kernels_for
from netspec.graph.layout import PLAIN, LayoutSignature
from netspec.graph.op import Array, Op
from netspec.graph.ops.elementwise import Neg
from netspec.graph.ops.reduce import ReduceMean, ReduceSum
from netspec.graph.ops.shape import Concat
from netspec.graph.ops.source import Input
from netspec.graph.ops.special import Gelu
from netspec.graph.ops.unary import Softplus, Tanh
from netspec.graph.types import DType
from netspec.graph.value import Node
from tests.backends.onednn.harness import Run
from tests.backends.onednn.test_kernels import NAME, reasons, typed


@pytest.mark.parametrize("algorithm", [AlgKind.ELTWISE_RELU, AlgKind.ELTWISE_EXP], ids=lambda case: case.name)
def test_the_functions_declined_hide_nan(engine: OneDnnEngine, algorithm: AlgKind) -> None:
    desc = MemoryDesc.strided(engine, (64,))
    y = Run(primitive_descs.eltwise_forward(desc, desc, algorithm), {Arg.SRC: np.full(64, np.nan, np.float32)})[Arg.DST]
    assert not np.isnan(y).any()


@pytest.mark.parametrize("algorithm", [AlgKind.BINARY_MAX, AlgKind.BINARY_MIN], ids=lambda case: case.name)
def test_min_and_max_drop_nan_on_the_left(engine: OneDnnEngine, algorithm: AlgKind) -> None:
    desc = MemoryDesc.strided(engine, (64,))
    operands = {Arg.SRC: np.full(64, np.nan, np.float32), Arg.SRC_1: np.ones(64, np.float32)}
    binary = PrimitiveDesc.make(engine, "binary", algorithm, desc, desc, desc)
    np.testing.assert_array_equal(Run(binary, operands)[Arg.DST], 1)


def test_row_maximum_drops_nan(engine: OneDnnEngine) -> None:
    x = np.ones((4, 64), np.float32)
    x[:, 0] = np.nan
    source, target = (MemoryDesc.strided(engine, shape) for shape in ((4, 64), (4, 1)))
    result = primitive_descs.reduction(source, target, AlgKind.REDUCTION_MAX)
    np.testing.assert_array_equal(Run(result, {Arg.SRC: x})[Arg.DST], 1)


def node_of(op: Op, *shapes: tuple[int, ...]) -> Node:
    return op.call_multi(*(Input(f"x{index}", typed(*shape))() for index, shape in enumerate(shapes)))[0].node


def kernels(node: Node) -> list[Kernel]:
    """Return the kernels of the library that accept the node."""
    types = [value.type for value in node.inputs]
    return [
        kernel
        for kernel in kernels_for(type(node.op), open_device("cpu").kernels)
        if kernel.backend == NAME and kernel.reject_reason(node.op, *types) is None
    ]


def computed(kernel: Kernel, node: Node, x: Array) -> Array:
    """Return the kernel's result for a plain operand."""
    device, kind, signature = open_device("cpu"), node.types[0], LayoutSignature((PLAIN,), (PLAIN,))
    operand, y = array(device, node.inputs[0].type, x), array(device, kind)
    bound(device, kernel, OpCall(node, (x,)), signature, [operand], [y])()
    return y


SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 90, -90, 1e38, -1e38, 1e-30, -1e-30, 0.3, 3e-8], np.float32
)
"""Values include those that overflow or lose their digits in a careless formula. (The library's GELU doubles numbers as
an intermediate result.)"""


def tells_the_same(actual: Array, expected: Array) -> None:
    """Finite values agree, infinite ones are not finite, and NaN stays NaN."""
    finite = np.isfinite(expected)
    np.testing.assert_allclose(actual[finite], expected[finite], rtol=2e-5, atol=2e-7)
    assert not np.isfinite(actual[~finite]).any()
    assert np.isnan(actual[np.isnan(expected)]).all()


@pytest.mark.parametrize("op", [Softplus(), Gelu()], ids=lambda op: op.name)
def test_functions_of_extreme_numbers(engine: object, op: Op) -> None:
    x = np.tile(SPECIAL, 1024)  # long enough for the kernels of long operands
    node = node_of(op, x.shape)
    with np.errstate(all="ignore"):
        expected = op.forward(np, x)
    (kernel,) = kernels(node)
    tells_the_same(computed(kernel, node, x), expected)


@pytest.mark.parametrize("op", [ReduceSum((1,)), ReduceMean((1,))], ids=lambda op: op.name)
def test_nan_spreads_only_in_its_row(engine: object, op: Op) -> None:
    x = np.ones((512, 64), np.float32)
    rows = np.arange(64)
    x[rows * 8, rows] = np.nan
    node = node_of(op, x.shape)
    (kernel,) = kernels(node)
    np.testing.assert_array_equal(computed(kernel, node, x), op.forward(np, x))


def test_concatenation_rounds_its_operands_as_its_result(engine: object) -> None:
    node, narrow = node_of(Concat(1), (2, 3), (2, 4)), PLAIN.with_dtype(DType.BFLOAT16)
    (kernel,) = kernels(node)
    assert kernel.low_precision_signature(node, LayoutSignature((narrow, PLAIN), (narrow,))) == LayoutSignature(
        (narrow, narrow), (narrow,)
    )
    assert kernel.low_precision_signature(node, LayoutSignature((narrow, PLAIN), (PLAIN,))) == LayoutSignature(
        (PLAIN, PLAIN), (PLAIN,)
    )


CHOSEN = {
    "long function": (Gelu(), (128, 64), "onednn:LongEltwiseKernel"),
    "short function": (Gelu(), (64, 64), "numba:ElementwiseKernel"),
    "cheap function": (Tanh(), (128, 64), "numba:ElementwiseKernel"),
    "many short rows": (ReduceSum((-1,)), (512, 64), "onednn:ShortRowReductionKernel"),
    "few rows": (ReduceSum((-1,)), (64, 64), "numba:ReduceKernel"),
    "long rows": (ReduceSum((-1,)), (64, 1024), "numba:ReduceKernel"),
    "planes": (ReduceMean((2, 3)), (64, 16, 8, 8), "numba:ReduceKernel"),
}


@pytest.mark.parametrize(("op", "shape", "label"), CHOSEN.values(), ids=CHOSEN)
def test_is_chosen_for_sizes_measured_faster(engine: object, op: Op, shape: tuple[int, ...], label: str) -> None:
    device = open_device("cpu")
    if "numba" not in device.kernels:
        pytest.skip("without numba there is no choice")
    assert kernel_candidates(node_of(op, shape), device.kernels).kernels[0].label == label


def test_declines_fused_groups(engine: object) -> None:
    group = Fused(1, (FusedStep(Gelu(), (0,)), FusedStep(Neg(), (1,))), (2,))
    assert reasons(group, typed(128, 64)) == []
