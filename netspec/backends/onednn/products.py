"""Products of matrices, in batches or one by one."""

from __future__ import annotations

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc


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
