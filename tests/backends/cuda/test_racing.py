"""Kernels race by the clock of the GPU; winners are stored by the GPU and its libraries. CuPy is simulated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from netspec.backends.cuda.gpus import GPUS, UNKNOWN
from netspec.backends.device_registry import open_device
from netspec.backends.tuning import Tuner
from tests.backends.cuda.fake import Machine


class Stream:
    """Work in the order of submission, and the time at which each part ends, in milliseconds."""

    now = 0.0


class Event:
    """Stands in for CuPy's event."""

    def __init__(self) -> None:
        self.at, self.waited = -1.0, False

    def record(self) -> None:
        self.at = Stream.now

    def synchronize(self) -> None:
        self.waited = True


def elapsed(start: Event, stop: Event) -> float:
    assert stop.waited
    return stop.at - start.at


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Opens a device on a GPU with a name, a driver version and a CUDA version."""

    def open_(name: str = "NVIDIA H200", driver: int = 13000, cuda: int = 13000) -> Any:
        cupy: Any = Machine().cupy()
        cupy.__version__ = "14.0"
        cupy.cuda.Event, cupy.cuda.get_elapsed_time = lambda **_: Event(), elapsed
        cupy.cuda.runtime.getDevice = lambda: 0
        cupy.cuda.runtime.getDeviceProperties = lambda _: {"name": name.encode(), "major": 9, "minor": 0}
        cupy.cuda.runtime.driverGetVersion = lambda: driver
        cupy.cuda.runtime.runtimeGetVersion = lambda: cuda
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        return open_device("cuda")

    return open_


def test_calls_are_timed_by_the_clock_of_the_gpu(gpu: Callable[..., Any]) -> None:
    """The CPU returns at once; the result is the mean of as many calls as fill the time, after a warm-up call."""
    calls = SimpleNamespace(count=0)

    def call() -> None:
        calls.count += 1
        Stream.now += 0.25 if calls.count > 1 else 1.0  # milliseconds

    assert gpu().timed(call, 0.01) == pytest.approx(0.25e-3)
    assert calls.count == 1 + 10


def test_ratings_belong_to_the_present_gpu(gpu: Callable[..., Any]) -> None:
    assert gpu("NVIDIA H200").rates is GPUS["h200"].rates
    assert gpu("NVIDIA A100-SXM4-80GB").rates is GPUS["a100"].rates
    assert gpu("Tesla T4").rates is GPUS["t4"].rates
    assert gpu("NVIDIA GeForce RTX 4090").rates is GPUS["rtx4090"].rates
    assert gpu("NVIDIA GH300").rates is GPUS[UNKNOWN].rates  # not a known GPU


def test_winners_belong_to_a_gpu_a_driver_and_a_cuda_version(gpu: Callable[..., Any]) -> None:
    files = {
        Tuner(gpu(*properties), "full")._file
        for properties in (("NVIDIA H200",), ("NVIDIA H100",), ("NVIDIA H200", 12080), ("NVIDIA H200", 13000, 12080))
    }
    assert len(files) == 4
    assert Tuner(gpu(), "full")._file in files
    planned = Tuner(open_device("h200", "full"), "full")
    assert planned._file not in files
