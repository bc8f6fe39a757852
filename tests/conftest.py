"""Settings of all tests: hypothesis profiles, the `gpu` marker, a terminal of known width, a share of the cores."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from netspec.backends.cuda.detect import has_gpu_driver

# `ci`, the default, draws the same examples on every machine; `explore` is for looking for new failures.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Golden texts must not depend on the terminal or the CI system that the tests run in.
os.environ.update(NO_COLOR="1", COLUMNS="120")
os.environ["NETSPEC_VERIFY"] = "off"  # the simulated GPUs of tests do not exist in other processes
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # for the tests that import onnxruntime themselves
for variable in ("FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "GITHUB_ACTIONS"):
    os.environ.pop(variable, None)

# Workers share the cores out: with two threads each, two on two cores wait for threads that have no core, and a step
# of ResNet-20 takes eight times as long. What must hold on several threads asks for them: `using_threads`.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))))


# Files of tests need not survive a power failure, and a test of training waits for the disk for a tenth of its time.
pytest.MonkeyPatch().setattr(os, "fsync", lambda file: None)


@cache
def why_no_gpu(required: int = 1) -> str | None:
    """Why tests marked `gpu`, or `gpu(2)`, cannot run here; None where they can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy warns of CUDA libraries that no test may need
            import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no usable GPU: {error}"
    return (
        None if count >= required else f"{count or 'no'} GPU, and {required} are needed" if required > 1 else "no GPU"
    )


def pytest_sessionstart() -> None:
    """CUDA looks at its environment once: before tests change that."""
    if has_gpu_driver():
        why_no_gpu()


@pytest.fixture(autouse=has_gpu_driver())
def on_the_processor(request: pytest.FixtureRequest) -> Iterator[None]:
    """Only tests with the `gpu` marker use a GPU: for all others, `auto` is the CPU.

    The fixture `monkeypatch` would be made here, before all others, and undo what tests do after these have cleaned up.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("gpu") is None:
            patch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield


@pytest.fixture
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder during the test: a new one, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# What is collected stays to the end, millions of objects: no search for garbage need look through it.
gc.disable()


def pytest_collection_finish() -> None:
    """Search for garbage from here on, among new objects alone."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # compiling a kernel makes a million objects, and hardly any of them in cycles
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `gpu` where there is none; NETSPEC_REQUIRE_GPU=1 fails them, so that skipping cannot pass.

    So many GPUs are required: what needs two is skipped where one is required and there, and says so.
    """
    marker = item.get_closest_marker("gpu")
    if marker is None:
        return
    reason = why_no_gpu(*marker.args)
    if reason is None:
        return
    required = int(os.environ.get("NETSPEC_REQUIRE_GPU", "0"))
    if required and (required >= max(marker.args, default=1) or why_no_gpu(required) is not None):
        pytest.fail(f"NETSPEC_REQUIRE_GPU={required}, and {reason}", pytrace=False)
    pytest.skip(reason)
