"""Compiling a kernel to an object file."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
from numba.core.codegen import JITCPUCodegen

from netspec.backends.numba.native import CompiledKernel, Literal, Number, Pointer, Size, of_source
from netspec.graph.types import DType


def new_kernel(body: str) -> CompiledKernel:
    """A kernel that no cache on disk has, with a pointer, an integer, a constant and a float32."""
    text = f"def body(first, last, y, shift, factor, scale):\n    '''{uuid.uuid4()}'''\n    {body}"
    return of_source(text, (Pointer(DType.FLOAT32), Size(), Literal(3), Number(DType.FLOAT32)))


def test_arguments_are_read_from_words_or_compiled_in() -> None:
    y = np.zeros(5, np.float32)
    new_kernel("for i in range(first, last):\n        y[i] = (i + shift) * factor * scale").bind(4, 4, y, -1, 0.5)()
    assert y.tolist() == [-1.5, 0, 1.5, 3, 0]


def test_no_machine_code_is_generated_for_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be generated twice: only the object file is loaded."""
    added: list[object] = []
    monkeypatch.setattr(JITCPUCodegen, "_add_module", lambda self, module: added.append(module))
    new_kernel("y[first] = scale")
    assert added == []


def test_a_kernel_that_may_raise_is_refused() -> None:
    with pytest.raises(RuntimeError, match="calls raise: it cannot run outside of numba"):
        new_kernel("if y[0] > 3:\n        raise ValueError")
