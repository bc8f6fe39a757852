"""GPUs that can be planned for without being there: what their maker says they are.

Memory and rates are those of NVIDIA's data sheets, in powers of ten, without sparsity and at the boost clock: A100
80 GB SXM (nvidia-a100-datasheet-us-nvidia-1758950-r4), H100 and H200 SXM (NVIDIA H100 and H200 data sheets; the Hopper
white paper has the exact 494.7 and 989.4), L40S, T4, HGX B200 (NVIDIA Blackwell architecture brief), GeForce RTX 4090
(Ada white paper, sums in float32). Compute capabilities are those of developer.nvidia.com/cuda-gpus. What a GPU reaches
is less than any of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.rates import Rates
from netspec.graph.types import Precision

LAUNCH = 2e-6
"""Seconds that a kernel takes at least: an estimate of what it is in a CUDA graph."""


@dataclass(frozen=True)
class Links:
    """What connects a GPU with others, by the names of `parallel/costs/networks.py`, which has the figures."""

    within: str
    """GPUs of a host."""
    host: str
    """With the processor."""
    between: str = "ib-hdr"
    """Hosts: a guess, but for those that NVIDIA builds."""


DGX_A100, DGX_H100 = Links("nvlink", "pcie4", "ib-hdr"), Links("nvlink4", "pcie5", "ib-ndr")
HGX_B200 = Links("nvlink5", "pcie5", "ib-ndr")
PCIE3, PCIE4 = Links("pcie3", "pcie3"), Links("pcie4", "pcie4")
"""NVIDIA's own hosts: a port of 200 or 400 Gbit/s InfiniBand for each of 8 GPUs (user guides of DGX A100, DGX H100);
and GPUs in hosts of all kinds."""


@dataclass(frozen=True)
class Gpu:
    """A GPU by its name."""

    title: str
    capability: tuple[int, int]
    """Major and minor: what it can do, as the compiler counts it."""
    memory: int
    """Bytes. The driver and the libraries take some hundred MB of them."""
    rates: Rates
    links: Links


def _gpu(
    title: str,
    capability: tuple[int, int],
    gigabytes: int,
    gigabytes_per_second: float,
    links: Links,
    **teraflops: float | None,
) -> Gpu:
    """From the units of data sheets; `teraflops` by precision, None where it has no units for it."""
    bandwidth, single = gigabytes_per_second * 1e9, teraflops.pop("float32")
    assert single is not None
    products = {Precision(name): value * 1e12 for name, value in teraflops.items() if value is not None}
    return Gpu(
        title, capability, gigabytes * 10**9,
        Rates(flops=single * 1e12, bytes=bandwidth, cached_bytes=bandwidth, cache=0, call=LAUNCH, products=products),
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
"""By the name that `--device` takes."""
UNKNOWN = "a100"
"""Whose rates are taken for a GPU that is not among them: kernels are compared, so that ratios matter alone."""


def named(name: str) -> Gpu:
    """The GPU that a driver calls so, such as `NVIDIA A100-SXM4-80GB`."""
    words = name.lower().replace("rtx ", "rtx").replace("-", " ").split()
    return next((gpu for word, gpu in GPUS.items() if word in words), GPUS[UNKNOWN])
