"""Every kernel of the backend `cudnn` against the reference, with a stand-in for the library on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from netspec.backends.backend import load_kernels
from netspec.backends.cuda import launch
from netspec.backends.cuda.cudnn import library
from netspec.graph.kernel import Kernel, registered_kernels
from tests.backends.cuda.calls import check
from tests.backends.cuda.cudnn import fake
from tests.backends.cuda.cudnn.fake import forget
from tests.backends.cuda.emulator import Emulator, compiler
from tests.backends.cuda.fake import Machine

load_kernels("cudnn")
pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run what follows a convolution with")


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "cudnn", fake)
    before = launch.use(Emulator())
    yield
    launch.use(before)


@pytest.mark.parametrize("kernel", registered_kernels(["cudnn"]), ids=lambda value: value.label)
@pytest.mark.slow
def test_agrees_with_the_reference_repeatedly_and_keeps_its_operands(kernel: Kernel) -> None:
    check(kernel, rounded_twice=True)  # the library rounds its results before the epilogue


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("backend_version", lambda: 90100, "cuDNN is 9.1.0; 9.19 or newer is needed"),
     ("__version__", "1.24.0", "nvidia-cudnn-frontend is 1.24.0; expected: 1.19 up to 1.24, which is too new"),
     ("__version__", "1.23.0", None)],
)  # fmt: skip
def test_versions(name: str, value: object, words: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", Machine().cupy())
    monkeypatch.setattr(fake, name, value)
    forget()
    assert library.unavailable_reason() == words
    forget()


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", Machine().cupy())
    monkeypatch.setitem(sys.modules, "cudnn", None)
    forget()
    assert library.unavailable_reason() == "the package nvidia-cudnn-frontend is not installed"
    forget()
    monkeypatch.setenv(library.SETTING, "off")
    assert library.unavailable_reason() == "NETSPEC_CUDNN=off"
