"""The checks of a device, with stand-ins for kernels that compute wrongly, fail or run out of memory."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import netspec
from netspec.backends.device import Device
from netspec.backends.device_registry import CpuDevice
from netspec.backends.failures import OutOfMemory
from netspec.backends.op_call import call
from netspec.backends.reference.kernels import ForwardKernel
from netspec.backends.verification import DeviceCheck, TimeLimits, Verification, verify
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.ops.elementwise import Add, Mul, Sub
from netspec.graph.ops.linear import MatMul
from netspec.graph.types import DType
from netspec.graph.value import Node
from netspec.tools.verification import __main__ as program
from netspec.tools.verification.op_calls import quick_calls


@kernel(Add, backend="stand_in", rank=5)
class WrongKernel(ForwardKernel):
    """Adds 1 to the last element of the result."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        run, (result,) = super().bind(node, buffers), buffers.outputs

        def wrong() -> None:
            assert result is not None
            run()
            result.reshape(-1)[-1:] += 1

        return wrong


@kernel(Sub, backend="stand_in", rank=5)
class FullKernel(ForwardKernel):
    """Runs out of memory."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        raise OutOfMemory("out of memory: 80 GB are needed at once")


@kernel(Mul, backend="stand_in", rank=5)
class RaisingKernel(ForwardKernel):
    """Can't be launched."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        raise ValueError("invalid\n configuration argument")


@kernel(MatMul, backend="stand_in", rank=5)
class RightKernel(ForwardKernel):
    """Computes what the reference does."""


class StandInDevice(CpuDevice):
    """The CPU with these kernels."""

    backends: ClassVar[tuple[str, ...]] = ("reference", "stand_in")
    kernels: ClassVar[tuple[str, ...]] = ("reference", "stand_in")
    low_precision_dtypes: tuple[DType, ...] = ()


class BrokenDevice(StandInDevice):
    """A device that cannot copy arrays any more."""

    def fetch(self, array: Any) -> Any:
        raise RuntimeError("an illegal memory access was encountered")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device with stand-in kernels, checked on calls of four ops."""
    x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    opened = StandInDevice()
    monkeypatch.setattr(program, "open_device", lambda _: opened)
    monkeypatch.setattr(program, "quick_calls", lambda: [call(op(), x, x) for op in (Add, Sub, Mul, MatMul)])
    return opened


def events(done: dict[str, Any] | None = None, only: str = "", seconds: float = 60) -> list[dict[str, Any]]:
    """The events of the short form."""
    result: list[dict[str, Any]] = []
    program.run_checks(
        {"device": "it", "quick": True, "only": only, "seconds": seconds, "done": done or {}},
        lambda event, **fields: result.append({"event": event, **fields}),
    )
    return result


def checks(of: list[dict[str, Any]]) -> dict[str, DeviceCheck]:
    return {event["check"]["name"]: DeviceCheck(**event["check"]) for event in of if event["event"] == "check"}


@pytest.mark.usefixtures("device")
def test_each_kernel_is_checked_and_a_wrong_one_is_not_used_in_the_training() -> None:
    result = events()
    found = checks(result)
    assert {name: check.status for name, check in found.items()} == {
        "stand_in:WrongKernel": "failed",
        "stand_in:FullKernel": "skipped",
        "stand_in:RaisingKernel": "failed",
        "stand_in:RightKernel": "passed",
        "training of a convolutional net in float32": "skipped",
    }
    assert found["stand_in:WrongKernel"].reason == (
        "Add-2x2-2x2 (plain plain plain): 1 of 4 elements differ from the reference, by up to 1; "
        "the largest element is 8"
    )
    assert found["stand_in:FullKernel"].reason == "out of memory: 80 GB are needed at once"
    assert str(found["stand_in:RaisingKernel"].reason).endswith("ValueError: invalid configuration argument")
    transient = [event["check"]["name"] for event in result if event["event"] == "check" and event["transient"]]
    assert transient == ["stand_in:FullKernel", "training of a convolutional net in float32"]
    assert result[-1] == {"event": "done"}
    assert "out of memory" in str(found["training of a convolutional net in float32"].reason)


def test_training_detects_a_wrong_kernel_that_no_sample_reached(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "quick_calls", list)
    device.disabled_kernels = {f"stand_in:{name}Kernel": "not in this test" for name in ("Full", "Raising", "Right")}
    (check,) = checks(events(only="training")).values()
    assert check.status == "failed"
    assert str(check.reason).startswith("the loss of step 1 is ")
    result = Verification("it", True, (check,), 1.0)
    assert str(result.distrust_reason).startswith("training of a convolutional net in float32 failed: the loss of ")


def test_training_passes_without_the_wrong_kernels(device: Device) -> None:
    done = {
        name: vars(DeviceCheck(name, "kernel", "failed", reason="wrong"))
        for name in ("stand_in:WrongKernel", "stand_in:FullKernel", "stand_in:RaisingKernel")
    }
    result = events(done)
    assert {name: check.status for name, check in checks(result).items()} == {
        "stand_in:RightKernel": "passed", "training of a convolutional net in float32": "passed",
    }  # fmt: skip
    assert device.disabled_kernels["stand_in:WrongKernel"] == "it failed the check of this device: wrong"


@pytest.mark.usefixtures("device")
def test_no_check_begins_after_the_time() -> None:
    assert [event["event"] for event in events(seconds=-1)] == ["plan", "done"]


def test_process_ends_if_the_device_is_unusable(monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    monkeypatch.setattr(program, "open_device", lambda _: BrokenDevice())
    result = events(only="Right")
    assert result[-1] == {"event": "restart"}
    assert "illegal memory access" in str(checks(result)["stand_in:RightKernel"].reason)


@pytest.mark.usefixtures("device")
def test_kernels_that_this_machine_cannot_run_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RightKernel, "unavailable_reason", lambda _: "the CPU has no AVX-512")
    (check,) = checks(events(only="Right")).values()
    assert (check.status, check.reason) == ("skipped", "the CPU has no AVX-512")


@pytest.mark.slow
def test_short_form_has_a_call_of_most_ops() -> None:
    names = [each.op.name for each in quick_calls()]
    assert len(names) == len(set(names))
    assert len(names) > 100
    assert {"Conv", "MatMul", "Softmax", "MaxPool", "Attention"} <= set(names)


@pytest.mark.slow
def test_short_form_runs_in_a_process_of_its_own() -> None:
    result = verify("cpu", quick=True, only="onednn:MatMulKernel", limits=TimeLimits(120, 60))
    assert result.passed
    assert [check.name for check in result.checks] == ["onednn:MatMulKernel"]
    assert result.checks[0].calls > 0


@pytest.mark.gpu
def test_gpu_passes() -> None:
    result = netspec.verify_device("cuda")
    assert result.passed, result.warnings()
