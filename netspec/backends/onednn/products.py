"""Products of matrices: inner products (dense layers) and batched matrix multiplication."""

from __future__ import annotations

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.constants import forward
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc


def inner_product_forward(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    *,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC (N, C, spatial…), WEIGHTS (M, C, spatial…), BIAS (M) → DST (N, M) = src · weightsᵀ + bias."""
    arguments = (forward(training), src, weights, bias, dst)
    return PrimitiveDesc.make(src.engine, "inner_product_forward", *arguments, attributes=attributes)


def inner_product_backward_data(
    diff_src: MemoryDesc,
    weights: MemoryDesc,
    diff_dst: MemoryDesc,
    hint: PrimitiveDesc,
    *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """DIFF_DST (N, M), WEIGHTS (M, C) → DIFF_SRC (N, C)."""
    arguments = (diff_src, weights, diff_dst, hint)
    return PrimitiveDesc.make(diff_src.engine, "inner_product_backward_data", *arguments, attributes=attributes)


def inner_product_backward_weights(
    src: MemoryDesc,
    diff_weights: MemoryDesc,
    diff_bias: MemoryDesc | None,
    diff_dst: MemoryDesc,
    hint: PrimitiveDesc,
    *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC (N, C), DIFF_DST (N, M) → DIFF_WEIGHTS (M, C), DIFF_BIAS (M)."""
    arguments = (src, diff_weights, diff_bias, diff_dst, hint)
    return PrimitiveDesc.make(src.engine, "inner_product_backward_weights", *arguments, attributes=attributes)


def matmul(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC (…, M, K), WEIGHTS (…, K, N), BIAS (…, M or 1, N) → DST (…, M, N); leading sizes of 1 are broadcast.

    A transposed operand is one described by transposed strides.
    """
    return PrimitiveDesc.make(src.engine, "matmul", src, weights, bias, dst, attributes=attributes)
