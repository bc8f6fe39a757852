"""Batch normalization kernels: training, gradient and inference, with fused elementwise ops.

Statistics take one pass: a thread computes mean and squared deviations of a few elements and merges them with its
earlier ones, then with those of other threads and parts, as in T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating
formulae and a pairwise algorithm for computing sample variances", 1979. The work on each element is an elementwise
kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.backends.common.channel_norm import (
    NORMALIZED,
    ChannelNormKernel,
    fusion_reject_reason,
    normalization_op,
    operand_bytes,
    operand_extent,
)
from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.scratch import ScratchMemory
from netspec.backends.common.trace import Code
from netspec.backends.cuda.column_sums import KEPT, OVER_ELEMENTS, ColumnSums, sums
from netspec.backends.cuda.kernels.elementwise import bound, value_type
from netspec.backends.cuda.launch import number, pointer
from netspec.backends.cuda.scalar_code import scalar_code, why_untraceable
from netspec.graph.cost_model import machine_model
from netspec.graph.execution_plan import align_up
from netspec.graph.fused import EpilogueFused, PrologueFused
from netspec.graph.kernel import Buffers, Example, Thunk, kernel, transfer_seconds
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.batch_normalization import BatchNormalization, BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

LAUNCHES = 3
"""Launches: partial sums, their total unless there is one part, the elementwise kernel."""
HELD = 8
"""Elements that a thread reads at once for the statistics."""
VECTORS = 5
"""Number of per-channel vectors in scratch memory, in addition to the partial results."""

FIRST = re.compile(r"\ba0\b")

READ = """
NUMBER average = 0, spread = 0, seen = 0;
for (Index start = first + own; inside && start < last; start += HELD * (THREADS / WIDTH)) {
    NUMBER held[HELD], total = 0, count = 0, around = 0;
    #pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const Index e = start + i * (THREADS / WIDTH);
        if (e < last) {
            held[i] = load(x[AT]);
            total += held[i];
            count += 1;
        }
    }
    const NUMBER middle = total / count, apart = middle - average, both = seen + count;
    #pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const NUMBER centered = held[i] - middle;
        if (i < count) around += centered * centered;
    }
    average += apart * (count / both);
    spread += around + apart * apart * (seen * (count / both));
    seen = both;
}
const NUMBER middle = of_columns<WIDTH>(average * seen, scratch) / (last - first), apart = average - middle;
spread = of_columns<WIDTH>(spread + apart * apart * seen, scratch);
"""
MOMENTS = f"""{READ}
{KEPT} {{
    means[piece * channels + c] = middle;
    squares[piece * channels + c] = spread;
}}
"""
WRITTEN = f"""
{KEPT} {{
    mean[c] = middle;
    variance[c] = spread;
    scale[c] = gamma[c] / sqrt_NUMBER(spread + epsilon);
}}
"""
OF_ONE_PIECE = f"""{READ}
spread /= limit;
{WRITTEN}
"""
TOGETHER = f"""
NUMBER total = 0, spread = 0;
{OVER_ELEMENTS} total += means[e * channels + c] * ELEMENTS;
const NUMBER middle = of_columns<WIDTH>(total, scratch) / elements;
{OVER_ELEMENTS} {{
    const NUMBER apart = means[e * channels + c] - middle;
    spread += squares[e * channels + c] + apart * apart * ELEMENTS;
}}
spread = of_columns<WIDTH>(spread, scratch) / elements;
{WRITTEN}
""".replace("ELEMENTS", "(NUMBER)(elements - e * part < part ? elements - e * part : part)")
FLOWS = """
const NUMBER r = 1 / sqrt_NUMBER(variance[c] + epsilon);
dgamma[c] = sum1 * r;
dbeta[c] = sum0;
direct[c] = gamma[c] * r;
level[c] = gamma[c] * r * sum0 / elements;
tilt[c] = gamma[c] * r * r * r * sum1 / elements;
"""

_LARGE, _CHANNELS = (TensorType(shape, DType.FLOAT32) for shape in ((64, 37, 9, 8), (37,)))
"""A sample with several parts, and channels of two blocks, in each memory order."""


def columns_of(x: TensorType, axis: int, layout: Layout) -> ColumnSums:
    """The channels of an operand in plain or channels-last order."""
    channels = x.shape[axis]
    side = prod(x.shape[axis + 1 :]) if layout.is_plain(x) else 1
    return ColumnSums(channels, x.size // channels, side)


class ByColumns(ChannelNormKernel):
    """Base class."""

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        x = node.inputs[0].type
        columns = columns_of(x, normalization_op(node.op).axis, signature.inputs[0])
        vector, parts = (
            align_up(count * x.dtype.itemsize) for count in (columns.channels, columns.pieces * columns.channels)
        )
        return VECTORS * vector + 2 * parts

    def reread_bytes(self, node: Node, signature: LayoutSignature) -> int:
        """Bytes of operands that the elementwise kernel reads a second time."""
        return 0

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return LAUNCHES * machine_model().call_seconds + transfer_seconds(
            operand_bytes(node, signature) + self.reread_bytes(node, signature)
        )


class BoundNormalization:
    """A bound call: the column sums, scratch memory, and vectors that broadcast to x."""

    def __init__(self, node: Node, buffers: Buffers) -> None:
        self.op, self.x = normalization_op(node.op), node.inputs[0].type
        self.dtype = self.x.dtype
        self.columns = columns_of(self.x, self.op.axis, buffers.layouts.inputs[0])
        self.scratch = ScratchMemory(buffers.workspace, self.dtype)

    def or_scratch(self, array: Any | None) -> Any:
        """A per-channel vector: the given one, or one in scratch memory."""
        return self.scratch.take(self.columns.channels) if array is None else array

    def broadcast(self, *vectors: Any) -> list[Any]:
        """Per-channel vectors, shaped to broadcast over x."""
        return [vector.reshape(-1, *(1,) * (self.x.rank - 1 - self.op.axis)) for vector in vectors]

    def epsilon(self) -> Any:
        """The kernel parameter for epsilon."""
        return number("epsilon", self.op.epsilon, self.dtype)


@kernel(BatchNormalization, backend="cuda", rank=5)
class InferenceKernel(ByColumns):
    """Normalize with given mean and variance."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, beta, mean, variance), (y,) = buffers.inputs, buffers.outputs
        norm = BoundNormalization(node, buffers)
        scale, dtype = norm.or_scratch(None), norm.dtype
        formula = f"a0 / sqrt_{dtype}(a1 + ({dtype}){float(norm.op.epsilon).hex()})"
        return chain([
            bound(((), (formula,)), [gamma, variance], [scale]),
            bound(((), (NORMALIZED.format(1, 2, 3),)), [x, *norm.broadcast(mean, scale, beta)], [y]),
        ])  # fmt: skip


