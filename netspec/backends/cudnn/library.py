"""The package `cudnn` (nvidia-cudnn-frontend) and the library that it loads (nvidia-cudnn-cu13, nvidia-cudnn-cu12)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from netspec.backends.cuda import cuda_version, launch
from netspec.backends.cuda.wheels import wheel_libraries

SETTING = "NETSPEC_CUDNN"
OLDEST = (9, 19, 0)
"""Of the library."""
FRONTENDS = (1, 19), (1, 24)
"""The first version of the frontend, and the first that is too new: from there on it needs other packages, or fails."""


def why_missing() -> str | None:
    """Why it cannot be used, in words for the user; None where it can."""
    if os.environ.get(SETTING) == "off":
        return f"{SETTING}=off"
    return _why_missing()


@cache
def _why_missing() -> str | None:
    if cuda_version() is None:
        return "the package cupy is not installed"
    preload()
    try:
        module = frontend()
        found = version(module)
    except ImportError:
        return "the package nvidia-cudnn-frontend is not installed"
    except (OSError, RuntimeError) as error:
        return f"cuDNN was not found: {str(error).splitlines()[0]}"
    first, after = FRONTENDS
    if not first <= tuple(map(int, module.__version__.split(".")[:2])) < after:
        wanted = f"{'.'.join(map(str, first))} up to {'.'.join(map(str, after))}, which is too new"
        return f"nvidia-cudnn-frontend is {module.__version__}; expected: {wanted}"
    if found < OLDEST:
        return f"cuDNN is {'.'.join(map(str, found))}; {'.'.join(map(str, OLDEST[:2]))} or newer is needed"
    return None


def preload() -> None:
    """Load the library's wheel, wherever it is, and what compiles kernels, without which it has no plan for much."""
    for pattern in ("libnvrtc-builtins.so.*", "libnvrtc.so.*", "libcudnn.so.9"):
        for path in wheel_libraries(pattern):
            with suppress(OSError):
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def frontend() -> Any:
    """The package. Raises `ImportError` where it is not installed."""
    import cudnn

    return cudnn


def version(module: Any) -> tuple[int, int, int]:
    """Of the library."""
    number = int(module.backend_version())
    return number // 10000, number // 100 % 100, number % 100


@cache
def _handle(module: Any, device: int) -> int:
    return int(module.create_handle())


def handle() -> int:
    """The library's handle on the current GPU: one a process and GPU."""
    return _handle(frontend(), launch.engine.device())


def on_gpu() -> dict[str, Any]:
    """What a graph is made with that runs on the current GPU."""
    return {"handle": handle()}


target: Callable[[], dict[str, Any]] = on_gpu
"""What graphs are planned for."""
