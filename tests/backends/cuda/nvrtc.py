"""NVRTC, the compiler of CUDA C++, without a GPU or a driver: its library from the wheel `nvidia-cuda-nvrtc`."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_size_t, c_void_p, create_string_buffer
from functools import cache
from typing import Any

from netspec.backends.cuda import wheel_libraries
from netspec.backends.cuda.launch import OPTIONS

OF_CUPY = ("--device-as-default-execution-space",)
"""Options that CuPy adds."""


@cache
def library() -> Any:
    """Return the library; None if the package is not installed."""
    for path in wheel_libraries("libnvrtc.so.*"):
        builtins = next(path.parent.glob("libnvrtc-builtins.so.*"))
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)  # NVRTC would search for it elsewhere
        return ctypes.CDLL(str(path))
    return None


def complaints(text: str, architecture: str) -> str | None:
    """Return the compiler's errors and warnings about a source; None if there are none."""
    nvrtc, program = library(), c_void_p()
    options = [*OPTIONS, *OF_CUPY, f"--gpu-architecture={architecture}"]
    assert nvrtc.nvrtcCreateProgram(byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
    try:
        nvrtc.nvrtcCompileProgram(program, len(options), (c_char_p * len(options))(*map(str.encode, options)))
        size = c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, byref(size))
        log = create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcGetCUBINSize(program, byref(size))
        return log.value.decode() or (None if size.value else "it made no code, and said nothing")
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))
