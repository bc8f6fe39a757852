"""Computations that slide a window: convolutions, transposed convolutions and poolings, for 1 to 3 spatial axes.

A window is anything that has the fields of `netspec.layers.window.Window`. Memory is (N, C, spatial…); weights are
(M, C, kernel…), or (groups, M/groups, C/groups, kernel…) for a grouped convolution.
"""

from __future__ import annotations

from typing import Protocol

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.constants import Algorithm, forward
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc


class Sliding(Protocol):
    """A window, per spatial axis; a dilation of 1 is none."""

    @property
    def size(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def pads(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def dilation(self) -> tuple[int, ...]: ...


def _pads(window: Sliding) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(begin for begin, _ in window.pads), tuple(end for _, end in window.pads)


def _gaps(window: Sliding) -> tuple[int, ...]:
    """Dilation as oneDNN counts it: the elements skipped between two taps."""
    return tuple(dilation - 1 for dilation in window.dilation)


def _geometry(window: Sliding) -> tuple[tuple[int, ...], ...]:
    return (window.strides, _gaps(window), *_pads(window))


def convolution_forward(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    window: Sliding,
    *,
    algorithm: Algorithm = Algorithm.CONVOLUTION_DIRECT,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC, WEIGHTS, BIAS → DST."""
    arguments = (forward(training), algorithm, src, weights, bias, dst, *_geometry(window))
    return PrimitiveDesc.make(src.engine, "convolution_forward", *arguments, attributes=attributes)


def convolution_backward_data(
    diff_src: MemoryDesc,
    weights: MemoryDesc,
    diff_dst: MemoryDesc,
    window: Sliding,
    hint: PrimitiveDesc,
    *,
    algorithm: Algorithm = Algorithm.CONVOLUTION_DIRECT,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """DIFF_DST, WEIGHTS → DIFF_SRC; `hint` is the forward computation."""
    arguments = (algorithm, diff_src, weights, diff_dst, *_geometry(window), hint)
    return PrimitiveDesc.make(diff_src.engine, "convolution_backward_data", *arguments, attributes=attributes)


def convolution_backward_weights(
    src: MemoryDesc,
    diff_weights: MemoryDesc,
    diff_bias: MemoryDesc | None,
    diff_dst: MemoryDesc,
    window: Sliding,
    hint: PrimitiveDesc,
    *,
    algorithm: Algorithm = Algorithm.CONVOLUTION_DIRECT,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC, DIFF_DST → DIFF_WEIGHTS, DIFF_BIAS."""
    arguments = (algorithm, src, diff_weights, diff_bias, diff_dst, *_geometry(window), hint)
    return PrimitiveDesc.make(src.engine, "convolution_backward_weights", *arguments, attributes=attributes)


def deconvolution_forward(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    window: Sliding,
    *,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """A transposed convolution. SRC, WEIGHTS, BIAS → DST; weights are (output channels, input channels, kernel…)."""
    arguments = (forward(training), Algorithm.DECONVOLUTION_DIRECT, src, weights, bias, dst, *_geometry(window))
    return PrimitiveDesc.make(src.engine, "deconvolution_forward", *arguments, attributes=attributes)


def pooling_forward(
    src: MemoryDesc,
    dst: MemoryDesc,
    window: Sliding,
    algorithm: Algorithm,
    *,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC → DST, and WORKSPACE (where each maximum was) for max pooling in training."""
    geometry = (window.strides, window.size, _gaps(window), *_pads(window))
    arguments = (forward(training), algorithm, src, dst, *geometry)
    return PrimitiveDesc.make(src.engine, "pooling_forward", *arguments, attributes=attributes)


def pooling_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, window: Sliding, algorithm: Algorithm, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """DIFF_DST, and the WORKSPACE of max pooling → DIFF_SRC."""
    geometry = (window.strides, window.size, _gaps(window), *_pads(window))
    return PrimitiveDesc.make(diff_src.engine, "pooling_backward", algorithm, diff_src, diff_dst, *geometry, hint)
