"""Settings of all tests: hypothesis profiles, the `gpu` marker, terminal width, and threads."""

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

# pytest-xdist workers share the cores: if each used all threads, threads would wait for cores, and a step of ResNet-20
# would take eight times as long. Tests that need several threads use `using_threads`.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))))


# Test files need not survive a power failure, and syncing takes a tenth of the time of a test that trains.
pytest.MonkeyPatch().setattr(os, "fsync", lambda file: None)


@cache
def why_no_gpu(required: int = 1) -> str | None:
    """Return why tests marked `gpu`, or `gpu(2)`, cannot run here; None if they can."""
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
    """Initialize CUDA, which reads its environment only once, before tests change the environment."""
    if has_gpu_driver():
        why_no_gpu()


@pytest.fixture(autouse=has_gpu_driver())
def on_the_processor(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide GPUs from tests without the `gpu` marker, so that `auto` is the CPU.

    Does not use the fixture `monkeypatch`: it would be created here, before all other fixtures, and would undo the
    test's changes only after these have cleaned up.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("gpu") is None:
            patch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield


@pytest.fixture
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new, empty folder during the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Collecting tests creates millions of objects that are never freed: no garbage collection should search them.
gc.disable()


def pytest_collection_finish() -> None:
    """Enable garbage collection, which only searches objects created from here on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # compiling a kernel creates a million objects, hardly any of them in cycles
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `gpu` without a GPU; NETSPEC_REQUIRE_GPU=1 fails them instead.

    The value is the number of GPUs that must be present. A test that needs more GPUs is skipped.
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
