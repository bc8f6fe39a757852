"""Arrays of one memory that lie in a row are sent as one."""

from __future__ import annotations

import numpy as np

from netspec.backends.device import open_device
from netspec.backends.workers.spans import address, side_by_side, spans
from netspec.graph.types import DType, TensorType


def test_what_lies_side_by_side_is_one_piece_of_memory() -> None:
    device = open_device("cpu")
    memory, other = device.allocate(4096), device.allocate(4096)
    kinds = [TensorType(shape, DType.FLOAT32) for shape in ((3, 4), (2, 5), (16,), (7,))]
    # Two whose gap is that of the alignment; one behind a larger gap; one in other memory.
    arrays = [device.view(memory, 0, kinds[0]), device.view(memory, 64, kinds[1]), device.view(memory, 256, kinds[2])]
    arrays.append(device.view(other, 0, kinds[3]))
    assert side_by_side(arrays) == [[0, 1], [2], [3]]
    found = spans(arrays)
    assert [one.size for one in found] == [16 + 10, 16, 7]
    assert [address(one) for one in found] == [address(arrays[number]) for number in (0, 2, 3)]
    found[0][...] = np.arange(26)
    np.testing.assert_array_equal(arrays[1].reshape(-1), np.arange(16, 26))
    assert side_by_side([]) == spans([]) == []
