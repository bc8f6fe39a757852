"""Hand-written kernels on sizes that are split into blocks and among threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from netspec.backends.numba.kernels.reduction import ReduceKernel
from netspec.backends.openmp import set_threads, thread_count
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.op import Op
from netspec.graph.ops.batch_normalization import BatchNormalization, BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.ops.cross_entropy import SoftmaxCrossEntropyLoss
from netspec.graph.ops.indexing import GatherElements, ScatterElements
from netspec.graph.ops.layer_normalization import LayerNormalization, LayerNormalizationGrad
from netspec.graph.ops.linear import Gather, ScatterRows
from netspec.graph.ops.lrn import LRN, LRNGrad
from netspec.graph.ops.pooling import AveragePool, AveragePoolGrad, MaxPool, MaxPoolGather, MaxPoolGrad
from netspec.graph.ops.random import RandomUniform
from netspec.graph.ops.reduce import ArgMax, ReduceMax, ReduceMean, ReduceMin, ReduceSum
from netspec.graph.ops.shape import Concat, PadAxis, Slice, Split, Take, TakeGrad, Transpose
from netspec.graph.ops.softmax import LogSoftmax, Softmax, Sparsemax
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from tests.backends.numba.run import by_numba, by_reference

LAST = Layout.channels_last(4)
RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.normal(size=(6, 20, 13, 12)).astype(np.float32)
ROWS = RANDOM.normal(size=(700, 48)).astype(np.float32)
LABELS = RANDOM.integers(0, 48, 700).astype(np.int32)
GAMMA, BETA, MEAN = (RANDOM.normal(size=20).astype(np.float32) for _ in range(3))
VARIANCE = RANDOM.uniform(0.5, 2, 20).astype(np.float32)
PLACES = by_reference(MaxPool(Window((3, 3), (2, 2), ((1, 1), (0, 1)), (1, 1))), IMAGES)
OVERLAPPING = Window((3, 3), (2, 2), ((1, 1), (0, 1)), (1, 1))
APART = Window((1, 2), (1, 2), ((0, 0), (0, 0)), (1, 1))

CALLS: list[tuple[Op, tuple[np.ndarray, ...]]] = [
    (MaxPool(OVERLAPPING), (IMAGES,)),
    (MaxPool(APART), (IMAGES,)),
    (MaxPool(Window((2, 2), (1, 1), ((0, 0), (0, 0)), (2, 3))), (IMAGES,)),
    (MaxPool(Window((5, 5), (2, 2), ((2, 2), (2, 2)), (1, 1))), (IMAGES,)),
    (MaxPoolGrad(OVERLAPPING, IMAGES.shape), tuple(PLACES)),
    (MaxPoolGrad(APART, IMAGES.shape), tuple(by_reference(MaxPool(APART), IMAGES))),
    (MaxPoolGather(OVERLAPPING), (IMAGES, PLACES[1])),
    (AveragePool(OVERLAPPING), (IMAGES,)),
    (AveragePool(OVERLAPPING, ((1, 0), (0, 1))), (IMAGES,)),
    (AveragePoolGrad(OVERLAPPING, IMAGES.shape, ((1, 0), (0, 1))), (PLACES[0],)),
    (AveragePoolGrad(OVERLAPPING, IMAGES.shape), (PLACES[0],)),
    (MaxPool(Window((3,), (2,), ((1, 1),), (1,))), (IMAGES[:, :, 0],)),
    *((op(axes), (IMAGES,)) for op in (ReduceSum, ReduceMax) for axes in (None, (0, 2, 3), (2, 3), (1,), (0,), (0, 1))),
    *((ReduceMin(axes), (IMAGES,)) for axes in ((2, 3), (1,), None)),
    (ReduceMean(), (RANDOM.normal(size=100_003).astype(np.float32),)),
    (ReduceSum((0,)), (ROWS,)),
    (ReduceSum((-1,)), (ROWS,)),
    (ReduceSum((0,)), (np.arange(60, dtype=np.int64).reshape(20, 3),)),
    (LayerNormalization(), (ROWS, *ROWS[:2])),
    (LayerNormalization(1), (IMAGES, *IMAGES[:2])),
    (LayerNormalizationGrad(), (ROWS, ROWS[0], ROWS[:, :1], ROWS[:, :1] ** 2, ROWS[::-1])),
    (LayerNormalizationGrad(0), (ROWS, ROWS, ROWS[:1, :1], ROWS[:1, :1] ** 2, ROWS[::-1])),
    (LRN(5, 0.1), (IMAGES,)),
    (LRN(3, 0.1, 0.6, 2.0), (ROWS,)),
    (LRNGrad(5, 0.1), (IMAGES, IMAGES[::-1])),
    (LRNGrad(3, 0.1, 0.6, 2.0), (ROWS, ROWS[::-1])),
    (Softmax(-1), (ROWS,)),
    (Softmax(1), (IMAGES,)),
    (LogSoftmax(1), (IMAGES,)),
    (LogSoftmax(2), (IMAGES,)),
    (Sparsemax(-1), (ROWS,)),
    (Sparsemax(1), (IMAGES * 0.1,)),
    (Sparsemax(-1), (np.repeat(ROWS[:3, :1], 40, axis=1),)),
    (SoftmaxCrossEntropyLoss(1), (ROWS, LABELS)),
    (SoftmaxCrossEntropyLoss(1), (IMAGES, RANDOM.integers(-2, 22, (6, 13, 12)))),
    (ArgMax(1), (IMAGES,)),
    (ArgMax(-1), (ROWS,)),
    (BatchNormalizationTraining(1, 1e-3), (IMAGES, GAMMA, BETA)),
    (BatchNormalizationTraining(1, 1e-3), (ROWS, GAMMA.repeat(3)[:48], BETA.repeat(3)[:48])),
    (BatchNormalizationGrad(1, 1e-3), (IMAGES, GAMMA, MEAN, VARIANCE, IMAGES[::-1].copy())),
    (BatchNormalization(1, 1e-3), (IMAGES, GAMMA, BETA, MEAN, VARIANCE)),
    (Gather(), (ROWS, LABELS.reshape(70, 10))),
    (ScatterRows(48), (ROWS, LABELS)),
    (Concat(1), (IMAGES, IMAGES[:, :7].copy())),
    (Concat(-1), (IMAGES, IMAGES[..., :3].copy())),
    (Split(1, (3, 16, 1)), (IMAGES,)),
    (Take(2, (4, 5, 6, 0, 12, 11, 4)), (IMAGES,)),
    (TakeGrad(2, (4, 5, 6, 0, 12, 11, 4, 5, 5, 1, 2, 3, 1), 14), (IMAGES,)),
    (Slice(1, 3, 11), (IMAGES,)),
    (Slice(0, 1, 4), (IMAGES,)),
    (PadAxis(2, 1, 3), (IMAGES,)),
    (Transpose((0, 2, 3, 1)), (IMAGES,)),
    (Transpose((3, 1, 0, 2)), (IMAGES,)),
    (Transpose((1, 0)), (ROWS,)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = thread_count()
    yield
    use(before)


def use(count: int) -> None:
    set_threads(count)


def layouts(operands: tuple[np.ndarray, ...], last: bool) -> list[Layout]:
    return [LAST if last and x.ndim == 4 else PLAIN for x in operands]


def call_id(value: object) -> str:
    return str(value)[:60] if isinstance(value, Op) else ""


@pytest.mark.parametrize("last", [False, True], ids=["plain", "channels-last"])
@pytest.mark.parametrize(("op", "operands"), CALLS, ids=call_id)
def test_agrees_with_float64_and_does_not_depend_on_the_number_of_threads(
    op: Op, operands: tuple[np.ndarray, ...], last: bool
) -> None:
    right = by_reference(op, *(x.astype(np.float64) if x.dtype == np.float32 else x for x in operands))
    use(1)
    expected = by_numba(op, *operands, layouts=layouts(operands, last))
    for actual, exact in zip(expected, right, strict=True):
        # Sums of some thousand terms of size 1 in float32 err by about √n · 6e-8 of the largest result, at times more.
        scale = max(1.0, float(np.abs(exact).max()))
        np.testing.assert_allclose(actual, exact, rtol=1e-5, atol=2e-6 * scale)
    for count in (2, 3):
        use(count)
        for actual, reference in zip(by_numba(op, *operands, layouts=layouts(operands, last)), expected, strict=True):
            np.testing.assert_array_equal(actual, reference)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
@pytest.mark.parametrize(
    ("shape", "rng"),
    [((5, 7), (3, 1, 0)), ((40, 1001), (2**62 + 12345, 2**40 + 7, 3)), ((3, 5), (-1, 9, 2**33 + 1)), ((2,), (7, 0, 5))],
)
def test_random_numbers_are_bit_identical_to_reference(
    shape: tuple[int, ...], rng: tuple[int, ...], dtype: DType
) -> None:
    op = RandomUniform(TensorType(shape, dtype), 0xDEADBEEF)
    np.testing.assert_array_equal(by_numba(op, np.array(rng))[0], by_reference(op, np.array(rng))[0])


def test_nan_and_infinity_in_maxima_and_softmax() -> None:
    x = IMAGES.copy()
    x[0, 3, 4, 5], x[1, 2, 3, 4], x[2, 0, 0, 0] = np.nan, np.inf, -np.inf
    for op in (MaxPool(OVERLAPPING), ReduceMax((2, 3)), ReduceMax((0,)), ArgMax(1), Softmax(1), LogSoftmax(1)):
        for last in (False, True):
            actual, right = by_numba(op, x, layouts=layouts((x,), last)), by_reference(op, x)
            for array, other in zip(actual, right, strict=True):
                np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-5)


def test_row_out_of_range_reads_no_other_memory() -> None:
    (actual,) = by_numba(Gather(), ROWS[:4], np.array([1, 4, -1, -5, 2**31]))
    np.testing.assert_array_equal(actual, np.stack([ROWS[1], 0 * ROWS[0], ROWS[3], 0 * ROWS[0], 0 * ROWS[0]]))
    (sums,) = by_numba(ScatterRows(4), ROWS[:3], np.array([0, 9, -7]))
    np.testing.assert_array_equal(sums[0], ROWS[0])
    np.testing.assert_array_equal(sums[1:], 0)


@pytest.mark.parametrize("axis", [0, 1])
def test_an_element_out_of_range_touches_no_other_memory(axis: int) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    index = np.full((2, 3), x.shape[axis])
    index[0, 0], index[1, 2] = -1, -x.shape[axis] - 1
    (actual,) = by_numba(GatherElements(axis), x, index)
    expected = np.zeros_like(x)
    expected[0, 0] = x[-1, 0] if axis == 0 else x[0, -1]
    np.testing.assert_array_equal(actual, expected)
    (sums,) = by_numba(ScatterElements(axis, "add"), x, index, np.full_like(x, 10))
    added = np.zeros_like(x)
    added[(-1, 0) if axis == 0 else (0, -1)] = 10
    np.testing.assert_array_equal(sums, x + added)


def test_large_scores_keep_their_differences() -> None:
    x = np.array([[10000.0, 10001.0], [-3e38, 0.0]], np.float32)
    loss, log_prob = by_numba(SoftmaxCrossEntropyLoss(1), x, np.array([0, 1]))
    np.testing.assert_allclose(loss, [1.3132617, 0.0], rtol=1e-6)
    np.testing.assert_allclose(log_prob[0], [-1.3132617, -0.3132617], rtol=1e-6)


def test_a_reduction_over_scattered_axes_is_declined() -> None:
    reason = ReduceKernel().reject_reason(ReduceSum((0, 2)), TensorType((2, 3, 4, 5), DType.FLOAT32))
    assert reason == "the axes need more than four loops"
