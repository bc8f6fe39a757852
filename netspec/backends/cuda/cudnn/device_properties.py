"""Properties of absent GPUs that cuDNN needs for planning.

Multiprocessors, caches and widths come from NVIDIA's architecture white papers (Turing, A100, Ada, H100) and data
sheets; capacities of a multiprocessor come from the CUDA C++ Programming Guide, "Technical Specifications per
Compute Capability". Clocks follow from the rates of `GPUS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netspec.backends.cuda.gpus import GPUS


@dataclass(frozen=True)
class Chip:
    """Data of a GPU from its data sheet."""

    multiprocessors: int
    cache: int
    """MiB of the L2 cache."""
    bus: int
    """Bits of the memory bus."""


@dataclass(frozen=True)
class Multiprocessor:
    """Capacities of a multiprocessor, by compute capability."""

    lanes: int
    """float32 multiply-adds per clock."""
    threads: int
    blocks: int
    shared: int
    """KiB of shared memory per block."""


CHIPS = {
    "t4": Chip(40, 4, 256),
    "a100": Chip(108, 40, 5120),
    "l40s": Chip(142, 96, 384),
    "rtx4090": Chip(128, 72, 384),
    "h100": Chip(132, 50, 5120),
    "h200": Chip(132, 50, 6144),
}
"""Chips by the names of `GPUS`; other GPUs are unknown."""
MULTIPROCESSORS = {
    (7, 5): Multiprocessor(64, 1024, 16, 64),
    (8, 0): Multiprocessor(64, 2048, 32, 163),
    (8, 9): Multiprocessor(128, 1536, 24, 99),
    (9, 0): Multiprocessor(128, 2048, 32, 227),
}


def properties(name: str) -> dict[str, Any]:
    """Properties in the library's units; clocks are in kHz. Raises `KeyError` for an unknown GPU."""
    gpu, chip = GPUS[name], CHIPS[name]
    multiprocessor = MULTIPROCESSORS[gpu.capability]
    major, minor = gpu.capability
    return {
        "deviceName": gpu.title, "deviceVer": major * 100 + minor * 10, "driverVer": 13000, "cudaDeviceId": 0,
        "pciDeviceId": 0, "multiProcessorCount": chip.multiprocessors, "smCountOrigin": 0, "warpSize": 32,
        "maxThreadsPerBlock": 1024, "maxThreadsPerSM": multiprocessor.threads, "maxCtasPerSM": multiprocessor.blocks,
        "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 48 << 10,
        "maxSharedMemoryPerBlockOptin": multiprocessor.shared << 10,
        "reservedSharedMemoryPerBlock": 1024 if major > 7 else 0,
        "maxBlockSize": [1024, 1024, 64], "maxGridSize": [2147483647, 65535, 65535],
        "l2CacheSize": chip.cache << 20, "totalGlobalMem": gpu.memory,
        "smClockRateKHz": round(gpu.rates.flops_per_second / (chip.multiprocessors * multiprocessor.lanes * 2) / 1e3),
        "memClockRateKHz": round(gpu.rates.bytes_per_second / (chip.bus / 8 * 2) / 1e3), "memoryBusWidth": chip.bus,
        "isTccDriver": 0, "supportCoopLaunch": 1,
    }  # fmt: skip
