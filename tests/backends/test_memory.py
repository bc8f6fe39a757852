"""Free memory, read from files as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from netspec.backends.device_registry import CpuDevice
from netspec.backends.memory import free_memory
from netspec.compile import Compiler, ProgramKind
from netspec.errors import RunError
from netspec.schema.load import load_net

KIB = 1024


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   5000 kB\nHugePages_Total:   0\n")
    return file


def group(folder: Path, limit: str) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{3000 * KIB}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {1000 * KIB}\nactive_file 2\n")
    return folder


def test_single_machine(meminfo: Path, tmp_path: Path) -> None:
    assert free_memory(meminfo, tmp_path / "no") == 5000 * KIB
    assert free_memory(meminfo, group(tmp_path, "max")) == 5000 * KIB


@pytest.mark.parametrize(("limit", "free"), [(4000, 2000), (9000, 5000), (1000, 0)])
def test_the_limit_of_the_group(meminfo: Path, tmp_path: Path, limit: int, free: int) -> None:
    assert free_memory(meminfo, group(tmp_path, str(limit * KIB))) == free * KIB


def test_system_without_shared_memory_folder(tmp_path: Path) -> None:
    assert free_memory(tmp_path / "no") is None
    (tmp_path / "old").write_text("MemTotal: 8000 kB\n")
    assert free_memory(tmp_path / "old") is None


@pytest.mark.parametrize(
    ("free", "message"),
    [(1000, "not even one sample fits"), (10**6, r"largest batch that fits has [12]?[0-9] samples"), (None, "states$")],
)
def test_out_of_memory_error_shows_the_plan(free: int | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = load_net(Path(__file__).parents[2] / "model_zoo/lenet_mnist/net.yaml")
    compiler = Compiler(net, device="reference")
    monkeypatch.setattr(CpuDevice, "allocate", lambda self, nbytes: allocate(self, 1 << 50))
    monkeypatch.setattr(CpuDevice, "free_bytes", lambda self: free)
    match = rf"(?s)out of memory.*batches of 32 need .* GB for the program `predict`, in addition to .*{message}"
    with pytest.raises(RunError, match=match):
        compiler.program(ProgramKind.PREDICT, 32)


allocate = CpuDevice.allocate


def test_allocation_beyond_memory_is_reported() -> None:
    for size in (1 << 50, 1 << 63):
        with pytest.raises(RunError, match=r"out of memory: .* GB are needed at once"):
            CpuDevice().allocate(size)
