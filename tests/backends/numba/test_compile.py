"""Compiling a kernel to an object file."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.codegen import AOTCodeLibrary, JITCPUCodegen

from netspec.backends.disk_cache import DiskCache
from netspec.backends.numba import native
from netspec.backends.numba.native import CompiledKernel, Literal, Number, Pointer, Size, of_source
from netspec.graph.ops.pooling import MaxPool
from netspec.graph.ops.window import Window
from netspec.graph.types import DType
from tests.backends.numba.run import by_numba


def new_kernel(body: str) -> CompiledKernel:
    """A kernel that no cache on disk has, with a pointer, an integer, a constant and a float32."""
    text = f"def body(first, last, y, shift, factor, scale):\n    '''{uuid.uuid4()}'''\n    {body}"
    return of_source(text, (Pointer(DType.FLOAT32), Size(), Literal(3), Number(DType.FLOAT32)))


def test_arguments_are_read_from_words_or_compiled_in() -> None:
    y = np.zeros(5, np.float32)
    new_kernel("for i in range(first, last):\n        y[i] = (i + shift) * factor * scale").bind(4, 4, y, -1, 0.5)()
    assert y.tolist() == [-1.5, 0, 1.5, 3, 0]


def test_no_machine_code_is_generated_for_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is compiled only to an object file, since its code would otherwise be generated twice."""
    added: list[object] = []
    monkeypatch.setattr(JITCPUCodegen, "_add_module", lambda self, module: added.append(module))
    new_kernel("y[first] = scale")
    assert added == []


def test_a_kernel_that_may_raise_is_refused() -> None:
    with pytest.raises(RuntimeError, match="calls raise: it cannot run outside of numba"):
        new_kernel("if y[0] > 3:\n        raise ValueError")


def test_max_pooling_compares_vectors_of_channels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code: list[str] = []
    emit: Any = AOTCodeLibrary.emit_native_object

    def record(library: Any) -> bytes:
        code.append(library.get_llvm_str())
        return bytes(emit(library))

    monkeypatch.setattr(AOTCodeLibrary, "emit_native_object", record)
    monkeypatch.setattr(native, "folder", lambda: DiskCache(tmp_path))
    monkeypatch.setattr(native, "_of_function", native._of_function.__wrapped__)
    by_numba(MaxPool(Window((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))), np.zeros((2, 32, 8, 8), np.float32))
    assert re.search(r"fcmp .*<\d+ x float>", "".join(code))
