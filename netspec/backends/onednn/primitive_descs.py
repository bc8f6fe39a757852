"""Descriptions of oneDNN primitives: convolution, pooling, matmul, elementwise, copies, reductions, normalizations.

Memory is (N, C, spatial…); weights are (M, C, kernel…), or (groups, M/groups, C/groups, kernel…) for a grouped
convolution. Statistics, scale and shift of normalizations are always float32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.constants import SCALE_AND_SHIFT, AlgKind, Arg, Propagation, Query
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.graph.ops.window import Window

FORWARD = Propagation.FORWARD_TRAINING


def _pads(window: Window) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(begin for begin, _ in window.pads), tuple(end for _, end in window.pads)


def _gaps(window: Window) -> tuple[int, ...]:
    """Dilation as oneDNN counts it: the elements skipped between two taps."""
    return tuple(dilation - 1 for dilation in window.dilation)


def _geometry(window: Window) -> tuple[tuple[int, ...], ...]:
    return (window.strides, _gaps(window), *_pads(window))


def convolution_forward(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc, window: Window, *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:  # fmt: skip
    """SRC, WEIGHTS, BIAS → DST."""
    arguments = (FORWARD, AlgKind.CONVOLUTION_DIRECT, src, weights, bias, dst, *_geometry(window))
    return PrimitiveDesc.make(src.engine, "convolution_forward", *arguments, attributes=attributes)


def convolution_backward_data(
    diff_src: MemoryDesc, weights: MemoryDesc, diff_dst: MemoryDesc, window: Window, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """DIFF_DST, WEIGHTS → DIFF_SRC; `hint` is the forward computation."""
    arguments = (AlgKind.CONVOLUTION_DIRECT, diff_src, weights, diff_dst, *_geometry(window), hint)
    return PrimitiveDesc.make(diff_src.engine, "convolution_backward_data", *arguments)


def convolution_backward_weights(
    src: MemoryDesc, diff_weights: MemoryDesc, diff_dst: MemoryDesc, window: Window, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """SRC, DIFF_DST → DIFF_WEIGHTS."""
    arguments = (AlgKind.CONVOLUTION_DIRECT, src, diff_weights, None, diff_dst, *_geometry(window), hint)
    return PrimitiveDesc.make(src.engine, "convolution_backward_weights", *arguments)


def deconvolution_forward(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc, window: Window, *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:  # fmt: skip
    """A transposed convolution. SRC, WEIGHTS, BIAS → DST; weights are (output channels, input channels, kernel…)."""
    arguments = (FORWARD, AlgKind.DECONVOLUTION_DIRECT, src, weights, bias, dst, *_geometry(window))
    return PrimitiveDesc.make(src.engine, "deconvolution_forward", *arguments, attributes=attributes)


def pooling_forward(src: MemoryDesc, dst: MemoryDesc, window: Window, algorithm: AlgKind) -> PrimitiveDesc:
    """SRC → DST, and WORKSPACE (where each maximum was) for max pooling."""
    geometry = (window.strides, window.size, _gaps(window), *_pads(window))
    return PrimitiveDesc.make(src.engine, "pooling_forward", FORWARD, algorithm, src, dst, *geometry)


def pooling_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, window: Window, algorithm: AlgKind, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """DIFF_DST, and the WORKSPACE of max pooling → DIFF_SRC."""
    geometry = (window.strides, window.size, _gaps(window), *_pads(window))
    return PrimitiveDesc.make(diff_src.engine, "pooling_backward", algorithm, diff_src, diff_dst, *geometry, hint)


def matmul(
    src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc, *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:  # fmt: skip
    """SRC (…, M, K), WEIGHTS (…, K, N), BIAS (…, M or 1, N) → DST (…, M, N); leading sizes of 1 are broadcast.

    A transposed operand is described by exchanged strides.
    """
    return PrimitiveDesc.make(src.engine, "matmul", src, weights, bias, dst, attributes=attributes)


def eltwise_forward(src: MemoryDesc, dst: MemoryDesc, algorithm: AlgKind, alpha: float = 0.0) -> PrimitiveDesc:
    """SRC → DST = f(src); DST may be SRC."""
    return PrimitiveDesc.make(src.engine, "eltwise_forward", FORWARD, algorithm, src, dst, float(alpha), 0.0)


def reduction(src: MemoryDesc, dst: MemoryDesc, algorithm: AlgKind) -> PrimitiveDesc:
    """SRC → DST, over the axes whose size in `dst` is 1."""
    return PrimitiveDesc.make(src.engine, "reduction", algorithm, src, dst, 0.0, 0.0)


def concat(sources: Sequence[MemoryDesc], dst: MemoryDesc, axis: int) -> PrimitiveDesc:
    """`multiple_src(0)`, `multiple_src(1)` … → DST, one after another along `axis`."""
    return PrimitiveDesc.make(sources[0].engine, "concat", dst, len(sources), axis, list(sources))


def reorder(src: MemoryDesc, dst: MemoryDesc) -> PrimitiveDesc:
    """SRC → DST: the same elements in another layout or type."""
    return PrimitiveDesc(src.engine, "reorder", (src, src.engine, dst, dst.engine))


def resampling_forward(src: MemoryDesc, dst: MemoryDesc, algorithm: AlgKind) -> PrimitiveDesc:
    """SRC (N, C, spatial…) → DST (N, C, other spatial…), by the nearest element or linearly, between pixel centers."""
    return PrimitiveDesc.make(src.engine, "resampling_forward", FORWARD, algorithm, None, src, dst)


def resampling_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, algorithm: AlgKind, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """DIFF_DST → DIFF_SRC."""
    return PrimitiveDesc.make(diff_src.engine, "resampling_backward", algorithm, None, diff_src, diff_dst, hint)


def batch_normalization_forward(src: MemoryDesc, dst: MemoryDesc, epsilon: float) -> PrimitiveDesc:
    """SRC (N, C, …), SCALE, SHIFT (C) → DST, MEAN, VARIANCE (C, biased)."""
    arguments = (FORWARD, src, dst, float(epsilon), SCALE_AND_SHIFT)
    return PrimitiveDesc.make(src.engine, "batch_normalization_forward", *arguments)


def batch_normalization_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, src: MemoryDesc, epsilon: float, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """SRC, MEAN, VARIANCE, DIFF_DST, SCALE → DIFF_SRC, DIFF_SCALE, DIFF_SHIFT."""
    return _backward(
        "batch_normalization_backward", src, (diff_src, diff_dst, src, float(epsilon), SCALE_AND_SHIFT, hint)
    )


def layer_normalization_forward(
    src: MemoryDesc, dst: MemoryDesc, statistics: MemoryDesc, epsilon: float
) -> PrimitiveDesc:
    """Over the last axis. SRC (…, C), SCALE, SHIFT (C) → DST; MEAN, VARIANCE (…) as `statistics` describes them."""
    arguments = (FORWARD, src, dst, statistics, float(epsilon), SCALE_AND_SHIFT)
    return PrimitiveDesc.make(src.engine, "layer_normalization_forward", *arguments)


def layer_normalization_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, src: MemoryDesc, statistics: MemoryDesc, epsilon: float,
    hint: PrimitiveDesc,
) -> PrimitiveDesc:  # fmt: skip
    """SRC, MEAN, VARIANCE, DIFF_DST, SCALE → DIFF_SRC, DIFF_SCALE, DIFF_SHIFT; some versions need SHIFT too."""
    arguments = (diff_src, diff_dst, src, statistics, float(epsilon), SCALE_AND_SHIFT, hint)
    return _backward("layer_normalization_backward", src, arguments)


def _backward(kind: str, src: MemoryDesc, arguments: tuple[Any, ...]) -> PrimitiveDesc:
    """A backward computation. It does not use the shift, but some versions need it, as the number of inputs shows."""
    create_arguments = (Propagation.BACKWARD, *arguments)
    primitive_desc = PrimitiveDesc.make(src.engine, kind, *create_arguments)
    described = primitive_desc.count(Query.INPUTS) + primitive_desc.count(Query.OUTPUTS)
    if len(set(primitive_desc.arguments) - {Arg.SCRATCHPAD}) > described:
        primitive_desc = PrimitiveDesc.make(src.engine, kind, *create_arguments, unused=frozenset({Arg.SHIFT}))
    return primitive_desc


def lrn_forward(src: MemoryDesc, dst: MemoryDesc, size: int, alpha: float, beta: float, k: float) -> PrimitiveDesc:
    """SRC → DST = src · (k + α/size · Σ src²)^−β over `size` channels, without the WORKSPACE of a gradient."""
    numbers = (ctypes.c_int64(size), float(alpha), float(beta), float(k))
    arguments = (Propagation.FORWARD_INFERENCE, AlgKind.LRN_ACROSS_CHANNELS, src, dst, *numbers)
    return PrimitiveDesc.make(src.engine, "lrn_forward", *arguments)


def softmax_forward(src: MemoryDesc, dst: MemoryDesc, axis: int) -> PrimitiveDesc:
    """SRC → DST = exp(src) / Σ exp(src) along `axis`."""
    return PrimitiveDesc.make(src.engine, "softmax_forward", FORWARD, AlgKind.SOFTMAX_ACCURATE, src, dst, axis)


def softmax_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, dst: MemoryDesc, axis: int, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """DST, DIFF_DST → DIFF_SRC."""
    arguments = (AlgKind.SOFTMAX_ACCURATE, diff_src, diff_dst, dst, axis, hint)
    return PrimitiveDesc.make(dst.engine, "softmax_backward", *arguments)
