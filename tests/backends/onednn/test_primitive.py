"""Binding of arguments: checks, lifetimes, and errors."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref

import numpy as np
import pytest

from netspec.backends.onednn.attributes import Attributes, BinaryPostOp, EltwisePostOp
from netspec.backends.onednn.constants import AlgKind, Arg, DataType, Query, Status, post_op_src
from netspec.backends.onednn.memory import Memory, MemoryDesc
from netspec.backends.onednn.native import OneDnnError, c_argument, open_engine
from netspec.backends.onednn.primitive_descs import eltwise_forward, matmul, reorder
from netspec.backends.openmp import using_threads
from netspec.errors import RunError
from tests.backends.onednn.harness import Run, assert_close, describe, uniform


def relu(engine, size: int = 8):
    desc = describe(engine, (size,))
    return eltwise_forward(desc, desc, AlgKind.ELTWISE_RELU)


def test_binding_rejects_missing_unknown_and_misplaced_arguments(engine):
    primitive = relu(engine).primitive()
    good = Memory.of(engine, np.zeros(8, np.float32))
    with pytest.raises(ValueError, match="dst missing"):
        primitive.bind({Arg.SRC: good})
    with pytest.raises(ValueError, match="takes no weights"):
        primitive.bind({Arg.SRC: good, Arg.DST: good, Arg.WEIGHTS: good})
    wrong = Memory.of(engine, np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"dst is f32\[2, 4\] 4·1, expected f32\[8\] 1"):
        primitive.bind({Arg.SRC: good, Arg.DST: wrong})


@pytest.mark.slow
def test_thunk_keeps_its_arguments_alive(engine):
    x = uniform(1000)
    source, target = x.copy(), np.empty(1000, np.float32)
    watched = weakref.ref(source)
    run = relu(engine, 1000).primitive().bind({Arg.SRC: Memory.of(engine, source), Arg.DST: Memory.of(engine, target)})
    del source
    for _ in range(5):  # overwrites memory that was freed by mistake
        gc.collect()
        _ = [np.full(1000, np.nan, np.float32) for _ in range(50)]
        relu(engine, 1000)
    assert watched() is not None
    run()
    np.testing.assert_array_equal(target, np.maximum(x, 0))
    del run
    gc.collect()
    assert watched() is None


def test_thousands_of_objects_come_and_go(engine):
    watched = []
    for size in range(1, 1000):
        desc = relu(engine, size % 7 + 1)
        memory = Memory.of(engine, np.zeros(size % 7 + 1, np.float32))
        run = desc.primitive().bind({Arg.SRC: memory, Arg.DST: memory})
        run()
        watched += [weakref.ref(desc), weakref.ref(memory)]
    del desc, memory, run
    gc.collect()
    assert all(reference() is None for reference in watched)


def test_queried_layouts_outlive_their_primitive(engine):
    desc = relu(engine)
    layout = desc[Arg.DST]
    del desc
    gc.collect()
    assert layout.shape == (8,)


def test_arguments_that_a_primitive_does_not_take(engine):
    desc = relu(engine)
    assert desc.get(Arg.WEIGHTS) is None
    assert desc.get(Arg.SCRATCHPAD) is None
    assert desc.scratchpad_bytes == 0
    with pytest.raises(KeyError):
        desc[Arg.WEIGHTS]
    assert (desc.count(Query.INPUTS), desc.count(Query.OUTPUTS)) == (1, 1)


def test_unimplemented_differs_from_invalid(engine):
    half, integer = describe(engine, (4,), dtype=DataType.F16), describe(engine, (4,), dtype=DataType.S32)
    with pytest.raises(OneDnnError, match="unimplemented") as unimplemented:
        reorder(half, integer)
    assert unimplemented.value.code == Status.UNIMPLEMENTED
    with pytest.raises(OneDnnError, match="matmul_primitive_desc_create says invalid arguments") as invalid:
        matmul(describe(engine, (4, 2)), describe(engine, (3, 4)), None, describe(engine, (4, 4)))
    assert invalid.value.code == Status.INVALID_ARGUMENTS
    assert isinstance(invalid.value, RunError)
    assert OneDnnError("f", 77).reason == "status 77"


def test_post_ops_bind_operands_by_index(engine):
    a, b, bias, c = uniform(3, 5), uniform(5, 4, seed=1), uniform(1, 4, seed=2), uniform(1, 4, seed=3)
    shifted = EltwisePostOp(AlgKind.ELTWISE_LINEAR, 0.5)
    scaled = BinaryPostOp(AlgKind.BINARY_MUL, describe(engine, (1, 4)))
    descs = [describe(engine, shape) for shape in ((3, 5), (5, 4), (1, 4), (3, 4))]
    desc = matmul(*descs, attributes=Attributes(engine, [shifted, scaled]))
    assert post_op_src(1) in desc.arguments
    run = Run(desc, {Arg.SRC: a, Arg.WEIGHTS: b, Arg.BIAS: bias, post_op_src(1): c})
    assert_close(run[Arg.DST], 0.5 * (a.astype(np.float64) @ b + bias) * c, 8)


def test_one_engine_for_each_library(engine):
    assert open_engine(engine.library) is engine


def test_it_runs_on_another_thread(engine):
    x, y = uniform(64), np.empty(64, np.float32)
    run = relu(engine, 64).primitive().bind({Arg.SRC: Memory.of(engine, x), Arg.DST: Memory.of(engine, y)})
    other = threading.Thread(target=run)
    other.start()
    other.join()
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_the_number_of_threads_does_not_change_elementwise_results(engine):
    x = uniform(64, 64)
    results = []
    for count in (1, 2):
        with using_threads(count):
            desc = describe(engine, x.shape)
            results.append(Run(eltwise_forward(desc, desc, AlgKind.ELTWISE_TANH), {Arg.SRC: x})[Arg.DST])
    np.testing.assert_array_equal(*results)


def test_python_values_become_c_values(engine):
    assert c_argument(None).value is None
    assert isinstance(c_argument(3), ctypes.c_int)
    assert isinstance(c_argument(AlgKind.BINARY_ADD), ctypes.c_int)
    assert isinstance(c_argument(0.5), ctypes.c_float)
    assert list(c_argument((2, 3))) == [2, 3]
    desc = MemoryDesc.strided(engine, (2,))
    assert c_argument(desc) is desc.pointer
    assert list(c_argument([desc, desc])) == [desc.pointer.value] * 2
    with pytest.raises(TypeError, match="bool"):
        c_argument(True)
