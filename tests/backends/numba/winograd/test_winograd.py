"""Winograd convolutions: their matrices are right; which convolutions they accept, and their rounding errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.backends import openmp
from netspec.backends.device_registry import open_device
from netspec.backends.numba.kernels import convolution
from netspec.backends.numba.winograd import kernels, tile_selection, tiling
from netspec.backends.numba.winograd.matrices import MinimalFilter
from netspec.errors import InputError
from netspec.graph.execution_plan import align_up
from netspec.graph.fused import EpilogueFused, FusedStep
from netspec.graph.kernel import Buffers, kernels_for
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.unary import Relu
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.schema.specs.train import TrainSpec
from netspec.tools.specs import load_spec
from tests.backends.numba.run import DEVICE, by_reference, node_of, placed

RANDOM = np.random.default_rng(11)
FILTERINGS = [MinimalFilter(2, 3), MinimalFilter(4, 3), MinimalFilter(2, 5)]


def conv(taps: int, *pads: tuple[int, int], stride: int = 1, groups: int = 1) -> Conv:
    return Conv(Window((taps,) * 2, (stride,) * 2, pads or ((0, 0),) * 2, (1, 1)), groups)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def kind(array: np.ndarray) -> TensorType:
    return TensorType(array.shape, DType.FLOAT32)


def by_winograd(op: Op, *operands: np.ndarray) -> np.ndarray:
    node = node_of(op, *operands)
    (kernel,) = (kernel for kernel in kernels_for(type(op), ["winograd"]))
    assert kernel.reject_reason(op, *(value.type for value in node.inputs)) is None
    signature = kernel.layouts(node, [PLAIN] * len(operands))
    inputs = [lay(array, layout) for array, layout in zip(operands, signature.inputs, strict=True)]
    result = placed(np.full(node.types[0].shape, np.nan, np.float32), signature.outputs[0])
    workspace: Any = DEVICE.allocate(align_up(kernel.workspace(node, signature)))
    workspace[...] = 255  # NaN, to notice reads of memory that was not written
    kernel.bind(node, Buffers(tuple(inputs), (result,), signature, workspace))()
    return np.array(result)


def lay(array: np.ndarray, layout: Layout) -> Any:
    """Return an operand in the layout of the kernel."""
    if layout.opaque is None:
        return placed(array, layout)
    result = DEVICE.view(DEVICE.allocate(align_up(layout.nbytes(kind(array)))), 0, kind(array), layout)
    (transform,) = kernels_for(Reorder, ["winograd"])
    reorder = node_of(Reorder(PLAIN, layout), array)
    transform.bind(reorder, Buffers((placed(array, PLAIN),), (result,), LayoutSignature((PLAIN,), (layout,))))()
    return result


def error(actual: np.ndarray, exact: np.ndarray) -> float:
    """Return the norm of the difference, divided by that of the exact result."""
    return float(np.linalg.norm(actual - exact) / np.linalg.norm(exact))


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Accept small convolutions, and CPUs with narrower vectors, on which the kernels are only slower."""
    monkeypatch.setattr(convolution, "has_wide_vectors", lambda: True)
    monkeypatch.setattr(tile_selection, "GAIN", 0.0)
    tile_selection.best_filter.cache_clear()
    yield
    tile_selection.best_filter.cache_clear()


@pytest.mark.parametrize("minimal", FILTERINGS, ids=str)
def test_the_matrices_filter_with_a_multiplication_for_each_point(minimal: MinimalFilter) -> None:
    x, w = RANDOM.standard_normal(minimal.size), RANDOM.standard_normal(minimal.taps)
    data, kernel, result = (np.array(matrix) for matrix in (minimal.data, minimal.kernel, minimal.result))
    np.testing.assert_allclose(result @ ((kernel @ w) * (data @ x)), np.correlate(x, w), rtol=1e-13, atol=1e-13)
    for exact in (data, result):
        np.testing.assert_array_equal(exact.astype(np.float32), exact)


