"""The device `cuda`: messages if it is unavailable, its code with simulated CuPy, and trainings on a real GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from netspec.backends.cuda import launch
from netspec.backends.cuda.cublaslt.library import SETTING
from netspec.backends.device_registry import open_device
from netspec.distributed.backends import nccl as nccl_backend
from netspec.distributed.communicators.base import Communicator
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.base import Strategy
from netspec.distributed.world import acting_as
from netspec.errors import InputError, RunError
from netspec.graph.types import DType
from netspec.schema.load import load_train
from netspec.training.compiler import training_compiler
from tests.backends.cuda import nccl
from tests.backends.cuda.cublaslt.library import stand_in
from tests.backends.cuda.cudnn import fake
from tests.backends.cuda.cudnn.fake import forget
from tests.backends.cuda.emulator import compiler
from tests.backends.cuda.fake import Gpu, Machine, StreamEngine, Trouble
from tests.backends.test_engine import NETS, losses

NET = """
netspec: 1
inputs: {x: {shape: [3]}, label: {shape: [], dtype: int32}}
layers: [{name: fc1, type: Dense, units: 4}, {name: fc2, type: Dense, units: 2}]
losses: [{type: SparseCategoricalCrossentropy, from: [fc2, label], from_logits: true}]
"""


@pytest.mark.parametrize(
    ("cupy", "words"),
    [
        (None, "needs CuPy"),
        (Machine(0).cupy(), "needs an NVIDIA GPU\n"),
        (Machine(Trouble("cudaErrorInsufficientDriver")).cupy(), "cudaErrorInsufficientDriver"),
    ],
    ids=["no package", "no GPU", "no driver"],
)
def test_impossible_hogwild_gives_a_reason(
    cupy: ModuleType | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(InputError) as caught:
        open_device("cuda")
    assert words in f"{caught.value}\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [("cuda:1", "expected: cuda:0, the only GPU"), ("cuda:", "unknown device"), ("cuda:-1", "unknown device"),
     ("cpu:0", "unknown device"), ("cuda:99999", "unknown device")],
)  # fmt: skip
def test_missing_gpu(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", Machine().cupy())
    with pytest.raises(InputError) as caught:
        open_device(name)
    assert words in f"{caught.value}"


def test_too_old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", Machine().cupy())
    monkeypatch.setattr(Gpu, "capability", "61")
    with pytest.raises(InputError, match=r"(?s)GPU 0 is too old.*compute capability 7.0 .*got: 6.1"):
        open_device("cuda")
    monkeypatch.setattr(Gpu, "capability", "70")
    with pytest.raises(InputError, match=r"(?s)too old for CUDA 13.*7.5 or higher.*got: 7.0.*pip install .*\[cuda12\]"):
        open_device("cuda")
    monkeypatch.setattr(Gpu, "capability", "75")
    assert open_device("cuda").low_precision_dtypes == (DType.FLOAT16,)
    monkeypatch.setattr(Gpu, "capability", "120")
    assert open_device("cuda").low_precision_dtypes == (DType.BFLOAT16, DType.FLOAT16)


def test_failed_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", Machine().cupy())
    device = open_device("cuda")
    with pytest.raises(RunError, match=r"(?s)9.0 GB of GPU memory are needed at once.*2.0 GB are free"):
        device.allocate(9 * 10**9)


class Worker(Communicator):
    """One of two workers on a host."""

    def __init__(self, rank: int, gpus: int) -> None:
        super().__init__()
        self.rank = self.host_rank = rank
        self.size = self.host_size = 2
        self._other = f"0000:{(1 - rank) % gpus:02x}:00.0"

    def all_gather_objects(self, value: Any) -> list[Any]:
        """Return the answers of both workers, which are on the same host."""
        actual = [value, [value[0], self._other]]
        return actual if self.is_first else actual[::-1]

    def describe(self) -> dict[str, Any]:
        return {"mpi": "MPI of the tests"}


@pytest.mark.parametrize("rank", [0, 1])
def test_each_worker_has_a_separate_gpu(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nccl.install(monkeypatch, Machine(2))
    with acting_as(Worker(rank, 2)):
        device = open_device("cuda")
        assert device._gpu.id == rank  # type: ignore[attr-defined]  # of a GPU's device
        assert nccl_backend.description() == "NCCL 2.27.7: 2 workers, started by MPI of the tests"
        with pytest.raises(InputError, match=r"(?s)a GPU of its own.*`device=.cuda.`.*cuda:1.` for 2 workers"):
            open_device("cuda:1")
    assert nccl_backend.description() == "NCCL 2.27.7, for several workers"


@pytest.mark.parametrize("rank", [0, 1])
def test_fewer_gpus_than_workers(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nccl.install(monkeypatch, Machine(1))
    words = r"(?s)fewer GPUs than workers.*a GPU for each worker.*1 GPU for 2 workers of the host .*`workers=1`"
    with acting_as(Worker(rank, 1)), pytest.raises(InputError, match=words):
        open_device("cuda")


def test_several_workers_need_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NCCL, each worker would use its own values in place of sums over workers."""
    nccl.install(monkeypatch, Machine(2)).available = False
    assert nccl_backend.description().startswith("no NCCL: a single worker; for several pip install")
    with acting_as(Worker(0, 2)), pytest.raises(InputError, match=r"(?s)need NCCL.*pip install 'nvidia-nccl"):
        open_device("cuda")