@kernel(BatchNormalizationTraining, EpilogueFused, backend="cuda", rank=5)
class TrainingKernel(ByColumns):
    """Normalize with the mean and variance of the batch; an epilogue is applied as the result is written."""

    def samples(self) -> Sequence[Example]:
        return ((BatchNormalizationTraining(), (_LARGE, _CHANNELS, _CHANNELS)),)

    def reject_reason(self, op: Op, *types: TensorType) -> str | None:
        return fusion_reject_reason(BatchNormalizationTraining, op, types, why_untraceable)

    def reread_bytes(self, node: Node, signature: LayoutSignature) -> int:
        """Bytes of x; other operands of an epilogue are read once."""
        return signature.inputs[0].nbytes(node.inputs[0].type)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        x, gamma, beta, *extras = buffers.inputs
        y, *statistics = buffers.outputs
        norm = BoundNormalization(node, buffers)
        columns, dtype = norm.columns, norm.dtype
        mean, variance = map(norm.or_scratch, statistics)
        scale = norm.or_scratch(None)
        statistics_arrays = {"mean": mean, "variance": variance, "scale": scale}
        results = [
            pointer("gamma", gamma), *(pointer(name, array, written=True) for name, array in statistics_arrays.items()),
            norm.epsilon(),
        ]  # fmt: skip
        reading, last = (text.replace("AT", columns.at).replace("HELD", str(HELD)) for text in (MOMENTS, OF_ONE_PIECE))
        if columns.pieces == 1:
            calls = [columns.launch([pointer("x", x), *results], last, dtype)]
        else:
            parts = {name: norm.scratch.take(columns.pieces * columns.channels) for name in ("means", "squares")}
            written = [pointer(name, array, written=True) for name, array in parts.items()]
            read = [pointer(name, array) for name, array in parts.items()]
            calls = [
                columns.launch([pointer("x", x), *written], reading, dtype),
                columns.combined.launch(
                    [*read, *results], TOGETHER, dtype, elements=columns.limit, part=columns.length
                ),
            ]  # fmt: skip
        if y is not None:
            arrays = [x, *extras, *norm.broadcast(mean, scale, beta)]
            code: Code = (), ("a0",)
            if isinstance(node.op, EpilogueFused):
                code = scalar_code(node.op.epilogue(len(extras)), dtype, *(value.dtype for value in node.inputs[3:]))
            lines, names = _of_normalized(code)
            first = len(extras) + 1
            made_of = f"const {dtype} normalized = {NORMALIZED.format(first, first + 1, first + 2)};"
            calls.append(bound(((made_of, *lines), names), arrays, [y]))
        return chain(calls)


