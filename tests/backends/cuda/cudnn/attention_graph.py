"""Attention graphs that cuDNN plans and compiles without the GPU that they are for: see `plans`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from netspec.backends.cuda.cudnn.attention_graph import (
    AttentionForwardGraph,
    AttentionGradientGraph,
    AttentionGraph,
    by_heads,
)
from netspec.backends.cuda.cudnn.library import frontend
from netspec.backends.cuda.cudnn.plans import CudnnPlan
from netspec.graph.ops.attention import AttentionBand
from netspec.graph.types import DType, TensorType

SIZES = {
    "the Transformer that is measured": ((64, 128, 8, 32), (64, 128, 8, 32), 32),
    "a long text": ((8, 1024, 16, 64), (8, 1024, 16, 64), 64),
    "shared keys and values": ((2, 256, 4, 2, 64), (2, 256, 4, 64), 64),
    "odd sizes": ((3, 77, 2, 40), (3, 100, 2, 40), 24),
}
"""Shapes of queries and keys, and the size of values."""
BANDS = AttentionBand(), AttentionBand(causal=True), AttentionBand(window=16), AttentionBand(causal=True, window=16)
ROWS = None, 1, -1
"""Number of rows of the bias of the scores: no bias, one row for all queries, or (-1) a row for each."""
BESIDE = 4096
"""Bytes of workspace that the library may need in addition to the known ones."""


def described(
    kind: type[AttentionGraph], dtype: DType, name: str, band: AttentionBand, rows: int | None, *, ordered: bool
) -> AttentionGraph:
    """Return the graph of an attention."""
    queries, keys, size = SIZES[name]
    q, k, v = (
        by_heads(TensorType(shape, DType.FLOAT32), dtype) for shape in (queries, keys, (*keys[:-1], size))
    )  # fmt: skip
    rows = queries[1] if rows == -1 else rows
    return kind(q=q, k=k, v=v, band=band, bias_rows=rows, deterministic=ordered)


def failures(dtype: DType, name: str) -> Iterator[str]:
    """Yield the graphs that can't be built, or need more workspace than expected."""
    kinds = ((AttentionForwardGraph, True), (AttentionGradientGraph, True), (AttentionGradientGraph, False))
    for (kind, ordered), band, rows in product(kinds, BANDS, ROWS):
        operation = described(kind, dtype, name, band, rows, ordered=ordered)
        reason = f"{kind.__name__} {dtype} {name} {band} rows {rows} ordered {ordered}"
        try:
            wants = CudnnPlan(operation).workspace
        except (frontend().cudnnGraphNotSupportedError, RuntimeError) as error:
            yield f"{reason}: {str(error).strip().splitlines()[0]}"
        else:
            if abs(wants - operation.known_workspace) > BESIDE:
                yield f"{reason}: {wants} bytes of workspace, {operation.known_workspace} were known of"
