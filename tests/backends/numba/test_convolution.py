"""Convolutions with the batch innermost: which they accept, and that they agree with the reference."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from netspec.backends.backend import unavailable_reasons
from netspec.backends.numba.kernels import convolution
from netspec.backends.numba.kernels.convolution import BATCH_LAST, reject_reason
from netspec.compile import Compiler, ProgramKind
from netspec.graph.fused import EpilogueFused, FusedStep
from netspec.graph.kernel import kernel_candidates
from netspec.graph.op import Op
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.pooling import AveragePool, AveragePoolGrad, MaxPool, MaxPoolGather, MaxPoolGrad
from netspec.graph.ops.unary import Relu
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from tests.backends.numba.run import by_numba, by_reference, node_of

RANDOM = np.random.default_rng(7)


def window(*size: int, stride: int = 1, pad: int = 0) -> Window:
    return Window(size, (stride,) * 2, ((pad, pad),) * 2, (1, 1))


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, dtype=np.float32)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable the kernels on CPUs with narrower vectors, on which they are only slower."""
    monkeypatch.setattr(convolution, "has_wide_vectors", lambda: True)


SHAPES = [
    # batch, channels, filters, height, width, size of the window
    (64, 1, 20, 9, 8, (5, 5)),
    (64, 20, 50, 7, 6, (5, 5)),
    (128, 4, 6, 5, 9, (3, 2)),
    (192, 6, 5, 4, 4, (1, 1)),
    (64, 5, 12, 3, 6, (3, 6)),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agrees_with_the_reference(shape: tuple[int, int, int, int, int, tuple[int, int]]) -> None:
    batch, channels, filters, height, width, size = shape
    conv = Conv(window(*size))
    x, w, bias = normal(batch, channels, height, width), normal(filters, channels, *size), normal(filters, 1, 1)
    (y,) = by_reference(conv, x, w)
    dy = normal(*y.shape)
    calls: list[tuple[Op, tuple[np.ndarray, ...]]] = [
        (conv, (x, w)),
        (EpilogueFused(conv, 2, (FusedStep(Add(), (0, 1)),)), (x, w, bias)),
        (EpilogueFused(conv, 2, (FusedStep(Add(), (1, 0)), FusedStep(Relu(), (2,)))), (x, w, bias)),
        (ConvWeightGrad(conv, TensorType(w.shape, DType.FLOAT32)), (dy, x)),
    ]
    if channels > 1:
        calls.append((ConvInputGrad(conv, TensorType(x.shape, DType.FLOAT32)), (dy, w)))
    for op, operands in calls:
        assert kernel_candidates(node_of(op, *operands), ["numba"]).kernels[0].rank == 20
        (exact,) = by_reference(op, *(operand.astype(np.float64) for operand in operands))
        (actual,), (repeated,) = by_numba(op, *operands), by_numba(op, *operands)
        # Sums of up to 10,000 products of normal values (about 100) in float32 are off by some 1e-6 of the largest.
        np.testing.assert_allclose(actual, exact, rtol=1e-5, atol=3e-6 * float(np.abs(exact).max()))
        np.testing.assert_array_equal(actual, repeated)


def test_nan_stays_nan() -> None:
    conv = Conv(window(3, 3))
    x, w, bias = normal(64, 5, 5, 5), normal(20, 5, 3, 3), normal(20, 1, 1)
    x[7, 2, 1, 1] = np.nan
    (y,) = by_numba(EpilogueFused(conv, 2, (FusedStep(Add(), (0, 1)), FusedStep(Relu(), (2,)))), x, w, bias)
    assert np.isnan(y[7, :, :2, :2]).all()
    assert np.isfinite(np.delete(y, 7, 0)).all()
    dy = normal(64, 20, 3, 3)
    (dw,) = by_numba(ConvWeightGrad(conv, TensorType(w.shape, DType.FLOAT32)), dy, x)
    assert np.isnan(dw[:, 2, 0, 0]).all()
    dy[3, 1, 0, 0] = np.nan
    (dx,) = by_numba(ConvInputGrad(conv, TensorType(x.shape, DType.FLOAT32)), dy, w)
    assert np.isnan(dx[3, :, :3, :3]).all()
    assert np.isfinite(dx[3, :, 3:, :]).all()


@pytest.mark.parametrize(
    ("batch", "channels", "filters", "conv", "why"),
    [
        (64, 20, 50, Conv(window(5, 5)), None),
        (100, 20, 50, Conv(window(5, 5)), "the batch size is not a multiple of 64"),
        (64, 20, 48, Conv(window(5, 5)), "48 filters fill vectors of 16"),
        (64, 7, 50, Conv(window(5, 5)), "no tile divides 50 filters and 7 channels"),
        (64, 20, 50, Conv(window(5, 5, pad=2)), "only without strides, dilation and padding"),
        (64, 20, 50, Conv(window(5, 5, stride=2)), "only without strides, dilation and padding"),
        (64, 20, 50, Conv(window(5, 5), groups=10), "only for images, without groups"),
    ],
)
def test_a_convolution_and_its_gradients_are_declined_together(
    batch: int, channels: int, filters: int, conv: Conv, why: str | None
) -> None:
    x = TensorType((batch, channels, 12, 12), DType.FLOAT32)
    w = TensorType((filters, channels // conv.groups, *conv.window.size), DType.FLOAT32)
    y = conv.infer(x, w)
    assert reject_reason(conv, x, w) == why
    assert convolution.ConvolutionBatchLastKernel().reject_reason(conv, x, w) == why
    assert convolution.ConvolutionInputGradientBatchLastKernel().reject_reason(ConvInputGrad(conv, x), y, w) == why
    assert convolution.ConvolutionWeightGradientBatchLastKernel().reject_reason(ConvWeightGrad(conv, w), y, x) == why


@pytest.mark.skipif(bool(unavailable_reasons(["onednn"])), reason="no other kernel takes bfloat16")
@pytest.mark.skipif(not convolution.has_wide_vectors(), reason="numba's convolution kernels need AVX-512")
def test_a_bfloat16_kernel_is_cheaper_and_appears_in_the_plan() -> None:
    net = load_net(Path(__file__).parents[3] / "model_zoo/lenet_mnist/net.yaml")
    solver = SGD.model_validate({"type": "SGD"})
    for dtype, backend in ((DType.FLOAT32, "numba"), (DType.BFLOAT16, "onednn")):
        plan = Compiler(net, solver=solver, device="null", dtype=dtype).plan(ProgramKind.TRAIN, 64)
        chosen = {node.op.name: choice for node, choice in plan.choices.items() if node.scope.layer == "conv2"}
        assert {chosen[name].kernel.backend for name in ("Conv+Add", "ConvInputGrad", "ConvWeightGrad")} == {backend}
    reasons = dict(chosen["Conv+Add"].rejected)
    (reason,) = (reason for label, reason in reasons.items() if label.startswith("numba:ConvolutionBatchLastKernel"))
    assert re.fullmatch(r"is rated slower: [\d,.]+ µs(?: and [\d,.]+ µs of copies)? to [\d,.]+ µs.*", reason)


def test_narrow_vectors_are_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "has_wide_vectors", lambda: False)
    x, w = TensorType((64, 20, 12, 12), DType.FLOAT32), TensorType((50, 20, 5, 5), DType.FLOAT32)
    assert reject_reason(Conv(window(5, 5)), x, w) == "the CPU has no AVX-512"


IMAGES = normal(64, 3, 8, 6)
APART, OVERLAPPING = window(2, 2, stride=2), window(3, 3, stride=2, pad=1)
PLACES = {window: by_reference(MaxPool(window), IMAGES) for window in (APART, OVERLAPPING)}


def poolings(window: Window) -> list[tuple[Op, tuple[np.ndarray, ...]]]:
    """All poolings with a window, and their operands."""
    actual = PLACES[window]
    return [
        (MaxPool(window), (IMAGES,)),
        (MaxPoolGrad(window, IMAGES.shape), tuple(actual)),
        (MaxPoolGather(window), (IMAGES, actual[1])),
        (AveragePool(window), (IMAGES,)),
        (AveragePoolGrad(window, IMAGES.shape), (actual[0],)),
    ]


@pytest.mark.parametrize(
    ("op", "operands"),
    [*poolings(OVERLAPPING), *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in poolings(APART))],
    ids=lambda value: repr(value) if isinstance(value, Op) else "",
)
@pytest.mark.slow
def test_poolings_run_along_the_batch_if_it_is_innermost(op: Op, operands: tuple[np.ndarray, ...]) -> None:
    node = node_of(op, *operands)
    signature = kernel_candidates(node, ["numba"]).kernels[0].layouts(node, [BATCH_LAST] * len(operands))
    assert {*signature.inputs, *signature.outputs} == {BATCH_LAST}
    result = by_numba(op, *operands, layouts=[BATCH_LAST] * len(operands))
    for array, expected in zip(result, by_reference(op, *operands), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-6)