SHAPES = [
    # batch, channels, filters, height, width, taps, padding: equal tiles, partial tiles, single rows, and all numbers
    # of adjacent vectors
    (2, 16, 32, 8, 8, 3, ((1, 1), (1, 1))),
    (3, 32, 48, 7, 10, 3, ((0, 0), (0, 0))),
    (1, 48, 80, 3, 9, 3, ((2, 0), (0, 2))),
    (2, 64, 64, 6, 5, 5, ((2, 2), (2, 2))),
    (1, 16, 96, 9, 6, 5, ((0, 3), (4, 1))),
    (2, 16, 112, 5, 4, 3, ((1, 2), (3, 1))),
    (5, 96, 16, 6, 6, 3, ((1, 1), (1, 1))),
]


FAST = {(SHAPES[0], True), (SHAPES[2], False)}
"""Shapes, and whether blocks are small, of the cases that do not wait for `make test-exhaustive`."""


@pytest.mark.parametrize(
    ("shape", "small"),
    [
        pytest.param(
            shape,
            small,
            marks=() if (shape, small) in FAST else pytest.mark.exhaustive,
            id=f"{shape}-{'in blocks' if small else 'whole'}",
        )
        for shape in SHAPES
        for small in (False, True)
    ],
)
@pytest.mark.slow
def test_agrees_with_exact_sums(
    shape: tuple[int, int, int, int, int, int, Any], small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, channels, filters, height, width, taps, pads = shape
    if small:  # tiles of 4 x 4, several blocks and parts
        monkeypatch.setattr(tile_selection, "TILES", {3: (MinimalFilter(2, 3),), 5: (MinimalFilter(2, 5),)})
        monkeypatch.setattr(tiling, "BLOCK_BYTES", 1 << 14)
        monkeypatch.setattr(tiling, "PART_BYTES", 1 << 12)
    op = conv(taps, *pads)
    x, w, bias = normal(batch, channels, height, width), normal(filters, channels, taps, taps), normal(filters, 1, 1)
    (y,) = by_reference(op, x, w)
    dy, residual = normal(*y.shape), normal(*y.shape)
    body = FusedStep(Add(), (0, 1)), FusedStep(Add(), (3, 2)), FusedStep(Relu(), (4,))
    calls: list[tuple[Op, tuple[np.ndarray, ...]]] = [
        (op, (x, w)),
        (EpilogueFused(op, 2, body), (x, w, bias, residual)),
        (ConvInputGrad(op, kind(x)), (dy, w)),
        (ConvWeightGrad(op, kind(w)), (dy, x)),
    ]
    for call_op, operands in calls:
        (exact,) = by_reference(call_op, *(array.astype(np.float64) for array in operands))
        actual = by_winograd(call_op, *operands)
        assert error(actual, exact) < 3e-6
        np.testing.assert_allclose(actual, exact, rtol=0, atol=1e-5 * float(np.abs(exact).max()))


def test_rounds_some_times_as_much_as_direct_sums() -> None:
    """Normal numbers and 512 channels, as in docs/performance.md."""
    op = conv(3, (1, 1), (1, 1))
    x, w = normal(1, 512, 12, 12), normal(32, 512, 3, 3)
    (exact,), (direct,) = by_reference(op, x.astype(np.float64), w.astype(np.float64)), by_reference(op, x, w)
    assert error(direct, exact) < error(by_winograd(op, x, w), exact) < 2.5e-6


@pytest.mark.slow
def test_the_bits_do_not_depend_on_threads_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    op, x, w = conv(3, (1, 1), (1, 1)), normal(4, 32, 14, 14), normal(64, 32, 3, 3)
    dy = normal(4, 64, 14, 14)
    calls: Sequence[tuple[Op, tuple[np.ndarray, ...]]] = [
        (op, (x, w)),
        (ConvInputGrad(op, kind(x)), (dy, w)),
        (ConvWeightGrad(op, kind(w)), (dy, x)),
    ]
    actual = []
    before = openmp.thread_count()
    try:
        for threads, block in ((1, 8 << 20), (2, 8 << 20), (3, 1 << 17)):
            openmp.set_threads(threads)
            monkeypatch.setattr(tiling, "BLOCK_BYTES", block)
            actual.append([by_winograd(op, *operands) for op, operands in calls])
    finally:
        openmp.set_threads(before)
    for other in actual[1:]:
        for array, same in zip(actual[0], other, strict=True):
            np.testing.assert_array_equal(array, same)


def test_nan_stays_nan() -> None:
    op, x, w = conv(3, (1, 1), (1, 1)), normal(2, 16, 9, 9), normal(16, 16, 3, 3)
    x[1, 3, 4, 4] = np.nan
    y = by_winograd(EpilogueFused(op, 2, (FusedStep(Relu(), (0,)),)), x, w)
    assert np.isnan(y[1, :, 3:6, 3:6]).all(), "where a direct sum is none"
    assert np.isfinite(y[0]).all()
    assert np.isnan(by_winograd(ConvWeightGrad(op, kind(w)), normal(2, 16, 9, 9), x)[:, 3]).all()
    w[5, 2, 1, 1] = np.nan
    assert np.isnan(by_winograd(ConvInputGrad(op, kind(x)), normal(2, 16, 9, 9), w)[:, 2]).all()


@pytest.mark.parametrize(
    ("batch", "channels", "filters", "size", "op", "why"),
    [
        (8, 64, 64, 14, conv(3), None),
        (1, 64, 64, 56, conv(3), None),
        (16, 32, 64, 14, conv(5), None),
        (8, 64, 64, 14, conv(3, stride=2), "only for windows of 3 x 3 and 5 x 5, without strides and dilation"),
        (8, 64, 64, 14, conv(1), "only for windows of 3 x 3 and 5 x 5, without strides and dilation"),
        (8, 64, 64, 14, conv(3, groups=2), "only for images, without groups"),
        (8, 3, 64, 14, conv(3), "channels do not fill vectors of 16"),
        (
            1,
            512,
            512,
            7,
            conv(3),
            "0.78 times as fast as a direct convolution, which does not outweigh its rounding error",
        ),
        (
            64,
            16,
            16,
            32,
            conv(3),
            "1.22 times as fast as a direct convolution, which does not outweigh its rounding error",
        ),
    ],
)
def test_kernels_without_gain_are_rejected(
    batch: int, channels: int, filters: int, size: int, op: Conv, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tile_selection, "GAIN", 1.4)
    x = TensorType((batch, channels, size, size), DType.FLOAT32)
    w = TensorType((filters, channels // op.groups, *op.window.size), DType.FLOAT32)
    assert kernels.WinogradConvolutionKernel().reject_reason(op, x, w) == why


def test_other_types_and_narrow_vectors_are_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = TensorType((8, 64, 14, 14), DType.FLOAT64), TensorType((64, 64, 3, 3), DType.FLOAT64)
    assert kernels.WinogradConvolutionKernel().reject_reason(conv(3), x, w) == "computes in float32, not float64"
    monkeypatch.setattr(convolution, "has_wide_vectors", lambda: False)
    x, w = x.with_dtype(DType.FLOAT32), w.with_dtype(DType.FLOAT32)
    assert kernels.WinogradConvolutionKernel().reject_reason(conv(3), x, w) == "the CPU has no AVX-512"


def test_training_file_can_exclude_kernels_that_round_more(tmp_path: Path) -> None:
    every = open_device("cpu").kernels
    assert "winograd" in every
    assert open_device("cpu", rounding="direct").kernels == tuple(
        candidate for candidate in every if candidate != "winograd"
    )
    text = Path("model_zoo/lenet_mnist/train.yaml").read_text(encoding="utf-8")
    text = text.replace("net: net.yaml", f"net: {Path('model_zoo/lenet_mnist/net.yaml').resolve()}")
    path = tmp_path / "train.yaml"
    path.write_text(f"{text}\ncompile: {{rounding: direct}}\n", encoding="utf-8")
    spec = load_spec(path, [])
    assert isinstance(spec, TrainSpec)
    assert spec.compile.rounding == "direct"
    path.write_text(f"{text}\ncompile: {{rounding: exact}}\n", encoding="utf-8")
    with pytest.raises(InputError, match="rounding"):
        load_spec(path, [])