def test_strategy_without_gpu_support_gives_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nccl.install(monkeypatch, Machine(2))
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "train.yaml").write_text("""\
netspec: 1
net: net.yaml
data: {train: {source: npz, path: data.npz, batch_size: 8}}
solver: {type: SGD, learning_rate: 0.1}
train: {max_steps: 1}
parallel: {strategy: hogwild}
""")
    spec = load_train(tmp_path / "train.yaml")
    assert isinstance(spec.parallel, Strategy)
    group = Worker(0, 2)
    session = WorkerSession(Communicator(), spec.parallel)
    session.alone = False
    with acting_as(group), pytest.raises(InputError) as caught:
        training_compiler(spec, "cuda", session)
    (problem,) = caught.value.problems
    assert (problem.location.line, problem.path) == (6, "parallel.strategy")  # type: ignore[union-attr]  # it has a location
    assert problem.notes == (spec.parallel.host_only,)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")
def test_fake_library_matches_the_real_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts except CuPy itself: arenas, views, copies in and out, the choice of kernels, and a training step."""
    # Streams are eager, since array code runs at once; two devices are opened.
    machine = Machine(eager=range(4))
    monkeypatch.setitem(sys.modules, "cupy", machine.cupy())
    monkeypatch.setattr(launch, "engine", StreamEngine(machine))
    (path, _, _, rate), batch = NETS["lenet"], 2
    monkeypatch.setenv(SETTING, stand_in())
    monkeypatch.setitem(sys.modules, "cudnn", fake)
    forget()
    assert open_device("cuda:0").kernels == ("reference", "nccl", "cuda", "cublaslt", "cudnn")
    # Sums in another order differ in the last digits of float32 after three steps.
    expected = losses(path, batch, 3, rate, device="reference")
    np.testing.assert_allclose(losses(path, batch, 3, rate, device="cuda"), expected, rtol=1e-5)
    assert machine.recorded, "calls of libraries are not part of a graph"
    forget()


@pytest.mark.gpu
def test_loss_curve_equals_the_cpu_one() -> None:
    path, batch, steps, rate = NETS["lenet"]
    expected = losses(path, batch, steps, rate, device="reference")
    # cuBLAS adds in another order, and may use TF32 if the user allows it.
    np.testing.assert_allclose(losses(path, batch, steps, rate, device="cuda"), expected, rtol=1e-3)
