"""Descriptions of oneDNN primitives: convolution, pooling, matmul, elementwise, copies, reductions, normalizations.

A window is any object with the fields of `netspec.graph.ops.window.Window`. Memory is (N, C, spatial…); weights are (M,
C, kernel…), or (groups, M/groups, C/groups, kernel…) for a grouped convolution. Statistics, scale and shift of
normalizations are always float32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.constants import AlgKind, Arg, NormalizationFlags, Propagation, Query, forward
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc


class WindowGeometry(Protocol):
    """A window, per spatial axis; a dilation of 1 means none."""

    @property
    def size(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def pads(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def dilation(self) -> tuple[int, ...]: ...


def _pads(window: WindowGeometry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(begin for begin, _ in window.pads), tuple(end for _, end in window.pads)


def _gaps(window: WindowGeometry) -> tuple[int, ...]:
    """Dilation as oneDNN counts it: the elements skipped between two taps."""
    return tuple(dilation - 1 for dilation in window.dilation)


def _geometry(window: WindowGeometry) -> tuple[tuple[int, ...], ...]:
    return (window.strides, _gaps(window), *_pads(window))


def convolution_forward(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc, window: WindowGeometry, *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:  # fmt: skip
    """SRC, WEIGHTS, BIAS → DST."""
    arguments = (forward(), AlgKind.CONVOLUTION_DIRECT, src, weights, bias, dst, *_geometry(window))
    return PrimitiveDesc.make(src.engine, "convolution_forward", *arguments, attributes=attributes)


def convolution_backward_data(
    diff_src: MemoryDesc, weights: MemoryDesc, diff_dst: MemoryDesc, window: WindowGeometry, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """DIFF_DST, WEIGHTS → DIFF_SRC; `hint` is the forward computation."""
    arguments = (AlgKind.CONVOLUTION_DIRECT, diff_src, weights, diff_dst, *_geometry(window), hint)
    return PrimitiveDesc.make(diff_src.engine, "convolution_backward_data", *arguments)


def convolution_backward_weights(
    src: MemoryDesc, diff_weights: MemoryDesc, diff_bias: MemoryDesc | None, diff_dst: MemoryDesc,
    window: WindowGeometry, hint: PrimitiveDesc,
) -> PrimitiveDesc:  # fmt: skip
    """SRC, DIFF_DST → DIFF_WEIGHTS, DIFF_BIAS."""
    arguments = (AlgKind.CONVOLUTION_DIRECT, src, diff_weights, diff_bias, diff_dst, *_geometry(window), hint)
    return PrimitiveDesc.make(src.engine, "convolution_backward_weights", *arguments)


def deconvolution_forward(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc, window: WindowGeometry, *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:  # fmt: skip
    """A transposed convolution. SRC, WEIGHTS, BIAS → DST; weights are (output channels, input channels, kernel…)."""
    arguments = (forward(), AlgKind.DECONVOLUTION_DIRECT, src, weights, bias, dst, *_geometry(window))
    return PrimitiveDesc.make(src.engine, "deconvolution_forward", *arguments, attributes=attributes)


def pooling_forward(
    src: MemoryDesc, dst: MemoryDesc, window: WindowGeometry, algorithm: AlgKind, *, training: bool = True
) -> PrimitiveDesc:
    """SRC → DST, and WORKSPACE (where each maximum was) for max pooling in training."""
    geometry = (window.strides, window.size, _gaps(window), *_pads(window))
    return PrimitiveDesc.make(src.engine, "pooling_forward", forward(training), algorithm, src, dst, *geometry)


def pooling_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, window: WindowGeometry, algorithm: AlgKind, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """DIFF_DST, and the WORKSPACE of max pooling → DIFF_SRC."""
    geometry = (window.strides, window.size, _gaps(window), *_pads(window))
    return PrimitiveDesc.make(diff_src.engine, "pooling_backward", algorithm, diff_src, diff_dst, *geometry, hint)


def matmul(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc, *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:  # fmt: skip
    """SRC (…, M, K), WEIGHTS (…, K, N), BIAS (…, M or 1, N) → DST (…, M, N); leading sizes of 1 are broadcast.

    A transposed operand is one described by transposed strides.
    """
    return PrimitiveDesc.make(src.engine, "matmul", src, weights, bias, dst, attributes=attributes)


def eltwise_forward(
    src: MemoryDesc, dst: MemoryDesc, algorithm: AlgKind, alpha: float = 0.0, beta: float = 0.0, *,
    training: bool = True,
) -> PrimitiveDesc:  # fmt: skip
    """SRC → DST = f(src); DST may be SRC."""
    arguments = (forward(training), algorithm, src, dst, float(alpha), float(beta))
    return PrimitiveDesc.make(src.engine, "eltwise_forward", *arguments)


def eltwise_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, data: MemoryDesc, algorithm: AlgKind, hint: PrimitiveDesc,
    alpha: float = 0.0, beta: float = 0.0,
) -> PrimitiveDesc:  # fmt: skip
    """SRC (DST for the `…_USE_DST` algorithms: described by `data`), DIFF_DST → DIFF_SRC; DIFF_SRC may be DIFF_DST."""
    arguments = (algorithm, diff_src, diff_dst, data, float(alpha), float(beta), hint)
    return PrimitiveDesc.make(data.engine, "eltwise_backward", *arguments)


def binary(src: MemoryDesc, other: MemoryDesc, dst: MemoryDesc, algorithm: AlgKind) -> PrimitiveDesc:
    """SRC, SRC_1 → DST = src ∘ other; sizes of 1 are broadcast (ranks must be equal). DST may be SRC."""
    return PrimitiveDesc.make(src.engine, "binary", algorithm, src, other, dst)


def reduction(
    src: MemoryDesc, dst: MemoryDesc, algorithm: AlgKind, p: float = 0.0, epsilon: float = 0.0
) -> PrimitiveDesc:
    """SRC → DST, over the axes whose size in `dst` is 1; `p` and `epsilon` belong to the norms."""
    return PrimitiveDesc.make(src.engine, "reduction", algorithm, src, dst, float(p), float(epsilon))


def concat(sources: Sequence[MemoryDesc], dst: MemoryDesc | None, axis: int) -> PrimitiveDesc:
    """`multiple_src(0)`, `multiple_src(1)` … → DST, one after another along `axis`."""
    return PrimitiveDesc.make(sources[0].engine, "concat", dst, len(sources), axis, list(sources))


def reorder(src: MemoryDesc, dst: MemoryDesc) -> PrimitiveDesc:
    """SRC → DST: the same elements in another layout or type."""
    return PrimitiveDesc(src.engine, "reorder", (src, src.engine, dst, dst.engine))


def resampling_forward(src: MemoryDesc, dst: MemoryDesc, algorithm: AlgKind) -> PrimitiveDesc:
    """SRC (N, C, spatial…) → DST (N, C, other spatial…), by the nearest element or linearly, between pixel centers."""
    return PrimitiveDesc.make(src.engine, "resampling_forward", forward(), algorithm, None, src, dst)


def resampling_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, algorithm: AlgKind, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """DIFF_DST → DIFF_SRC."""
    return PrimitiveDesc.make(diff_src.engine, "resampling_backward", algorithm, None, diff_src, diff_dst, hint)


def batch_normalization_forward(
    src: MemoryDesc, dst: MemoryDesc, epsilon: float, flags: NormalizationFlags, *, training: bool = True
) -> PrimitiveDesc:
    """SRC (N, C, …), SCALE, SHIFT (C) → DST, MEAN, VARIANCE (C, biased), and WORKSPACE for a fused ReLU in training.

    With `USE_GLOBAL_STATS`, MEAN and VARIANCE are given. For inference without it they are computed and not returned.
    """
    arguments = (forward(training), src, dst, float(epsilon), flags)
    return PrimitiveDesc.make(src.engine, "batch_normalization_forward", *arguments, unused=_unused(flags))


def batch_normalization_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, src: MemoryDesc, epsilon: float, flags: NormalizationFlags,
    hint: PrimitiveDesc,
) -> PrimitiveDesc:  # fmt: skip
    """SRC, MEAN, VARIANCE, DIFF_DST, SCALE, and the WORKSPACE of a fused ReLU → DIFF_SRC, DIFF_SCALE, DIFF_SHIFT."""
    arguments = (diff_src, diff_dst, src, float(epsilon), flags, hint)
    return _backward("batch_normalization_backward", src, arguments, flags)


def layer_normalization_forward(
    src: MemoryDesc, dst: MemoryDesc, statistics: MemoryDesc | None, epsilon: float, flags: NormalizationFlags
) -> PrimitiveDesc:
    """Over the last axis. SRC (…, C), SCALE, SHIFT (C) → DST; MEAN, VARIANCE (…) as `statistics` describes them."""
    arguments = (forward(), src, dst, statistics, float(epsilon), flags)
    return PrimitiveDesc.make(src.engine, "layer_normalization_forward", *arguments, unused=_unused(flags))


def layer_normalization_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, src: MemoryDesc, statistics: MemoryDesc | None, epsilon: float,
    flags: NormalizationFlags, hint: PrimitiveDesc,
) -> PrimitiveDesc:  # fmt: skip
    """SRC, MEAN, VARIANCE, DIFF_DST, SCALE → DIFF_SRC, DIFF_SCALE, DIFF_SHIFT; some versions need SHIFT too."""
    arguments = (diff_src, diff_dst, src, statistics, float(epsilon), flags, hint)
    return _backward("layer_normalization_backward", src, arguments, flags)


def _unused(flags: NormalizationFlags) -> frozenset[int]:
    """Scale and shift share one description: the library gives it for both where it takes one."""
    scale = set() if flags & NormalizationFlags.USE_SCALE else {Arg.SCALE, Arg.DIFF_SCALE}
    shift = set() if flags & NormalizationFlags.USE_SHIFT else {Arg.SHIFT, Arg.DIFF_SHIFT}
    return frozenset(scale | shift)


def _backward(kind: str, src: MemoryDesc, arguments: tuple[Any, ...], flags: NormalizationFlags) -> PrimitiveDesc:
    """A backward computation. It does not use the shift, but some versions need it, as the number of inputs shows."""
    affine = flags & (NormalizationFlags.USE_SCALE | NormalizationFlags.USE_SHIFT)
    create_arguments = (Propagation.BACKWARD if affine else Propagation.BACKWARD_DATA, *arguments)
    primitive_desc = PrimitiveDesc.make(src.engine, kind, *create_arguments, unused=_unused(flags))
    described = primitive_desc.count(Query.INPUTS) + primitive_desc.count(Query.OUTPUTS)
    if len(set(primitive_desc.arguments) - {Arg.SCRATCHPAD}) > described:
        primitive_desc = PrimitiveDesc.make(src.engine, kind, *create_arguments, unused=_unused(flags) | {Arg.SHIFT})
    return primitive_desc


def lrn_forward(
    src: MemoryDesc, dst: MemoryDesc, algorithm: AlgKind, size: int, alpha: float, beta: float, k: float, *,
    training: bool = True,
) -> PrimitiveDesc:  # fmt: skip
    """SRC → DST = src · (k + α/n · Σ src²)^−β over `size` channels, or size × size pixels; n is their number.

    WORKSPACE in training, where the implementation keeps one.
    """
    arguments = (forward(training), algorithm, src, dst, ctypes.c_int64(size), float(alpha), float(beta), float(k))
    return PrimitiveDesc.make(src.engine, "lrn_forward", *arguments)


def softmax_forward(src: MemoryDesc, dst: MemoryDesc, axis: int, *, logarithm: bool = False) -> PrimitiveDesc:
    """SRC → DST = exp(src) / Σ exp(src) along `axis`, or its logarithm."""
    return PrimitiveDesc.make(src.engine, "softmax_forward", forward(), _softmax(logarithm), src, dst, axis)


def softmax_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, dst: MemoryDesc, axis: int, hint: PrimitiveDesc, *,
    logarithm: bool = False,
) -> PrimitiveDesc:  # fmt: skip
    """DST, DIFF_DST → DIFF_SRC."""
    arguments = (_softmax(logarithm), diff_src, diff_dst, dst, axis, hint)
    return PrimitiveDesc.make(dst.engine, "softmax_backward", *arguments)


def _softmax(logarithm: bool) -> AlgKind:
    return AlgKind.SOFTMAX_LOG if logarithm else AlgKind.SOFTMAX_ACCURATE
