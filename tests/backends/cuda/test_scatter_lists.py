"""Updates of the same elements are added in order, bit-identically: many updates, and indices of many digits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from netspec.backends.cuda import launch
from netspec.backends.cuda.kernels.gather_rows import GOES_TO
from netspec.backends.cuda.launch import pointer
from netspec.backends.cuda.scatter_lists import FEW, ScatterLists
from tests.backends.cuda.emulator import Emulator, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")


@pytest.fixture(autouse=True)
def emulator() -> Iterator[None]:
    before = launch.use(Emulator())
    yield
    launch.use(before)


@pytest.mark.parametrize(("count", "rows"), [(600, 300), (FEW + 1, 70_000)])
def test_rows_are_added_in_their_order(count: int, rows: int) -> None:
    random = np.random.default_rng(1)
    index = random.integers(-rows - 2, rows + 2, count)
    index[::3] = 5  # many updates for one element
    updates = random.standard_normal((count, 2)).astype(np.float32)
    x = random.standard_normal((rows, 2)).astype(np.float32)
    y, lists = np.full_like(x, np.nan), ScatterLists(count, rows)
    workspace = np.full(lists.nbytes, 255, np.uint8)
    lists.joined([pointer("index", index)], GOES_TO, x, updates, y, "add", workspace)()
    in_range = (index >= -rows) & (index < rows)
    right = x.copy()
    np.add.at(right, index[in_range], updates[in_range])
    np.testing.assert_array_equal(y, right)
