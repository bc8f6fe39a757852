"""The package `cudnn` (nvidia-cudnn-frontend) and the library that it loads (nvidia-cudnn-cu13, nvidia-cudnn-cu12)."""

from __future__ import annotations

import ctypes
import json
import os
from contextlib import suppress
from functools import cache
from typing import Any

from netspec.backends.cuda import cuda_version, launch, wheel_libraries
from netspec.backends.cuda.cudnn.device_properties import CHIPS, properties
from netspec.backends.cuda.gpus import GPUS, target

SETTING = "NETSPEC_CUDNN"
OLDEST = (9, 19, 0)
"""Minimum version of the library."""
FRONTENDS = (1, 19), (1, 24)
"""Minimum version of the frontend, and the first version that needs other packages or fails."""


def unavailable_reason() -> str | None:
    """Return why it cannot be used, for the user; None if it can."""
    if os.environ.get(SETTING) == "off":
        return f"{SETTING}=off"
    return _missing_reason()


@cache
def _missing_reason() -> str | None:
    return "the package cupy is not installed" if cuda_version() is None else _unusable_reason()


@cache
def _unusable_reason() -> str | None:
    preload()
    try:
        module = frontend()
        installed = version(module)
    except ImportError:
        return "the package nvidia-cudnn-frontend is not installed"
    except (OSError, RuntimeError) as error:
        return f"cuDNN was not found: {str(error).splitlines()[0]}"
    first, after = FRONTENDS
    if not first <= tuple(map(int, module.__version__.split(".")[:2])) < after:
        required = f"{'.'.join(map(str, first))} up to {'.'.join(map(str, after))}, which is too new"
        return f"nvidia-cudnn-frontend is {module.__version__}; expected: {required}"
    if installed < OLDEST:
        return f"cuDNN is {'.'.join(map(str, installed))}; {'.'.join(map(str, OLDEST[:2]))} or newer is needed"
    return None


def preload() -> None:
    """Load the libraries that cuDNN and its frontend look up by name, from the wheels that contain them.

    cuDNN needs NVRTC to compile kernels, without which many graphs have no plan. The frontend calls the CUDA runtime
    for attention, and fails if it finds two versions of it. Both are loaded in the version that CuPy was built for.
    """
    cuda = cuda_version()
    major = "*" if cuda is None else cuda[0]
    runtime = [] if cuda is None else [f"libcudart.so.{major}"]
    for pattern in (*runtime, f"libnvrtc-builtins.so.{major}.*", f"libnvrtc.so.{major}", "libcudnn.so.9"):
        for path in wheel_libraries(pattern):
            with suppress(OSError):
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def frontend() -> Any:
    """The frontend package. Raises `ImportError` if it is not installed."""
    import cudnn

    return cudnn


def version(module: Any) -> tuple[int, int, int]:
    """Version of the library."""
    number = int(module.backend_version())
    return number // 10000, number // 100 % 100, number % 100


@cache
def _handle(module: Any, device: int) -> int:
    return int(module.create_handle())


def handle() -> int:
    """The library's handle on the current GPU: one per process and GPU."""
    return _handle(frontend(), launch.engine.device())


def settings() -> dict[str, Any]:
    """Arguments for making a graph: for the current GPU, or for the one that is planned for."""
    name = target()
    return {"handle": handle()} if name is None else _deviceless(frontend(), name)


@cache
def _deviceless(module: Any, name: str) -> dict[str, Any]:
    major, minor = GPUS[name].capability
    device = module.create_device_properties(json.dumps(properties(name)))
    return {"device_property": device, "sm_version": major * 10 + minor}


def planning_caveat(name: str) -> str | None:
    """Return why the library cannot plan for an absent GPU, for the user; None if it can."""
    if os.environ.get(SETTING) == "off":
        return f"{SETTING}=off"
    if name not in CHIPS:
        return "the properties of the GPU are unknown"
    return _unusable_reason() or _planning_caveat(frontend(), name)


@cache
def _planning_caveat(module: Any, name: str) -> str | None:
    try:
        _deviceless(module, name)
    except RuntimeError as error:  # it needs the driver's library, but not the GPU
        return f"cuDNN cannot plan here: {str(error).splitlines()[0]}"
    return None
