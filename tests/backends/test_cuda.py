"""The device `cuda`: what it says where it cannot be, its plumbing with NumPy in CuPy's place, and the real thing."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from netspec.backends.device import open_device
from netspec.errors import InputError
from tests.backends.test_engine import NETS, losses


class Trouble(Exception):
    """Stands for `CUDARuntimeError`."""


def stand_in(count: int | Exception) -> ModuleType:
    """A module that is CuPy as far as the device uses it, on the processor's memory."""

    def devices() -> int:
        if isinstance(count, Exception):
            raise count
        return count

    made = ModuleType("cupy")
    made.__dict__.update({name: getattr(np, name) for name in ("zeros", "uint8", "asarray", "copyto")})
    made.__dict__["asnumpy"] = np.array
    made.__dict__["cuda"] = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=devices, CUDARuntimeError=Trouble))
    return made


@pytest.mark.parametrize(
    ("cupy", "words"),
    [
        (None, "needs CuPy"),
        (stand_in(0), "needs an NVIDIA GPU\n"),
        (stand_in(Trouble("cudaErrorInsufficientDriver")), "cudaErrorInsufficientDriver"),
    ],
    ids=["no package", "no GPU", "no driver"],
)
def test_where_it_cannot_be_it_says_why(cupy: ModuleType | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(InputError) as caught:
        open_device("cuda")
    assert words in f"{caught.value}\n"


def test_its_plumbing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but CuPy itself: arenas, views, copies in and out, the choice of kernels."""
    monkeypatch.setitem(sys.modules, "cupy", stand_in(1))
    path, batch, _, rate = NETS["lenet"]
    assert open_device("cuda").kernels == ("reference",)
    # The same kernels on the same arrays; only NumPy's products may have more threads here.
    expected = losses(path, batch, 3, rate, device="reference")
    np.testing.assert_allclose(losses(path, batch, 3, rate, device="cuda"), expected, rtol=1e-6)


@pytest.mark.gpu
def test_the_loss_curve_is_that_of_the_processor() -> None:
    path, batch, steps, rate = NETS["lenet"]
    expected = losses(path, batch, steps, rate, device="reference")
    # cuBLAS adds in another order, and may use TF32 where the user allows it: within 1e-3 of the processor's float32.
    np.testing.assert_allclose(losses(path, batch, steps, rate, device="cuda"), expected, rtol=1e-3)
