"""Bucket buffers have the same layout on all workers; only arrays that are not contiguous are copied."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.backends.device_registry import open_device
from netspec.distributed.backends.mpi.buffers import BucketBuffer, address
from netspec.graph.types import DType, TensorType

SHAPES = (3, 4), (2, 5), (16,), ()


@pytest.mark.parametrize("offsets", [(0, 64, 128, 192), (0, 64, 192, 256), (64, 0, 128, 192)], ids=str)
def test_bucket_buffer_is_contiguous_for_any_array_offsets(offsets: tuple[int, ...]) -> None:
    device = open_device("cpu")
    memory = device.allocate(4096)
    kinds = [TensorType(shape, DType.FLOAT32) for shape in SHAPES]
    arrays = [device.view(memory, position, kind) for position, kind in zip(offsets, kinds, strict=True)]
    bundle = BucketBuffer(arrays)
    assert bundle.starts == [0, 16, 32, 48, 64]
    assert bundle.whole.shape == (49,)
    assert (address(bundle.whole) == address(arrays[0])) == (offsets == (0, 64, 128, 192))
    for number, array in enumerate(arrays):
        array[...] = number + 1
    bundle.pack()
    bundle.whole *= 2
    bundle.unpack()
    for number, array in enumerate(arrays):
        np.testing.assert_array_equal(array, 2 * (number + 1))
