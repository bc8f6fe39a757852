"""Detection of GPUs: which one this process uses, and why the device `auto` is or is not a GPU."""

from __future__ import annotations

import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

from netspec.backends.process_group import world
from netspec.errors import InputError, install_command

LEAST_CAPABILITY = 70
"""Minimum compute capability times ten: independent thread scheduling (Volta)."""
SIGNS = (Path("/dev/nvidiactl"), Path("/usr/lib/wsl/lib/libcuda.so.1"), Path("C:/Windows/System32/nvcuda.dll"))
"""Files of NVIDIA's driver: on Linux, on Linux within Windows, on Windows."""
WITHOUT = "`--device cpu` computes without a GPU"
NO_DEVICE = 100
"""`cudaErrorNoDevice` in CUDA's `driver_types.h`."""


def _how_to_install() -> str:
    return f"{install_command('cuda13')}, or `cuda12` where the driver is older"


class UnusableGpu(InputError):
    """No GPU can be used, though nothing is broken: `auto` then chooses another device."""


def has_gpu_driver() -> bool:
    """Whether there seems to be a GPU that this process may use; does not load CUDA or CuPy."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "all") not in ("", "-1") and any(path.exists() for path in SIGNS)


def usable_gpu(number: int | None = None) -> tuple[Any, int]:
    """CuPy, and the index of the GPU that this process uses: `number`, if given.

    The workers of a host use different GPUs; `check_distinct_gpus` verifies that there are enough. Raises `UnusableGpu`
    if CuPy, a GPU, or NCCL for several workers is missing or the GPU is too old; `InputError` if there is no GPU with
    that number, several workers would share it, or CuPy, the driver or NVRTC cannot be used.
    """
    try:
        import cupy
    except ModuleNotFoundError:
        raise UnusableGpu("the device `cuda` needs CuPy", got="it is not installed", hint=_how_to_install()) from None
    except ImportError as error:
        raise InputError(
            "the device `cuda` needs CuPy",
            got=f"it is installed, but cannot be loaded: {_first_line(error)}",
            hint=_how_to_install(),
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
        raise UnusableGpu(
            f"the GPU {number} is too old for the device `cuda`",
            expected=f"compute capability {LEAST_CAPABILITY / 10} (Volta) or higher", got=f"{capability / 10}",
            hint=WITHOUT,
        )  # fmt: skip
    if (unlinked := workers.gpu_link_error()) is not None:
        raise UnusableGpu(unlinked.problems)
    try:
        oldest = min(cupy.cuda.nvrtc.getSupportedArchs())
    except RuntimeError as error:
        raise InputError(
            "the device `cuda` needs NVRTC, which compiles its kernels", got=_first_line(error),
            hint=f"{_how_to_install()}; {WITHOUT}",
        ) from None  # fmt: skip
    if capability < oldest:
        raise UnusableGpu(
            f"GPU {number} is too old for CUDA {cupy.cuda.nvrtc.getVersion()[0]}",
            expected=f"compute capability {oldest / 10} or higher", got=f"{capability / 10}",
            hint=f"{install_command('cuda12')}; {WITHOUT}",
        )  # fmt: skip
    return cupy, number


def check_distinct_gpus(cupy: Any, number: int) -> None:
    """Check that no two workers use the same GPU, a collective call. Raises `UnusableGpu` on all workers or none.

    A launcher may make a different GPU visible to each worker.
    """
    workers = world()
    if workers.size == 1:
        return
    reports = workers.all_gather_objects([platform.node(), cupy.cuda.runtime.deviceGetPCIBusId(number)])
    on_host = Counter(host for host, _ in reports)
    for host, ranks in on_host.items():
        gpus = len({gpu for name, gpu in reports if name == host})
        if gpus < ranks:
            raise UnusableGpu(
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
        raise UnusableGpu("the device `cuda` needs an NVIDIA GPU", got="no GPU was found")
    return count


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


NO_GPU = ""
"""Reason for using the CPU on a machine without a GPU: not reported to the user."""


def gpu_reject_reason(why: str | None = None) -> str | None:
    """Return why `auto` is the CPU, possibly an empty string; None if it is a GPU. `why` is the caller's reason.

    A collective call with the same answer on all workers: the reason of one worker applies to all. Raises `InputError`
    if there is a GPU that does not work.
    """
    reports = [report for report in world().all_gather_objects(_own_reject_reason(why)) if report is not None]
    if reports:
        return str(max(reports))  # prefers a reason to an empty string
    try:
        check_distinct_gpus(*usable_gpu())
    except UnusableGpu as error:
        return _unusable_reason(error)
    return None


def _own_reject_reason(why: str | None) -> str | None:
    if not has_gpu_driver():
        return NO_GPU
    if why is not None:
        return _sentence(why)
    try:
        usable_gpu()
    except UnusableGpu as error:
        return _unusable_reason(error)
    return None


def _unusable_reason(error: UnusableGpu) -> str:
    (problem,) = error.problems
    return _sentence(f"{problem.brief} ({problem.hint})" if problem.hint else problem.brief)


def _sentence(why: str) -> str:
    return f"running on the CPU, not on a GPU: {why}"
