"""Data of GPUs, for planning without such a GPU.

Memory and rates come from NVIDIA's data sheets, in powers of ten, without sparsity and at the boost clock: A100 80 GB
SXM (nvidia-a100-datasheet-us-nvidia-1758950-r4), H100 and H200 SXM (NVIDIA H100 and H200 data sheets; the Hopper white
paper has the exact 494.7 and 989.4), L40S, T4, HGX B200 (NVIDIA Blackwell architecture brief), GeForce RTX 4090 (Ada
white paper, sums in float32). Compute capabilities come from developer.nvidia.com/cuda-gpus. Real GPUs are slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from netspec.graph.cost_model import MachineModel
from netspec.graph.types import Precision

LAUNCH = 2e-6
"""Minimum seconds of a kernel: an estimate for a kernel in a CUDA graph."""


@dataclass(frozen=True)
class GpuLinks:
    """Links of a GPU, as names of networks whose parameters are in `distributed/cost_model/networks.py`."""

    within: str
    """Link between GPUs of a host."""
    host: str
    """Link between a GPU and the CPU."""
    between: str = "ib-hdr"
    """Link between hosts; an assumption except for hosts that NVIDIA builds."""


DGX_A100, DGX_H100 = GpuLinks("nvlink", "pcie4", "ib-hdr"), GpuLinks("nvlink4", "pcie5", "ib-ndr")
HGX_B200 = GpuLinks("nvlink5", "pcie5", "ib-ndr")
PCIE3, PCIE4 = GpuLinks("pcie3", "pcie3"), GpuLinks("pcie4", "pcie4")
"""Links in NVIDIA's own hosts, with a port of 200 or 400 Gbit/s InfiniBand for each of 8 GPUs (user guides of DGX A100
and DGX H100), and in hosts of other vendors.
"""


@dataclass(frozen=True)
class Gpu:
    """Data of a GPU."""

    title: str
    capability: tuple[int, int]
    """Compute capability: major and minor."""
    memory: int
    """Bytes. The driver and the libraries use some hundred MB of them."""
    rates: MachineModel
    links: GpuLinks


def _gpu(
    title: str,
    capability: tuple[int, int],
    gigabytes: int,
    gigabytes_per_second: float,
    links: GpuLinks,
    **teraflops: float | None,
) -> Gpu:
    """Convert the units of data sheets. `teraflops`: by precision; None if the GPU does not support it in hardware."""
    bandwidth, single = gigabytes_per_second * 1e9, teraflops.pop("float32")
    assert single is not None
    products = {Precision(name): value * 1e12 for name, value in teraflops.items() if value is not None}
    return Gpu(
        title, capability, gigabytes * 10**9,
        MachineModel(
            flops_per_second=single * 1e12, bytes_per_second=bandwidth, cached_bytes_per_second=bandwidth,
            cache_bytes=0, call_seconds=LAUNCH, contraction_flops=products,
        ),
        links,
    )  # fmt: skip


GPUS = {
    "t4": _gpu(
        "NVIDIA T4", (7, 5), 16, 320, PCIE3, float64=0.254, float32=8.1, tf32=None, bfloat16=None, float16=65
    ),
    "a100": _gpu(
        "NVIDIA A100 80 GB SXM", (8, 0), 80, 2039, DGX_A100, float64=9.7, float32=19.5, tf32=156, bfloat16=312,
        float16=312,
    ),
    "l40s": _gpu(
        "NVIDIA L40S", (8, 9), 48, 864, PCIE4, float64=1.43, float32=91.6, tf32=183, bfloat16=362, float16=362
    ),
    "rtx4090": _gpu(
        "NVIDIA GeForce RTX 4090", (8, 9), 24, 1008, PCIE4, float64=1.29, float32=82.6, tf32=82.6, bfloat16=165.2,
        float16=165.2,
    ),
    "h100": _gpu(
        "NVIDIA H100 SXM", (9, 0), 80, 3350, DGX_H100, float64=33.5, float32=66.9, tf32=494.7, bfloat16=989.4,
        float16=989.4,
    ),
    "h200": _gpu(
        "NVIDIA H200 SXM", (9, 0), 141, 4800, DGX_H100, float64=33.5, float32=66.9, tf32=494.7, bfloat16=989.4,
        float16=989.4,
    ),
    "b200": _gpu(
        "NVIDIA B200 (HGX)", (10, 0), 180, 7700, HGX_B200, float64=37, float32=75, tf32=1100, bfloat16=2250,
        float16=2250,
    ),
}  # fmt: skip
"""GPUs by their names in `--device`."""
UNKNOWN = "a100"
"""The GPU whose rates are assumed for an unknown one: kernels are compared, so only ratios matter."""


def gpu_named(name: str) -> Gpu:
    """The GPU with a name as reported by the driver, such as `NVIDIA A100-SXM4-80GB`."""
    words = name.lower().replace("rtx ", "rtx").replace("-", " ").split()
    return next((gpu for word, gpu in GPUS.items() if word in words), GPUS[UNKNOWN])


_target: ContextVar[str | None] = ContextVar("target", default=None)


def target() -> str | None:
    """The name, in `GPUS`, of the absent GPU that is planned for; None for the current one."""
    return _target.get()


@contextmanager
def planned_for(name: str) -> Iterator[None]:
    """Plan for another GPU inside the block."""
    token = _target.set(name)
    try:
        yield
    finally:
        _target.reset(token)
