"""Whether there is a GPU that netspec can use, and which one is this process's; nothing of it is opened here."""

from __future__ import annotations

import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

from netspec.errors import InputError
from netspec.parallel import nccl, world

LEAST_CAPABILITY = 70
"""Compute capability times ten: of threads that go on by themselves within a warp (Volta)."""
SIGNS = (Path("/dev/nvidiactl"), Path("/usr/lib/wsl/lib/libcuda.so.1"), Path("C:/Windows/System32/nvcuda.dll"))
"""What is there with NVIDIA's driver: on Linux, on Linux within Windows, on Windows."""
WITHOUT = "`--device cpu` computes without a GPU"
INSTALL = "pip install 'netspec[cuda13]', or 'netspec[cuda12]' where the driver is older"
NO_DEVICE = 100
"""`cudaErrorNoDevice`, of CUDA's `driver_types.h`."""


class Unsuited(InputError):
    """There is no GPU that can be used, though nothing is broken: who left the choice open takes another device."""


def signs_of_gpu() -> bool:
    """Whether this machine seems to have a GPU that this process may see; neither CUDA nor CuPy is touched."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "all") not in ("", "-1") and any(one.exists() for one in SIGNS)


def usable_gpu(number: int | None = None) -> tuple[Any, int]:
    """CuPy, and the number of the GPU that this process computes on; with `number` that one.

    Of several workers of a host each has another; `check_apart` sees whether there are enough. Raises `Unsuited` where
    there is no CuPy, no GPU, one that is too old, or no NCCL for several workers; `InputError` where there is no GPU of
    that number, several workers are to have it, or CuPy, the driver or NVRTC can't be used.
    """
    try:
        import cupy
    except ModuleNotFoundError:
        raise Unsuited("the device `cuda` needs CuPy", got="it is not installed", hint=INSTALL) from None
    except ImportError as error:
        raise InputError(
            "the device `cuda` needs CuPy", got=f"it is there and can't be loaded: {_first_line(error)}", hint=INSTALL
        ) from None
    count, workers = _count(cupy), world()
    if number is None:
        number = workers.host_rank % count
    elif workers.size > 1:
        raise InputError(
            "each of several workers has a GPU of its own", expected="`--device cuda`",
            got=f"`--device cuda:{number}` for {workers.size} workers",
        )  # fmt: skip
    if number >= count:
        last = "cuda:0, the only GPU" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise InputError(f"there is no GPU {number}", expected=last, got=f"cuda:{number}")
    capability = int(cupy.cuda.Device(number).compute_capability)  # "75" is 7.5
    if capability < LEAST_CAPABILITY:
        raise Unsuited(
            f"the GPU {number} is too old for the device `cuda`",
            expected=f"compute capability {LEAST_CAPABILITY / 10} (Volta) or higher", got=f"{capability / 10}",
            hint=WITHOUT,
        )  # fmt: skip
    if workers.size > 1 and nccl.library() is None:
        raise Unsuited("several workers on GPUs need NCCL", got="CuPy finds no library", hint=nccl.INSTALL)
    try:
        cupy.cuda.nvrtc.getVersion()
    except RuntimeError as error:
        raise InputError(
            "the device `cuda` needs NVRTC, which compiles its kernels", got=_first_line(error),
            hint=f"{INSTALL}; {WITHOUT}",
        ) from None  # fmt: skip
    return cupy, number


def check_apart(cupy: Any, number: int) -> None:
    """All workers come here, with the number of their GPU. Raises `Unsuited`, of all alike, where two have the same.

    A launcher may let each of them see another GPU alone.
    """
    workers = world()
    if workers.size == 1:
        return
    told = workers.gather([platform.node(), cupy.cuda.runtime.deviceGetPCIBusId(number)])
    on_host = Counter(host for host, _ in told)
    for host, ranks in on_host.items():
        gpus = len({gpu for name, gpu in told if name == host})
        if gpus < ranks:
            raise Unsuited(
                "there are fewer GPUs than workers", expected="a GPU for each worker",
                got=f"{gpus} GPU{'s' * (gpus > 1)} for {ranks} workers of the host {host}",
                hint=f"`--workers {gpus}`, or more hosts with as many workers each as they have GPUs",
            )  # fmt: skip


def _count(cupy: Any) -> int:
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if error.status != NO_DEVICE:
            raise InputError(
                "the device `cuda` needs an NVIDIA GPU and its driver", got=str(error), hint=WITHOUT
            ) from None
        count = 0
    if not count:
        raise Unsuited("the device `cuda` needs an NVIDIA GPU", got="none is there")
    return count


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
