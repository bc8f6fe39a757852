"""A tiny op runs on one thread, a large one on all: the number of threads that each call uses or starts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from netspec.backends.device_registry import CpuDevice, open_device
from netspec.backends.executor import CallSequence
from netspec.backends.numba import threads
from netspec.backends.openmp import openmp, thread_count, using_threads
from netspec.backends.program import Program
from netspec.backends.states import States
from netspec.compile import make_plan
from netspec.graph.graph import Graph
from netspec.graph.kernel import Thunk
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.source import Input
from netspec.graph.ops.unary import Tanh
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Value

ALL = 3
"""Number of threads in these tests, on any machine."""


def device_with(backend: str) -> CpuDevice:
    device = open_device("cpu")
    assert isinstance(device, CpuDevice)
    if openmp() is None or backend not in device.kernels:
        pytest.skip(f"no kernels of {backend} with OpenMP here")
    return device


def x(*shape: int) -> Value:
    return Input(f"x{shape}", TensorType(shape, DType.FLOAT32))()


def run(device: CpuDevice, **outputs: Value) -> None:
    with using_threads(ALL):
        program = Program(make_plan(Graph(outputs), device), device, States({}, device))
        program({name: np.ones(value.shape, np.float32) for name, value in program.inputs.items()})
        assert thread_count() == ALL


def test_onednn_calls_use_one_thread_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    device, actual = device_with("onednn"), {}
    add = CallSequence.add

    def watched(self: CallSequence, thunk: Thunk, node: Node | None = None, count: int | None = None) -> None:
        def call() -> None:
            assert node is not None
            actual[node.types[0].shape] = thread_count()
            thunk()

        add(self, call, node, count)

    monkeypatch.setattr(CallSequence, "add", watched)
    small, large = MatMul()(x(4, 8), x(8, 6)), MatMul()(x(256, 512), x(512, 384))
    run(device, small=small, large=large, last=MatMul()(x(5, 8), x(8, 7)))
    assert actual == {(4, 6): 1, (256, 384): ALL, (5, 7): 1}


def test_compiled_kernel_starts_no_thread_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    device, library = device_with("numba"), openmp()
    assert library is not None
    started: list[int] = []
    parallel: Callable[..., Any] = library.GOMP_parallel

    def watched(address: Any, argument: Any, count: int, flags: int) -> None:
        started.append(count)
        parallel(address, argument, count, flags)

    names = ("omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads")
    functions = {name: getattr(library, name) for name in names}
    monkeypatch.setattr(threads, "openmp", lambda: SimpleNamespace(GOMP_parallel=watched, **functions))
    run(device, small=Tanh()(x(64, 10)))
    assert started == []
    run(device, large=Tanh()(x(512, 1024)))
    assert started == [ALL]
