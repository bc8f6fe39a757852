"""Layer, RMS and group normalization and gradients: a warp handles a row, or a block if rows are long.

Sums over rows are column sums. A group of a sample is a row, too: its channels are parts of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.scratch import ScratchMemory
from netspec.backends.cuda.column_sums import ColumnSums, sums
from netspec.backends.cuda.kernels.elementwise import bound
from netspec.backends.cuda.launch import THREADS, WARP, Launch, number, pointer, sizes
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, Example, Kernel, LowPrecision, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.group_normalization import GroupNormalization, GroupNormalizationGrad, GroupwiseOp
from netspec.graph.ops.layer_normalization import (
    LayerNormalization,
    LayerNormalizationGrad,
    RMSNormalization,
    RMSNormalizationGrad,
    RowwiseOp,
)
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

LONG = 1024
"""Minimum row length for which a whole block is used."""

ROWS = """
__shared__ NUMBER scratch[THREADS / 32];
BLOCKS(unit, count) {
    const Index row = unit * (THREADS / WIDTH) + threadIdx.x / WIDTH;
    const int own = threadIdx.x % WIDTH;
    const Index first = row * length;
    if (row >= rows) continue;
    BODY
}
"""
OVER_ROW = "for (Index c = own; c < length; c += WIDTH)"
FORWARD = f"""
NUMBER middle = 0, spread = 0;
MEAN
{OVER_ROW} {{
    const NUMBER centered = load(x[first + c]) - middle;
    spread += centered * centered;
}}
spread = of_row<WIDTH>(spread, scratch) / length;
KEPT
const NUMBER r = 1 / sqrt_NUMBER(spread + epsilon);
{OVER_ROW} store(y[first + c], (load(x[first + c]) - middle) * r * gamma[FACTOR] OFFSET);
"""
MEAN = f"""
{OVER_ROW} middle += load(x[first + c]);
middle = of_row<WIDTH>(middle, scratch) / length;
"""
BACKWARD = f"""
const NUMBER middle = MIDDLE, r = 1 / sqrt_NUMBER(variance[row] + epsilon);
NUMBER level = 0, tilt = 0;
{OVER_ROW} {{
    const NUMBER g = load(dy[first + c]) * gamma[c];
    level += g;
    tilt += g * (load(x[first + c]) - middle);
}}
level = LEVEL;
tilt = of_row<WIDTH>(tilt, scratch) / length * r;
{OVER_ROW} {{
    const NUMBER g = load(dy[first + c]) * gamma[c];
    store(dx[first + c], r * (g - level - (load(x[first + c]) - middle) * r * tilt));
}}
"""
CHANNELS = f"""
const NUMBER middle = mean[row / inner], r = 1 / sqrt_NUMBER(variance[row / inner] + epsilon);
NUMBER offset = 0, slope = 0;
{OVER_ROW} {{
    offset += load(dy[first + c]);
    slope += load(dy[first + c]) * (load(x[first + c]) - middle);
}}
offset = of_row<WIDTH>(offset, scratch);
slope = of_row<WIDTH>(slope, scratch) * r;
if (own == 0) {{
    offsets[row] = offset;
    slopes[row] = slope;
}}
"""
GROUPS = """
UNITS(row, count) {
    const NUMBER r = 1 / sqrt_NUMBER(variance[row] + epsilon);
    NUMBER level = 0, tilt = 0;
    for (Index k = 0; k < inner; ++k) {
        level += gamma[row % groups * inner + k] * offsets[row * inner + k];
        tilt += gamma[row % groups * inner + k] * slopes[row * inner + k];
    }
    scales[row] = r;
    levels[row] = level / length * r;
    tilts[row] = tilt / length * r * r;
}
"""

_LONG, _ROW, _STATISTIC = (TensorType(shape, DType.FLOAT32) for shape in ((300, 1030), (1030,), (300, 1)))
"""A sample with a block per row and split columns."""


@dataclass(frozen=True)
class RowLoops:
    """Contiguous rows."""

    count: int
    length: int

    def launch(
        self, body: str, arrays: dict[str, Any], results: dict[str, Any | None], epsilon: float, dtype: DType,
        inner: int = 1, groups: int = 1,
    ) -> Thunk:  # fmt: skip
        """A call that runs a body for each row."""
        width = WARP if self.length <= LONG else THREADS
        blocks = -(-self.count // (THREADS // width))
        replacements = {"BODY": body, "NUMBER": dtype, "THREADS": THREADS, "WIDTH": width}
        parameters = [
            *(pointer(name, array) for name, array in arrays.items()),
            *(pointer(name, array, written=True) for name, array in results.items() if array is not None),
            number("epsilon", epsilon, dtype),
            *sizes(
                (self.count + THREADS) * self.length, count=blocks, rows=self.count, length=self.length, inner=inner,
                groups=groups,
            ),
        ]  # fmt: skip
        return Launch(parameters, ROWS, blocks, of_blocks=True, replacements=replacements).bind()


class OverRowsKernel(Kernel):
    """Base class: data may be stored in 16 bits, but not factors and statistics."""

    low_precision = LowPrecision.DATA


def rows_of(node: Node) -> RowLoops:
    """The rows of the first operand."""
    op, x = node.op, node.inputs[0].type
    assert isinstance(op, RowwiseOp | GroupwiseOp)
    length = op.row_length(x.shape) if isinstance(op, RowwiseOp) else op.grouped_shape(x.shape)[2]
    return RowLoops(x.size // length, length)


def channels_of(node: Node) -> tuple[int, int]:
    """Channels of a group, and elements of a channel."""
    op, shape = node.op, node.inputs[0].shape
    assert isinstance(op, GroupwiseOp)
    return shape[1] // op.groups, prod(shape[2:])


def forward(node: Node, arrays: dict[str, Any], y: Any, mean: Any, variance: Any, factor: str, **counts: int) -> Thunk:
    """Normalize rows, around their means if there is a beta; `factor` is the index of an element's gamma."""
    results, dtype, epsilon = {"y": y, "mean": mean, "variance": variance}, node.inputs[0].dtype, node.op.epsilon  # type: ignore[attr-defined]  # all ops over rows have it
    statements = {"mean": "mean[row] = middle;", "variance": "variance[row] = spread;"}
    stores = " ".join(text for name, text in statements.items() if results[name] is not None)
    body = FORWARD.replace("KEPT", f"if (own == 0) {{ {stores} }}").replace("MEAN", MEAN if "beta" in arrays else "")
    if y is None:
        body = body.rpartition("const NUMBER r")[0]
    body = body.replace("OFFSET", "+ beta[FACTOR]" if "beta" in arrays else "").replace("FACTOR", factor)
    return rows_of(node).launch(body, arrays, results, epsilon, dtype, **counts)


