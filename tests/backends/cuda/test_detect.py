"""`auto` selects a usable GPU, or else the CPU with a note; a broken GPU is an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.backends.cuda import detect, launch
from netspec.backends.device_registry import open_device
from netspec.cli import main
from netspec.distributed.world import acting_as
from netspec.errors import InputError, NetspecError, install_command
from tests.backends.cuda import nccl
from tests.backends.cuda.compile import Collector
from tests.backends.cuda.conftest import Install
from tests.backends.cuda.fake import Gpu, Machine, OutOfMemoryError, Trouble
from tests.backends.test_cuda import Worker

NET = """
netspec: 1
inputs: {x: {shape: [3]}, label: {shape: [], dtype: int32}}
layers: [{name: fc, type: Dense, units: 2}]
outputs: [fc]
losses: [{type: SparseCategoricalCrossentropy, from: [fc, label], from_logits: true}]
"""
TRAIN = """
netspec: 1
net: net.yaml
data:
  train: {source: npz, path: data.npz, batch_size: 2}
  test: {source: npz, path: data.npz, batch_size: 2}
solver: {type: SGD, learning_rate: 0.1}
train: {max_steps: 3}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "train.yaml").write_text(TRAIN)
    np.savez(tmp_path / "data.npz", x=np.eye(3, dtype=np.float32), label=np.arange(3, dtype=np.int32) % 2)
    before = launch.engine
    yield tmp_path
    launch.use(before)


def test_auto_opens_a_gpu_if_present(install: Install) -> None:
    install()
    opened = open_device()
    assert (opened.name, opened.remark) == ("cuda", None)


@pytest.mark.parametrize(
    ("capability", "cupy", "count", "words"),
    [
        ("61", "as made", 1, "the GPU 0 is too old for the device `cuda`: 6.1 ("),
        ("90", None, 1, f"needs CuPy: it is not installed ({install_command('cuda13')}"),
        ("90", "as made", 0, "needs an NVIDIA GPU: no GPU was found"),
    ],
    ids=["too old", "no package", "none to be seen"],
)
def test_unusable_gpu_falls_back_to_cpu_with_a_reason(
    capability: str, cupy: Any, count: int, words: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gpu, "capability", capability)
    install(cupy, count)
    opened = open_device()
    assert opened.name == "cpu"
    assert opened.remark is not None
    assert opened.remark.startswith("running on the CPU, not on a GPU: ")
    assert words in opened.remark


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_no_remark_without_gpu_or_if_hidden(hidden: str, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert (open_device().name, open_device().remark) == ("cpu", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(detect, "SIGNS", ())
    assert (open_device().name, open_device().remark) == ("cpu", None)


def test_excluded_kernels_fall_back_to_cpu(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    monkeypatch.setenv("NETSPEC_KERNELS", "numba")
    assert open_device().name == "cpu"
    assert "NETSPEC_KERNELS omits" in str(open_device().remark)


def _no_nvrtc() -> None:
    raise RuntimeError('\nFailure finding "libnvrtc.so.13 or libnvrtc.so.12"\nNo such file')


def test_broken_library_suggests_the_cpu(install: Install) -> None:
    install(count=Trouble("cudaErrorInsufficientDriver"))
    with pytest.raises(InputError, match=r"(?s)cudaErrorInsufficientDriver.*`device=\"cpu\"`"):
        open_device()
    install()
    sys.modules["cupy"].cuda.nvrtc.getSupportedArchs = _no_nvrtc
    with pytest.raises(InputError, match=r'(?s)needs NVRTC.*got: Failure finding "libnvrtc.*`device="cpu"`'):
        open_device()


@pytest.mark.parametrize(("rank", "gpus", "name"), [(0, 2, "cuda"), (1, 2, "cuda"), (0, 1, "cpu"), (1, 1, "cpu")])
def test_several_workers_agree(
    rank: int, gpus: int, name: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there are fewer GPUs than workers, all workers use the CPU."""
    install()
    nccl.install(monkeypatch, Machine(gpus))

    class Pair(Worker):
        def all_gather_objects(self, value: Any) -> list[Any]:
            return [value, value] if value is None else super().all_gather_objects(value)

    with acting_as(Pair(rank, gpus)):
        opened = open_device()
    assert opened.name == name
    assert ("fewer GPUs than workers: 1 GPU for 2 workers" in str(opened.remark)) == (name == "cpu")


@pytest.mark.parametrize("reason", ["", "running on the CPU, not on a GPU: a reason of its own"])
def test_problem_of_one_worker_applies_to_all(reason: str, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    nccl.install(monkeypatch, Machine(2))

    class Pair(Worker):
        def all_gather_objects(self, value: Any) -> list[Any]:
            assert value is None, "nothing is against it here"
            return [value, reason]

    with acting_as(Pair(0, 2)):
        opened = open_device()
    assert (opened.name, opened.remark or "") == ("cpu", reason)


def test_cpu_only_strategy_does_not_use_the_gpu(install: Install) -> None:
    install()
    opened = open_device(host_only="its workers write to one memory")
    assert (opened.name, opened.remark) == (
        "cpu", "running on the CPU, not on a GPU: its workers write to one memory",
    )  # fmt: skip
    assert open_device("cuda", host_only="a reason that nobody asked for").name == "cuda"


@pytest.mark.slow
def test_a_training_prints_its_device(
    install: Install, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    launch.use(Collector())  # runs no kernels: their results are not tested here
    assert main(["train", "train.yaml"]) == 0
    output = capsys.readouterr().out
    assert "3 steps on cuda" in output
    assert "note:" not in output
    monkeypatch.setattr(Gpu, "capability", "61")
    assert main(["train", "train.yaml", "--run-dir", "old"]) == 0
    output = capsys.readouterr().out
    assert "3 steps on cpu" in output
    assert output.count("note: running on the CPU, not on a GPU: the GPU 0 is too old") == 1
    assert main(["test", "train.yaml", "--weights", "old/weights.h5", "--json"]) == 0
    actual = capsys.readouterr()
    assert actual.err.count("note: running on the CPU") == 1
    assert actual.out.startswith("{")


def test_out_of_gpu_memory_suggests_the_cpu(install: Install, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = install()
    zeros, flag = machine._zeros, 1

    def full(shape: int, dtype: type) -> Any:
        if shape > flag:
            raise OutOfMemoryError
        return zeros(shape, dtype)

    vars(sys.modules["cupy"])["zeros"] = full
    assert main(["train", "train.yaml"]) == NetspecError.exit_status
    output = capsys.readouterr().err
    assert "out of memory" in output
    assert "`--device cpu`" in output
