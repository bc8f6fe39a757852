"""Memory descriptors equal NumPy's shapes and strides, and a memory shares the array that it was created from."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.backends.onednn.constants import DataType, FormatKind, Tag
from netspec.backends.onednn.memory import Memory, MemoryDesc, extent, row_major
from tests.backends.onednn.harness import copy, uniform


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
    step=st.integers(1, 3),
)
def test_a_descriptor_of_any_view_is_its_shape_and_strides(engine, shape, order, step):
    axes = list(range(len(shape)))
    order.shuffle(axes)
    full = np.zeros([shape[axis] * (step if axis == 0 else 1) for axis in axes], np.float32)
    array = full.transpose(np.argsort(axes))[::step]
    desc = MemoryDesc.of(engine, array)
    assert desc.shape == tuple(shape)
    assert desc.rank == len(shape)
    assert desc.strides == tuple(stride // 4 for stride in array.strides)
    assert desc.dtype is DataType.F32
    assert desc.extent == extent(array) <= desc.nbytes
    assert desc == MemoryDesc.of(engine, array)
    assert hash(desc) == hash(MemoryDesc.of(engine, array))


@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_row_major_strides_equal_numpy(shape):
    assert row_major(tuple(shape)) == tuple(stride // 8 for stride in np.zeros(shape).strides)


def test_descriptors_differ_by_shape_type_and_layout(engine):
    descs = [
        MemoryDesc.strided(engine, (2, 16, 3, 3)),
        MemoryDesc.strided(engine, (2, 16, 3, 4)),
        MemoryDesc.strided(engine, (2, 16, 3, 3), (144, 1, 48, 16)),
        MemoryDesc.strided(engine, (2, 16, 3, 3), dtype=DataType.BF16),
        MemoryDesc.tagged(engine, (2, 16, 3, 3), Tag.ABCD_B16),
        MemoryDesc.any(engine, (2, 16, 3, 3)),
    ]
    for index, desc in enumerate(descs):
        assert [desc == other for other in descs] == [index == other for other in range(len(descs))]
    assert len({str(desc) for desc in descs}) == len(descs)
    assert descs[0] != "f32"
    assert str(descs[4]) == "f32[2, 16, 3, 3] 144·144·48·16 16b"
    assert str(descs[5]) == "f32[2, 16, 3, 3] any"
    assert descs[5].format_kind is FormatKind.ANY


def test_element_types(engine):
    for dtype in ("float16", "float32", "int32", "int8", "uint8"):
        array = np.zeros((2, 3), dtype)
        desc = MemoryDesc.of(engine, array)
        assert desc.nbytes == array.nbytes
        assert desc.dtype.itemsize == array.itemsize
    with pytest.raises(KeyError):
        MemoryDesc.of(engine, np.zeros(3, np.complex64))


def test_too_small_array_is_rejected(engine):
    desc = MemoryDesc.strided(engine, (4, 6))
    with pytest.raises(ValueError, match=r"f32\[4, 6\] 6·1 needs 96 bytes, and the array has 92"):
        Memory(desc, np.zeros(23, np.float32))


def test_strides_that_cannot_be_described_are_refused(engine):
    for array in (np.zeros(4, np.float32)[::-1], np.zeros(4, "u1,f4")["f1"]):
        with pytest.raises(ValueError, match="an array with strides of"):
            Memory.of(engine, array)


def test_empty_array_is_valid_memory(engine):
    memory = Memory.of(engine, np.zeros((0, 3), np.float32))
    assert memory.desc.nbytes == 0


def test_a_strided_view_is_written_in_place(engine):
    x, target = uniform(3, 5), np.zeros((5, 6), np.float32)
    copy(Memory.of(engine, x), Memory.of(engine, target.T[::2]))
    np.testing.assert_array_equal(target[:, ::2], x.T)
    assert not target[:, 1::2].any()


def test_a_memory_keeps_its_array_and_nothing_keeps_the_memory(engine):
    for _ in range(200):
        array = np.ones(1 << 16, np.float32)  # 256 KiB: a leak of all would be 50 MiB
        watched = weakref.ref(array)
        memory = Memory.of(engine, array)
        del array
        assert watched() is not None
        del memory
        assert watched() is None
    gc.collect()


def test_each_axis_has_a_stride(engine):
    with pytest.raises(ValueError, match="3 strides for 4 axes"):
        MemoryDesc.strided(engine, (1, 2, 3, 4), (12, 4, 1))
