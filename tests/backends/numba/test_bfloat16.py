"""bfloat16 in compiled code: exact reading, rounding to nearest, and NaN."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from netspec.backends.numba.kernels.data_movement import reordered
from netspec.backends.numba.kernels.elementwise import bound, copy


def test_every_bfloat16_is_read_as_the_float32_it_is_and_written_as_itself() -> None:
    every = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)
    wide, again = np.empty(65536, np.float32), np.empty(65536, ml_dtypes.bfloat16)
    copy(every, wide)()
    np.testing.assert_array_equal(wide.view(np.uint32), every.view(np.uint16).astype(np.uint32) << 16)
    copy(wide, again)()
    quiet = np.where(np.isnan(wide), 0x40, 0).astype(np.uint16)  # a signalling NaN becomes a quiet one
    np.testing.assert_array_equal(again.view(np.uint16), every.view(np.uint16) | quiet)


def test_numbers_between_are_rounded_as_ml_dtypes_does() -> None:
    random = np.random.default_rng(0)
    words = random.integers(0, 1 << 32, 100_003, dtype=np.uint32)
    words[:4] = 0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00000001  # ties to even, overflow to infinity, the least number
    x = words.view(np.float32)
    actual = np.empty(x.shape, ml_dtypes.bfloat16)
    copy(x, actual)()
    with np.errstate(all="ignore"):
        expected = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(x))
    is_number = ~np.isnan(x)
    np.testing.assert_array_equal(actual.view(np.uint16)[is_number], expected.view(np.uint16)[is_number])


def test_arithmetic_between_reading_and_writing_is_in_float32() -> None:
    x, y = np.full(100, 1.0, ml_dtypes.bfloat16), np.empty(100, ml_dtypes.bfloat16)
    code = ("t0 = a0 + float32(0.001)", "t1 = (t0 - float32(1)) * float32(1000)"), ("t1",)
    bound(code, [x], [y])()
    np.testing.assert_array_equal(y, np.float32(1.0).astype(ml_dtypes.bfloat16))  # 0 if the sum were rounded


def test_order_and_type_change_in_one_copy() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 7, 9), np.float32)
    y = np.empty((2, 7, 9, 5), ml_dtypes.bfloat16).transpose(0, 3, 1, 2)
    reordered(x, y)()
    np.testing.assert_array_equal(y, x.astype(ml_dtypes.bfloat16))
