"""Computations element by element (eltwise, binary, sum), copies (reorder, concat, resampling), and reductions."""

from __future__ import annotations

from collections.abc import Sequence

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.constants import Algorithm, forward
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc


def eltwise_forward(
    src: MemoryDesc,
    dst: MemoryDesc,
    algorithm: Algorithm,
    alpha: float = 0.0,
    beta: float = 0.0,
    *,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC → DST = f(src); DST may be SRC."""
    arguments = (forward(training), algorithm, src, dst, float(alpha), float(beta))
    return PrimitiveDesc.make(src.engine, "eltwise_forward", *arguments, attributes=attributes)


def eltwise_backward(
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    data: MemoryDesc,
    algorithm: Algorithm,
    hint: PrimitiveDesc,
    alpha: float = 0.0,
    beta: float = 0.0,
) -> PrimitiveDesc:
    """SRC (DST for the `…_USE_DST` algorithms: described by `data`), DIFF_DST → DIFF_SRC; DIFF_SRC may be DIFF_DST."""
    arguments = (algorithm, diff_src, diff_dst, data, float(alpha), float(beta), hint)
    return PrimitiveDesc.make(data.engine, "eltwise_backward", *arguments)


def binary(
    src: MemoryDesc,
    other: MemoryDesc,
    dst: MemoryDesc,
    algorithm: Algorithm,
    *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC, SRC_1 → DST = src ∘ other; sizes of 1 are broadcast (ranks must be equal). DST may be SRC."""
    return PrimitiveDesc.make(src.engine, "binary", algorithm, src, other, dst, attributes=attributes)


def reduction(
    src: MemoryDesc,
    dst: MemoryDesc,
    algorithm: Algorithm,
    p: float = 0.0,
    epsilon: float = 0.0,
    *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC → DST, over the axes whose size in `dst` is 1; `p` and `epsilon` belong to the norms."""
    arguments = (algorithm, src, dst, float(p), float(epsilon))
    return PrimitiveDesc.make(src.engine, "reduction", *arguments, attributes=attributes)


def concat(
    sources: Sequence[MemoryDesc], dst: MemoryDesc | None, axis: int, *, attributes: Attributes | None = None
) -> PrimitiveDesc:
    """`multiple_src(0)`, `multiple_src(1)` … → DST, one after another along `axis`."""
    arguments = (dst, len(sources), axis, list(sources))
    return PrimitiveDesc.make(sources[0].engine, "concat", *arguments, attributes=attributes)


def reorder(src: MemoryDesc, dst: MemoryDesc, *, attributes: Attributes | None = None) -> PrimitiveDesc:
    """SRC → DST: the same elements in another layout or type."""
    return PrimitiveDesc(src.engine, "reorder", (src, src.engine, dst, dst.engine), attributes)


def resampling_forward(
    src: MemoryDesc,
    dst: MemoryDesc,
    algorithm: Algorithm,
    *,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC (N, C, spatial…) → DST (N, C, other spatial…), by the nearest element or linearly, between pixel centers."""
    arguments = (forward(training), algorithm, None, src, dst)
    return PrimitiveDesc.make(src.engine, "resampling_forward", *arguments, attributes=attributes)


def resampling_backward(
    diff_src: MemoryDesc, diff_dst: MemoryDesc, algorithm: Algorithm, hint: PrimitiveDesc
) -> PrimitiveDesc:
    """DIFF_DST → DIFF_SRC."""
    return PrimitiveDesc.make(diff_src.engine, "resampling_backward", algorithm, None, diff_src, diff_dst, hint)
