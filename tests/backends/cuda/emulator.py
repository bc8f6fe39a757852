"""CUDA C++ without a GPU: a C++ compiler turns it into a library that runs block after block on the CPU.

Every access to memory is checked (`emulated.cpp`): a kernel that leaves its arrays, reads uninitialized memory, has a
data race, a misaligned vector access, a barrier that some threads miss or undefined behavior raises `KernelError`.
Each launch of a kernel runs blocks and threads in a different order. The emulator does not measure speed.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_size_t, c_uint32, c_void_p
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.lib.stride_tricks import as_strided

from netspec.backends.cuda import launch
from netspec.graph.kernel import Thunk
from tests.backends.cuda.libraries import Libraries, runtime

UNIT = 16
"""Bytes that kernels read at once if they copy arrays by address: a program's memory has at least this padding."""


class KernelError(AssertionError):
    """A kernel has an error that would be undefined behavior on a GPU."""


class CudaArray(ctypes.Structure):
    """`Array` of emulated.cpp."""

    _fields_ = (
        ("begin", c_size_t), ("end", c_size_t), ("elements", c_void_p), ("name", c_char_p), ("itemsize", c_uint32),
        ("writable", c_uint32),
    )  # fmt: skip


@cache
def compiler() -> str | None:
    """Return the path of GCC's C++ compiler if it is installed: others call other functions before memory accesses."""
    path = shutil.which("g++")
    if path is None:
        return None
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    return path if "Free Software Foundation" in version else None


class OnHost:
    """The CPU in place of a GPU, with one stream that executes calls synchronously."""

    def address(self, array: Any) -> int:
        """Address in host memory; arrays are NumPy's, or CuPy's over host memory."""
        return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)

    def table(self, host: Any) -> Any:
        """Return the table unchanged."""
        return host

    def on_stream(self, call: Callable[[int], None]) -> Thunk:
        """Return a thunk that makes the call at once."""
        return lambda: call(0)

    def device(self) -> int:
        """Return the only device."""
        return 0


class Emulator(OnHost):
    """An engine that compiles kernels lazily: all that were bound so far, when one of them is called."""

    def __init__(self, flags: Sequence[str] = ()) -> None:
        self._libraries = Libraries(launch.prelude(), flags)
        self.launches = Counter[str]()
        """Number of launches of each kernel."""
        self._addressed: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._tables: dict[int, tuple[Any, list[Any]]] = {}
        self._undefined: dict[int, np.ndarray] = {}

    def address(self, array: Any) -> int:
        """Address in host memory, which tables may contain."""
        actual = super().address(array)
        self._addressed[actual] = array
        return actual

    def table(self, host: Any) -> Any:
        """Return the table unchanged. Kernels that get it may access the arrays whose addresses it contains."""
        if host.dtype == np.int64:
            values = np.unique(host)
            arrays = [allocation for allocation in self._addressed.values() if _points_into(values, extent(allocation))]
            self._tables[super().address(host)] = host, arrays
        return host

    def starter(self, name: str, text: str) -> launch.Starter:
        """Return a starter of the kernel, which is compiled at the first call."""
        self._libraries.add(name, text.removeprefix(launch.prelude()))
        return lambda blocks, threads, arguments: self._run(name, blocks, threads, arguments)

    def undefine(self, array: Any) -> None:
        """Make it an error to read elements of a contiguous array that no kernel has written since this call."""
        begin, end = extent(array)
        self._undefined[begin] = np.ones(end - begin, np.uint8)
        runtime().emulated_undefined(begin, end, self._undefined[begin].ctypes.data)

    def unwritten(self, array: Any) -> int:
        """Number of elements of an array that no kernel has written since `undefine`."""
        return int(self._undefined[extent(array)[0]].reshape(-1, array.itemsize).any(axis=1).sum())

    def define(self) -> None:
        """Allow reading of all memory again."""
        for begin, undefined in self._undefined.items():
            runtime().emulated_undefined(begin, begin + len(undefined), None)
        self._undefined.clear()

    def _run(self, name: str, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        assert 1 <= threads <= 1024, threads
        assert 1 <= blocks < 2**31, blocks
        library, values, arrays = self._libraries.of(name), list[Any](), list[tuple[CudaArray, Any]]()
        for (kind, label), value in zip(library.parameters[name], arguments, strict=True):
            if kind.endswith("*"):
                values.append(c_void_p(super().address(value)))
                arrays.append(_described(value, label, writable=not kind.startswith("const ")))
                _, reached = self._tables.get(super().address(value), (None, ()))
                arrays += [_described(array, f"arrays that {label} points to", padded=True) for array in reached]
            else:
                assert isinstance(value, np.generic), f"{name}: {kind} is given {type(value)}"
                assert str(value.dtype) == kind, f"{name}: {kind} is given {value.dtype}"
                values.append(np.ctypeslib.as_ctypes(np.array(value)))
        arrays.sort(key=lambda value: value[0].begin)
        pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        described = (CudaArray * len(arrays))(*(array for array, _ in arrays))
        turn = self.launches[name]
        self.launches[name] += 1
        error = library.run[name](pointers, blocks, threads, described, len(arrays), turn)
        if error is not None:
            raise KernelError(f"{name}: {library.explained(error.decode())}")


def extent(array: Any) -> tuple[int, int]:
    """The addresses of an array's first byte and of the one after its last."""
    first = OnHost().address(array)
    if not array.size:
        return first, first
    spans = [step * (size - 1) for step, size in zip(array.strides, array.shape, strict=True)]
    return first + sum(span for span in spans if span < 0), first + sum(
        span for span in spans if span > 0
    ) + array.itemsize


def _points_into(addresses: np.ndarray, extent: tuple[int, int]) -> bool:
    first, last = np.searchsorted(addresses, extent)
    return bool(first < last)


def _described(array: Any, name: str, *, writable: bool = True, padded: bool = False) -> tuple[CudaArray, Any]:
    """The part of an array that a kernel may access, and the mask that must stay in memory while the kernel runs."""
    begin, end = extent(array)
    if padded:
        end = -(-end // UNIT) * UNIT
    elements, count = None, (end - begin) // array.itemsize
    if not padded and count > array.size:
        elements = np.zeros(count, np.uint8)
        steps = [step // array.itemsize for step in array.strides]
        first = (OnHost().address(array) - begin) // array.itemsize
        as_strided(elements[first:], array.shape, steps)[...] = 1
    mask = None if elements is None else elements.ctypes.data
    return CudaArray(begin, end, mask, name.encode(), array.itemsize, writable), elements