@kernel(LayerNormalization, RMSNormalization, backend="cuda", rank=5)
class RowNormalizationKernel(OverRowsKernel):
    """Normalize around the mean of each row, or around 0."""

    def samples(self) -> Sequence[Example]:
        return ((LayerNormalization(), (_LONG, _ROW, _ROW)), (RMSNormalization(), (_LONG, _ROW)))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        arrays = dict(zip(("x", "gamma", "beta"), buffers.inputs, strict=False))
        y, *statistics = buffers.outputs
        mean, variance = statistics if len(statistics) > 1 else (None, *statistics)
        return forward(node, arrays, y, mean, variance, "c")


@kernel(GroupNormalization, backend="cuda", rank=5)
class GroupNormalizationKernel(OverRowsKernel):
    """Normalize around the mean of each group of a sample."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        arrays = dict(zip(("x", "gamma", "beta"), buffers.inputs, strict=True))
        width, _ = channels_of(node)
        factor = "row % groups * inner + c / (length / inner)"
        y, mean, variance = buffers.outputs
        assert isinstance(node.op, GroupNormalization)
        return forward(node, arrays, y, mean, variance, factor, inner=width, groups=node.op.groups)


@kernel(LayerNormalizationGrad, RMSNormalizationGrad, backend="cuda", rank=5)
class RowNormalizationGradKernel(OverRowsKernel):
    """dx by rows, then the sums over all rows."""

    def samples(self) -> Sequence[Example]:
        centered = LayerNormalizationGrad(epsilon=3.0), (_LONG, _ROW, _STATISTIC, _STATISTIC, _LONG)
        return centered, (RMSNormalizationGrad(epsilon=3.0), (_LONG, _ROW, _STATISTIC, _LONG))

    def columns(self, node: Node) -> ColumnSums:
        """The sums over rows, as column sums."""
        rows = rows_of(node)
        return ColumnSums(rows.length, rows.count, 1)

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        columns = self.columns(node)
        return 4 * align_up(columns.pieces * columns.channels * node.inputs[0].dtype.itemsize)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        names = ("x", "gamma", "mean", "variance", "dy")
        centered = isinstance(node.op, LayerNormalizationGrad)
        arrays = dict(zip([name for name in names if centered or name != "mean"], buffers.inputs, strict=True))
        (dx, *statistics), dtype = buffers.outputs, node.inputs[0].dtype
        scratch = ScratchMemory(buffers.workspace, dtype)
        epsilon = node.op.epsilon  # type: ignore[attr-defined]  # all ops over rows have it
        calls = []
        if dx is not None:
            middle, level = ("mean[row]", "of_row<WIDTH>(level, scratch) / length") if centered else ("0", "0")
            body = BACKWARD.replace("MIDDLE", middle).replace("LEVEL", level)
            calls.append(rows_of(node).launch(body, arrays, {"dx": dx}, epsilon, dtype))
        results = {
            name: array for name, array in zip(("dgamma", "dbeta"), statistics, strict=False) if array is not None
        }
        if results:
            middle = "mean[e]" if centered else "0"
            values = {
                "dgamma": f"load(dy[at]) * ((load(x[at]) - {middle}) / sqrt_{dtype}(variance[e] + epsilon))",
                "dbeta": "load(dy[at])",
            }
            read = [pointer(name, array) for name, array in arrays.items() if name != "gamma"]
            finish = " ".join(f"{name}[c] = sum{k};" for k, name in enumerate(results))
            written = [pointer(name, array, written=True) for name, array in results.items()]
            calls.append(
                sums(
                    self.columns(node), [*read, number("epsilon", epsilon, dtype)],
                    "const Index at = e * channels + c;", [values[name] for name in results], finish, written,
                    scratch.take, dtype,
                )
            )  # fmt: skip
        return chain(calls)


@kernel(GroupNormalizationGrad, backend="cuda", rank=5)
class GroupNormalizationGradKernel(OverRowsKernel):
    """Sums of each channel of each sample, from these the factors of each group, and dx elementwise."""

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        x = node.inputs[0].type
        columns = ColumnSums(x.shape[1], x.shape[0], 1)
        counts = [x.shape[0] * x.shape[1]] * 2 + [rows_of(node).count] * 3 + [columns.pieces * columns.channels] * 2
        return sum(align_up(count * x.dtype.itemsize) for count in counts)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, mean, variance, dy), (dx, dgamma, dbeta) = buffers.inputs, buffers.outputs
        kind, (width, side), groups = node.inputs[0].type, channels_of(node), rows_of(node)
        dtype, scratch = kind.dtype, ScratchMemory(buffers.workspace, kind.dtype)
        op = node.op
        assert isinstance(op, GroupNormalizationGrad)
        batch, channels = kind.shape[:2]
        sums_of = {"offsets": scratch.take(batch * channels), "slopes": scratch.take(batch * channels)}
        statistics = {"mean": mean, "variance": variance}
        calls = [
            RowLoops(batch * channels, side).launch(
                CHANNELS, {"x": x, "dy": dy, **statistics}, sums_of, op.epsilon, dtype, width
            )
        ]
        if dx is not None:
            factors = {name: scratch.take(groups.count) for name in ("scales", "levels", "tilts")}
            parameters = [
                *(pointer(name, array) for name, array in (sums_of | {"gamma": gamma, "variance": variance}).items()),
                *(pointer(name, array, written=True) for name, array in factors.items()),
                number("epsilon", op.epsilon, dtype),
                *sizes(kind.size, count=groups.count, length=groups.length, inner=width, groups=op.groups),
            ]
            calls.append(Launch(parameters, GROUPS.replace("NUMBER", str(dtype)), groups.count).bind())
            grouped = [array.reshape(batch, op.groups, width, side) for array in (dy, x)]
            small = [array.reshape(batch, op.groups, 1, 1) for array in (mean, *factors.values())]
            formula = "a1 * a2 * a4 - a5 - (a0 - a3) * a6"
            calls.append(
                bound(
                    ((), (formula,)), [grouped[1], grouped[0], gamma.reshape(op.groups, width, 1), *small],
                    [dx.reshape(batch, op.groups, width, side)],
                )
            )  # fmt: skip
        results = {name: array for name, array in (("dgamma", dgamma), ("dbeta", dbeta)) if array is not None}
        if results:
            read = {"dgamma": "slopes", "dbeta": "offsets"}
            finish = " ".join(f"{name}[c] = sum{k};" for k, name in enumerate(results))
            calls.append(
                sums(
                    ColumnSums(channels, batch, 1), [pointer(read[name], sums_of[read[name]]) for name in results], "",
                    [f"{read[name]}[e * channels + c]" for name in results], finish,
                    [pointer(name, array, written=True) for name, array in results.items()], scratch.take, dtype,
                )
            )  # fmt: skip
        return chain(calls)
