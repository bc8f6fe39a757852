"""Normalizations: batch, layer, local response, softmax. Statistics, scale and shift are always float32."""

from __future__ import annotations

import ctypes

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.constants import Algorithm, NormalizationFlags, Propagation, forward
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc


def batch_normalization_forward(
    src: MemoryDesc,
    dst: MemoryDesc,
    epsilon: float,
    flags: NormalizationFlags,
    *,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC (N, C, …), SCALE, SHIFT (C) → DST, MEAN, VARIANCE (C, biased), and WORKSPACE for a fused ReLU in training.

    With `USE_GLOBAL_STATS` MEAN and VARIANCE are given. For inference without it they are computed and not told.
    """
    arguments = (forward(training), src, dst, float(epsilon), flags)
    return PrimitiveDesc.make(src.engine, "batch_normalization_forward", *arguments, attributes=attributes)


def batch_normalization_backward(
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    src: MemoryDesc,
    epsilon: float,
    flags: NormalizationFlags,
    hint: PrimitiveDesc,
    *,
    weights: bool = True,
) -> PrimitiveDesc:
    """SRC, MEAN, VARIANCE, DIFF_DST, SCALE, and the WORKSPACE of a fused ReLU → DIFF_SRC, DIFF_SCALE, DIFF_SHIFT.

    Without `weights` only the first is computed.
    """
    kind = Propagation.BACKWARD if weights else Propagation.BACKWARD_DATA
    arguments = (kind, diff_src, diff_dst, src, float(epsilon), flags, hint)
    return PrimitiveDesc.make(src.engine, "batch_normalization_backward", *arguments)


def layer_normalization_forward(
    src: MemoryDesc,
    dst: MemoryDesc,
    statistics: MemoryDesc | None,
    epsilon: float,
    flags: NormalizationFlags,
    *,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """Over the last axis. SRC (…, C), SCALE, SHIFT (C) → DST; MEAN, VARIANCE (…) as `statistics` describes them."""
    arguments = (forward(training), src, dst, statistics, float(epsilon), flags)
    return PrimitiveDesc.make(src.engine, "layer_normalization_forward", *arguments, attributes=attributes)


def layer_normalization_backward(
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    src: MemoryDesc,
    statistics: MemoryDesc | None,
    epsilon: float,
    flags: NormalizationFlags,
    hint: PrimitiveDesc,
    *,
    weights: bool = True,
) -> PrimitiveDesc:
    """SRC, MEAN, VARIANCE, DIFF_DST, SCALE → DIFF_SRC, DIFF_SCALE, DIFF_SHIFT (without `weights` only the first)."""
    kind = Propagation.BACKWARD if weights else Propagation.BACKWARD_DATA
    arguments = (kind, diff_src, diff_dst, src, statistics, float(epsilon), flags, hint)
    return PrimitiveDesc.make(src.engine, "layer_normalization_backward", *arguments)


def lrn_forward(
    src: MemoryDesc,
    dst: MemoryDesc,
    algorithm: Algorithm,
    size: int,
    alpha: float,
    beta: float,
    k: float,
    *,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC → DST = src · (k + α/n · Σ src²)^−β over `size` channels, or size × size pixels; n is their number.

    WORKSPACE in training, where the implementation keeps one.
    """
    arguments = (forward(training), algorithm, src, dst, ctypes.c_int64(size), float(alpha), float(beta), float(k))
    return PrimitiveDesc.make(src.engine, "lrn_forward", *arguments, attributes=attributes)


def lrn_backward(
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    src: MemoryDesc,
    algorithm: Algorithm,
    size: int,
    alpha: float,
    beta: float,
    k: float,
    hint: PrimitiveDesc,
) -> PrimitiveDesc:
    """SRC, DIFF_DST, WORKSPACE → DIFF_SRC."""
    numbers = (ctypes.c_int64(size), float(alpha), float(beta), float(k))
    return PrimitiveDesc.make(src.engine, "lrn_backward", algorithm, diff_src, diff_dst, src, *numbers, hint)


def softmax_forward(
    src: MemoryDesc,
    dst: MemoryDesc,
    axis: int,
    *,
    logarithm: bool = False,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC → DST = exp(src) / Σ exp(src) along `axis`, or its logarithm."""
    arguments = (forward(training), _softmax(logarithm), src, dst, axis)
    return PrimitiveDesc.make(src.engine, "softmax_forward", *arguments, attributes=attributes)


def softmax_backward(
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    dst: MemoryDesc,
    axis: int,
    hint: PrimitiveDesc,
    *,
    logarithm: bool = False,
) -> PrimitiveDesc:
    """DST, DIFF_DST → DIFF_SRC."""
    arguments = (_softmax(logarithm), diff_src, diff_dst, dst, axis, hint)
    return PrimitiveDesc.make(dst.engine, "softmax_backward", *arguments)


def _softmax(logarithm: bool) -> Algorithm:
    return Algorithm.SOFTMAX_LOG if logarithm else Algorithm.SOFTMAX_ACCURATE