def _of_normalized(code: Code) -> Code:
    """Scalar code whose first operand is the normalized value; operand 0 of the kernel is x itself."""
    lines, names = code
    return tuple(FIRST.sub("normalized", line) for line in lines), tuple(
        FIRST.sub("normalized", name) for name in names
    )


@kernel(BatchNormalizationGrad, PrologueFused, backend="cuda", rank=5)
class GradientKernel(ByColumns):
    """Gradients in training; a fused prologue may compute dy as it is read."""

    def samples(self) -> Sequence[Example]:
        return ((BatchNormalizationGrad(epsilon=3.0), (_LARGE, _CHANNELS, _CHANNELS, _CHANNELS, _LARGE)),)

    def reject_reason(self, op: Op, *types: TensorType) -> str | None:
        return fusion_reject_reason(BatchNormalizationGrad, op, types, why_untraceable)

    def reread_bytes(self, node: Node, signature: LayoutSignature) -> int:
        """Bytes of x, dy, and the operands of dy's prologue."""
        operands = dict(zip(node.inputs, signature.inputs, strict=True))
        return sum(layout.nbytes(value.type) for value, layout in operands.items())

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        x, gamma, mean, variance, *extras = buffers.inputs
        dx, *statistics = buffers.outputs
        norm = BoundNormalization(node, buffers)
        columns, dtype = norm.columns, norm.dtype
        dgamma, dbeta = map(norm.or_scratch, statistics)
        direct, level, tilt = (norm.or_scratch(None) for _ in range(3))
        kinds = [operand_extent(norm.op.axis, norm.x, value.type) for value in node.inputs[4:]]
        lines: tuple[str, ...] | list[str]
        lines, (flow, *_) = (), ("a0",)
        if isinstance(node.op, PrologueFused):
            lines, (flow, *_) = scalar_code(node.op.prologue(len(extras)), *(value.dtype for value in node.inputs[4:]))
        loads = [
            f"const {value_type(extra)} a{k} = load(e{k}[{kind.value}]);"
            for k, (extra, kind) in enumerate(zip(extras, kinds, strict=True))
            if kind is not None
        ]
        results = {"dgamma": dgamma, "dbeta": dbeta, "direct": direct, "level": level, "tilt": tilt}
        calls = [
            sums(
                columns,
                [pointer("x", x), pointer("mean", mean), *(pointer(f"e{k}", extra) for k, extra in enumerate(extras))],
                "\n        ".join([f"const Index at = {columns.at};", *loads, *lines]),
                [flow, f"{flow} * (load(x[at]) - mean[c])"], FLOWS.replace("NUMBER", str(dtype)),
                [
                    pointer("gamma", gamma), pointer("variance", variance), norm.epsilon(),
                    *(pointer(name, array, written=True) for name, array in results.items()),
                ],
                norm.scratch.take, dtype, elements=columns.limit,
            )
        ]  # fmt: skip
        if dx is not None:
            a, b, c, d, e = (f"a{len(extras) + k}" for k in range(5))
            formula = f"{flow} * {c} - {d} - ({a} - {b}) * {e}"
            calls.append(bound((lines, (formula,)), [*extras, x, *norm.broadcast(mean, direct, level, tilt)], [dx]))
        return chain(calls)
