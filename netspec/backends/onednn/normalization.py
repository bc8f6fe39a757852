"""Normalizations: batch, layer, local response, softmax. Statistics, scale and shift are always float32."""

from __future__ import annotations

import ctypes
from typing import Any

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.constants import Algorithm, Arg, NormalizationFlags, Propagation, Query, forward
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
    kind, unused = "batch_normalization_forward", _unused(flags)
    return PrimitiveDesc.make(src.engine, kind, *arguments, attributes=attributes, unused=unused)


def batch_normalization_backward(
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    src: MemoryDesc,
    epsilon: float,
    flags: NormalizationFlags,
    hint: PrimitiveDesc,
) -> PrimitiveDesc:
    """SRC, MEAN, VARIANCE, DIFF_DST, SCALE, and the WORKSPACE of a fused ReLU → DIFF_SRC, DIFF_SCALE, DIFF_SHIFT."""
    arguments = (diff_src, diff_dst, src, float(epsilon), flags, hint)
    return _backward("batch_normalization_backward", src, arguments, flags)


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
    kind, unused = "layer_normalization_forward", _unused(flags)
    return PrimitiveDesc.make(src.engine, kind, *arguments, attributes=attributes, unused=unused)


def layer_normalization_backward(
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    src: MemoryDesc,
    statistics: MemoryDesc | None,
    epsilon: float,
    flags: NormalizationFlags,
    hint: PrimitiveDesc,
) -> PrimitiveDesc:
    """SRC, MEAN, VARIANCE, DIFF_DST, SCALE → DIFF_SRC, DIFF_SCALE, DIFF_SHIFT; some versions want SHIFT too."""
    arguments = (diff_src, diff_dst, src, statistics, float(epsilon), flags, hint)
    return _backward("layer_normalization_backward", src, arguments, flags)


def _unused(flags: NormalizationFlags) -> frozenset[int]:
    """Scale and shift share one description: the library gives it for both where it takes one."""
    scale = set() if flags & NormalizationFlags.USE_SCALE else {Arg.SCALE, Arg.DIFF_SCALE}
    shift = set() if flags & NormalizationFlags.USE_SHIFT else {Arg.SHIFT, Arg.DIFF_SHIFT}
    return frozenset(scale | shift)


def _backward(kind: str, src: MemoryDesc, arguments: tuple[Any, ...], flags: NormalizationFlags) -> PrimitiveDesc:
    """A backward computation. It has no need of the shift, but some want it: the number of inputs tells."""
    affine = flags & (NormalizationFlags.USE_SCALE | NormalizationFlags.USE_SHIFT)
    whole = (Propagation.BACKWARD if affine else Propagation.BACKWARD_DATA, *arguments)
    made = PrimitiveDesc.make(src.engine, kind, *whole, unused=_unused(flags))
    told = made.count(Query.INPUTS) + made.count(Query.OUTPUTS)
    if len(set(made.arguments) - {Arg.SCRATCHPAD}) > told:
        made = PrimitiveDesc.make(src.engine, kind, *whole, unused=_unused(flags) | {Arg.SHIFT})
    return made


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
