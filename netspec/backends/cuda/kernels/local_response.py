"""Local response normalization across channels: a block handles a pixel, with its channels in shared memory.

The gradient recomputes the scales: this is faster than storing and reloading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.cuda.launch import THREADS, Launch, number, pointer, sizes
from netspec.graph.kernel import Buffers, Kernel, LowPrecision, Thunk, kernel
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.ops.lrn import LRN, LRNBase, LRNGrad
from netspec.graph.types import TensorType
from netspec.graph.value import Node

MAX_SHARED = 40 << 10
"""Bytes of a block's shared memory: every GPU has 48 KiB."""

EACH = "for (int c = threadIdx.x; c < CHANNELS; c += blockDim.x)"
SCALE = f"""
{EACH} {{
    const NUMBER v = load(x[unit * CHANNELS + c]);
    squares[BEFORE + c] = v * v;
}}
__syncthreads();
"""
HEAD = """
__shared__ NUMBER squares[SPAN];
for (int c = threadIdx.x; c < SPAN; c += blockDim.x) squares[c] = 0;
"""
FLOWS = HEAD.replace("squares", "flows")
PIXELS = """
BLOCKS(unit, count) {
    __syncthreads();
"""
TOTAL = """
    NUMBER total = 0;
    for (int k = 0; k < WINDOW; ++k) total += squares[c + k];
    const NUMBER scale = bias + share * total;
"""
FORWARD = f"""{HEAD}{PIXELS}{SCALE}
{EACH} {{
    {TOTAL}
    store(y[unit * CHANNELS + c], load(x[unit * CHANNELS + c]) * pow_NUMBER(scale, exponent));
}}
}}
"""
BACKWARD = f"""{HEAD}{FLOWS}{PIXELS}{SCALE}
{EACH} {{
    {TOTAL}
    const NUMBER direct = load(dy[unit * CHANNELS + c]) * pow_NUMBER(scale, exponent);
    flows[AFTER + c] = direct * load(x[unit * CHANNELS + c]) / scale;
    store(dx[unit * CHANNELS + c], direct);
}}
__syncthreads();
{EACH} {{
    NUMBER total = 0;
    for (int k = 0; k < WINDOW; ++k) total += flows[c + k];
    const Index at = unit * CHANNELS + c;
    store(dx[at], load(dx[at]) - factor * load(x[at]) * total);
}}
}}
"""


class CrossChannelKernel(Kernel):
    """Base class: all arrays are channels-last."""

    def reject_reason(self, op: LRNBase, *types: TensorType) -> str | None:
        kind = types[0]
        nbytes = 2 * (kind.shape[1] + op.size - 1) * kind.dtype.itemsize
        return None if nbytes <= MAX_SHARED else f"{kind.shape[1]:,} channels do not fit into shared memory"

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(len(node.inputs[0].shape))
        return LayoutSignature((last,) * len(offered), (last,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, kind = node.op, node.inputs[0].type
        assert isinstance(op, LRNBase)
        names = ("x", "dy", "dx") if isinstance(op, LRNGrad) else ("x", "y")
        arrays: dict[str, Any] = dict(zip(names, (*buffers.inputs, *buffers.outputs), strict=True))
        channels = kind.shape[1]
        factor = [number("factor", 2 * op.share * op.beta, kind.dtype)] if isinstance(op, LRNGrad) else []
        parameters = [
            *(pointer(name, array, written=name == names[-1]) for name, array in arrays.items()),
            *sizes(kind.size, count=kind.size // channels),
            number("share", op.share, kind.dtype), number("bias", op.bias, kind.dtype),
            number("exponent", -op.beta, kind.dtype), *factor,
        ]  # fmt: skip
        body = BACKWARD if factor else FORWARD
        replacements = {
            "SPAN": channels + op.size - 1, "CHANNELS": channels, "NUMBER": kind.dtype, "BEFORE": op.before,
            "AFTER": op.after, "WINDOW": op.size,
        }  # fmt: skip
        threads = min(THREADS, -(-channels // 32) * 32)
        return Launch(
            parameters, body, kind.size // channels, of_blocks=True, threads=threads, replacements=replacements
        ).bind()


@kernel(LRN, backend="cuda", rank=5)
class LRNKernel(CrossChannelKernel):
    """Forward."""

    low_precision = LowPrecision.ALL


@kernel(LRNGrad, backend="cuda", rank=5)
class LRNGradKernel(CrossChannelKernel):
    """Gradient. Intermediate results are read again, and so must not be rounded."""

    low_precision = LowPrecision.OPERANDS
