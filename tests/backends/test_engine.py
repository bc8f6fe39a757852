"""The CPU engine as a whole against the reference kernels: same losses, with any available backends."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from netspec.backends.backend import rounds_more
from netspec.backends.device_registry import CPU_BACKENDS, open_device
from netspec.backends.openmp import using_threads
from netspec.compile import Compiler, ProgramKind
from netspec.graph.types import DType
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD
from netspec.tools.verification.trainings import losses_of

ROOT = Path(__file__).parents[2]
NETS = {
    "lenet": (ROOT / "model_zoo/lenet_mnist/net.yaml", 32, 50, 2e-3),
    # In a ResNet, rounding soon changes the sign before some ReLU, and batch normalization amplifies that: a low rate
    # keeps the difference as small as rounding.
    "resnet20": (ROOT / "benchmarks/nets/resnet20.yaml", 4, 50, 1e-5),
}
RESNET = pytest.param("resnet20", marks=pytest.mark.exhaustive)
FEW = 10
"""Steps if convolutions are slow: those of the reference, and those in bfloat16 on a CPU without its instructions."""


def losses(path: Path, batch: int, steps: int, rate: float, device: str, dtype: DType = DType.FLOAT32) -> list[float]:
    """Return the losses of a training on synthetic samples, different in each step."""
    solver = SGD.model_validate({"type": "SGD", "momentum": 0.9, "learning_rate": 0.01})
    compiler = Compiler(load_net(path), solver=solver, device=device, seed=5, dtype=dtype)
    return losses_of(compiler.program(ProgramKind.TRAIN, batch), steps, rate, classes=10)


def bitwise_the_same(path: Path, batch: int, rate: float, dtype: DType) -> None:
    """Check that runs on several threads are bit-identical."""
    with using_threads(2):
        first, repeated = (losses(path, batch, 3, rate, "cpu", dtype) for _ in range(2))
    assert first == repeated


@cache
def by_reference(name: str) -> list[float]:
    """Return the losses with the reference kernels."""
    return losses(*NETS[name], device="reference")


@pytest.mark.parametrize("without", ["", "winograd", "onednn", "numba"])
@pytest.mark.parametrize("name", ["lenet", RESNET])
@pytest.mark.slow
def test_loss_curve_equals_the_reference_one(name: str, without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, batch, steps, rate = NETS[name]
    steps = FEW if without == "onednn" else steps
    left = [backend for backend in CPU_BACKENDS if backend != without]
    monkeypatch.setenv("NETSPEC_KERNELS", ",".join(left))
    assert without not in open_device("cpu").kernels
    expected = by_reference(name)[:steps]
    actual = losses(path, batch, steps, rate, device="cpu")
    # Sums in another order differ by 1e-7 at first. Training amplifies that: to 1.04e-4 after 100 steps of ResNet-20 on
    # one CPU, to 2.2e-4 after 96 steps of LeNet on one without AVX-512, less on others. Some kernels round several
    # times as much as sums do.
    more = any(map(rounds_more, left))
    np.testing.assert_allclose(actual, expected, rtol=5e-4 if more else 4e-4)
    assert abs(actual[0] - expected[0]) < 1e-6 * expected[0]
    bitwise_the_same(path, batch, rate, DType.FLOAT32)


@pytest.mark.parametrize("name", ["lenet", RESNET])
@pytest.mark.slow
def test_the_loss_curve_in_bfloat16_is_near_that_in_float32(name: str) -> None:
    path, batch, steps, rate = NETS[name]
    # With few samples, rounding changes the losses more.
    batch, steps = (4 * batch, FEW) if name == "resnet20" else (batch, steps)
    actual = losses(path, batch, steps, rate, "cpu", DType.BFLOAT16)
    # A loss is a mean over samples of sums of many values, each of which is rounded by up to 2⁻⁹.
    np.testing.assert_allclose(actual, losses(path, batch, steps, rate, "cpu"), rtol=2**-8)
    bitwise_the_same(path, batch, rate, DType.BFLOAT16)


@pytest.mark.slow
def test_the_reference_kernels_train_in_bfloat16_as_the_others_do() -> None:
    path, batch, _, rate = NETS["lenet"]
    expected = losses(path, batch, 5, rate, "reference", DType.BFLOAT16)
    # Values that differ in the last digit of float32 may be rounded to two different values of bfloat16.
    np.testing.assert_allclose(losses(path, batch, 5, rate, "cpu", DType.BFLOAT16), expected, rtol=2**-10)
    assert expected != losses(path, batch, 5, rate, "reference"), "it is rounded there too"
