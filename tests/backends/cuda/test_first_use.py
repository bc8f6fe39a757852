"""The first use of a GPU: its check is stored, failed kernels are disabled, and `auto` falls back to the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netspec.backends import verification
from netspec.backends.cuda.device import CudaDevice
from netspec.backends.device_registry import ReferenceDevice, open_device
from netspec.backends.notices import wait_notices
from netspec.backends.op_call import call
from netspec.backends.verification import DeviceCheck, Verification, store_result, stored
from netspec.distributed.world import acting_as
from netspec.graph.ops.elementwise import Add
from tests.backends.cuda.conftest import Install
from tests.backends.test_cuda import Worker


def failing(name: str, kind: Any) -> Verification:
    return Verification("cuda:0", True, (DeviceCheck(name, kind, "failed", reason="the result is 2"),), 3.0)


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NETSPEC_VERIFY")
    monkeypatch.setattr(CudaDevice, "descriptions", lambda _: {"cuda": "CuPy 14"})
    monkeypatch.setattr(CudaDevice, "identity", lambda _: ["H200", 13000])


@pytest.mark.usefixtures("cached")
def test_first_use_of_a_gpu_disables_failed_kernels(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    runs = []

    def stand_in(device: str, **options: Any) -> Verification:
        runs.append((device, options))
        return failing("cuda:ElementwiseKernel", "kernel")

    monkeypatch.setattr(verification, "verify", stand_in)
    notices: list[str] = []
    wait_notices.set_listener(notices.append)
    for _ in range(2):
        device = open_device()
        assert device.name == "cuda"
        assert runs == [("cuda:0", {"quick": True})], "the result is stored"
        assert notices == ["checking cuda:0 (first use only, at most 20 s)…"]
    wait_notices.set_listener(None)
    node = call(Add(), [1.0], [2.0]).node
    names = {kernel.label: reason for kernel, reason in device.candidates(node).rejected}
    assert names["cuda:ElementwiseKernel"] == "it failed the check of this device: the result is 2"
    assert "cuda:ElementwiseKernel is disabled" in device.warnings[0]
    assert open_device("cuda").disabled_kernels == device.disabled_kernels


@pytest.mark.usefixtures("cached")
def test_auto_is_the_cpu_if_a_training_fails(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    monkeypatch.setattr(verification, "verify", lambda *_, **__: failing("training of a net", "training"))
    device = open_device()
    assert device.name == "cpu"
    assert device.remark == (
        "running on the CPU, not on a GPU: `cuda:0` failed its check: training of a net failed: the result is 2; "
        "please report it with the output of `netspec devices --verify --device cuda:0 --json`"
    )
    named = open_device("cuda")
    assert named.name == "cuda", "the user's choice"
    assert named.warnings[0].startswith("training of a net failed the check of `cuda:0`: the result is 2")


@pytest.mark.usefixtures("cached")
def test_result_is_stored_by_gpu_and_libraries_unless_it_is_transient(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    device = CudaDevice()
    result = failing("a:Bad", "kernel")
    store_result(device, Verification("cuda:0", True, (), 1.0, final=False))
    assert stored(device) is None
    store_result(device, result)
    assert stored(device) == result
    monkeypatch.setattr(CudaDevice, "identity", lambda _: ["another driver"])
    assert stored(device) is None


@pytest.mark.usefixtures("cached")
def test_failure_of_one_worker_holds_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    other = failing("a:Bad", "kernel")

    class Pair(Worker):
        def all_gather_objects(self, value: Any) -> list[Any]:
            return [value, other.as_json()]

    good = Verification("cuda:0", True, (DeviceCheck("a:Bad", "kernel", "passed"),), 3.0)
    monkeypatch.setattr(verification, "verify", lambda *_, **__: good)
    with acting_as(Pair(0, 2)):
        result = verification.verified_on_first_use(ReferenceDevice())
    assert result is not None
    assert list(result.disabled_kernels) == ["a:Bad"]


def test_switched_off_check_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETSPEC_VERIFY", "off")
    assert verification.verified_on_first_use(ReferenceDevice()) is None
