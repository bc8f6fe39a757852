"""Every kernel of the backend `cublaslt` against the reference, with a stand-in for the library on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from netspec.backends.backend import load_kernels
from netspec.backends.cuda import launch
from netspec.backends.cuda.cublaslt.library import SETTING, load, unavailable_reason
from netspec.backends.cuda.cublaslt.matmul import WORKSPACE, bind_matmul
from netspec.errors import RunError
from netspec.graph.kernel import Kernel, registered_kernels
from tests.backends.cuda.calls import check
from tests.backends.cuda.cublaslt.library import stand_in
from tests.backends.cuda.emulator import Emulator, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to make the stand-in with")
load_kernels("cublaslt")
KERNELS = registered_kernels(["cublaslt"])


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(SETTING, stand_in())
    before = launch.use(Emulator())
    yield
    launch.use(before)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda value: value.label)
@pytest.mark.slow
def test_agrees_with_the_reference_repeatedly_and_keeps_its_operands(kernel: Kernel) -> None:
    check(kernel)


@pytest.mark.parametrize(
    ("a", "b"),
    [((1, 5), (5, 1)), ((4, 1), (1, 3)), ((6, 3, 2), (2, 4)), ((1, 1, 2), (3, 2, 2)), ((2, 1, 3, 4, 2), (5, 1, 2, 3)),
     ((2, 3, 1, 4), (2, 3, 4, 5)), ((2, 1, 3), (3, 2)), ((3, 1, 1, 2), (2, 2))],
)  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_broadcast_shapes_and_column_major_operands(a: tuple[int, ...], b: tuple[int, ...], turned: bool) -> None:
    x, w = (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7 for shape in (a, b))
    if turned:
        x, w = (np.ascontiguousarray(operand.swapaxes(-1, -2)).swapaxes(-1, -2) for operand in (x, w))
    y = np.full((x @ w).shape, np.nan, np.float32)
    bind_matmul(x, w, y, np.zeros(WORKSPACE, np.uint8))()
    np.testing.assert_array_equal(y, x @ w)  # integers: sums are exact in any order


def test_unsupported_request_is_named() -> None:
    x, y = np.zeros((2, 3), np.float32), np.zeros((2, 2), np.float64)
    with pytest.raises(RunError, match="MatmulAlgoGetHeuristic says CUBLAS_STATUS_NOT_SUPPORTED"):
        bind_matmul(x, x.reshape(3, 2), y, np.zeros(WORKSPACE, np.uint8))


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "off")
    assert unavailable_reason() == "NETSPEC_CUBLASLT=off"
    assert "was not found" in str(load("/nowhere/libcublasLt.so.13"))
    assert "was not found" in str(load("libm.so.6"))  # a library, but not cuBLASLt
    assert "is cuBLASLt 11.11.3; 12.0 or newer is needed" in str(load(stand_in(111103)))
