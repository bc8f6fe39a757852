"""The device `cuda`: what it says where it cannot be, its plumbing with NumPy in CuPy's place, and the real thing."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from netspec.backends.cublaslt.library import SETTING
from netspec.backends.cuda import launch
from netspec.backends.device import open_device
from netspec.errors import InputError, RunError
from netspec.graph.types import DType
from netspec.parallel.base import Communicator
from netspec.parallel.world import acting_as
from tests.backends.cublaslt.library import stand_in
from tests.backends.cuda.emulator import compiler
from tests.backends.cuda.fake import Gpu, Machine, StreamEngine, Trouble
from tests.backends.cudnn import fake
from tests.backends.cudnn.fake import forget
from tests.backends.test_engine import NETS, losses


@pytest.mark.parametrize(
    ("cupy", "words"),
    [
        (None, "needs CuPy"),
        (Machine(0).cupy(), "needs an NVIDIA GPU\n"),
        (Machine(Trouble("cudaErrorInsufficientDriver")).cupy(), "cudaErrorInsufficientDriver"),
    ],
    ids=["no package", "no GPU", "no driver"],
)
def test_where_it_cannot_be_it_says_why(cupy: ModuleType | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(InputError) as caught:
        open_device("cuda")
    assert words in f"{caught.value}\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [("cuda:1", "expected: cuda:0, the only GPU"), ("cuda:", "unknown device"), ("cuda:-1", "unknown device"),
     ("cpu:0", "unknown device"), ("cuda:99999", "unknown device")],
)  # fmt: skip
def test_a_gpu_that_is_not_there(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", Machine().cupy())
    with pytest.raises(InputError) as caught:
        open_device(name)
    assert words in f"{caught.value}"


def test_a_gpu_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", Machine().cupy())
    monkeypatch.setattr(Gpu, "capability", "61")
    with pytest.raises(InputError, match=r"(?s)GPU 0 is too old.*compute capability 7.0 .*got: 6.1"):
        open_device("cuda")
    monkeypatch.setattr(Gpu, "capability", "75")
    assert open_device("cuda").narrow == (DType.FLOAT16,)
    monkeypatch.setattr(Gpu, "capability", "120")
    assert open_device("cuda").narrow == (DType.BFLOAT16, DType.FLOAT16)


def test_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", Machine().cupy())
    device = open_device("cuda")
    with pytest.raises(RunError, match=r"(?s)9.0 GB of the GPU's are needed at once.*2.0 GB are free"):
        device.allocate(9 * 10**9)


def test_several_workers_are_not_left_to_train_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reference kernels would take a sum over workers for what one worker has."""
    monkeypatch.setitem(sys.modules, "cupy", Machine(2).cupy())
    group = Communicator()
    group.size = 2
    with acting_as(group), pytest.raises(InputError, match="several workers do not compute on GPUs yet"):
        open_device("cuda:1")


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")
def test_its_plumbing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but CuPy itself: arenas, views, copies in and out, the choice of kernels, and the kernels in a net."""
    machine = Machine(eager=range(4))  # array code is done at once, and so is all else; two devices are opened
    monkeypatch.setitem(sys.modules, "cupy", machine.cupy())
    monkeypatch.setattr(launch, "engine", StreamEngine(machine))
    (path, _, _, rate), batch = NETS["lenet"], 2
    monkeypatch.setenv(SETTING, stand_in())
    monkeypatch.setitem(sys.modules, "cudnn", fake)
    forget()
    assert open_device("cuda:0").kernels == ("reference", "cuda", "cublaslt", "cudnn")
    # Sums in another order: some digits of float32 in three steps.
    expected = losses(path, batch, 3, rate, device="reference")
    np.testing.assert_allclose(losses(path, batch, 3, rate, device="cuda"), expected, rtol=1e-5)
    assert machine.recorded, "calls of libraries are not part of a graph"
    forget()


@pytest.mark.gpu
def test_the_loss_curve_is_that_of_the_processor() -> None:
    path, batch, steps, rate = NETS["lenet"]
    expected = losses(path, batch, steps, rate, device="reference")
    # cuBLAS adds in another order, and may use TF32 where the user allows it: within 1e-3 of the processor's float32.
    np.testing.assert_allclose(losses(path, batch, steps, rate, device="cuda"), expected, rtol=1e-3)
